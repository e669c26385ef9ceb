use super::*;

/// Whether it holds where every figure has this value.
fn holds(text: &str, x: Option<f64>) -> Option<bool> {
    Expression::parse(text).unwrap_or_else(|wrong| panic!("{wrong}")).holds(&mut |_| x)
}

fn wrong(text: &str) -> String {
    Expression::parse(text).unwrap_err().to_string()
}

#[test]
fn operators_bind_as_in_arithmetic() {
    for (text, expected) in [
        ("1 + 2 * 3 == 7", true),
        ("(1 + 2) * 3 == 9", true),
        ("10 - 2 - 3 == 5", true),
        ("-2 * -3 == 6", true),
        ("8 / 2 / 2 == 2", true),
        ("1 > 2 or 3 > 2 and 5 > 4", true),
        ("(1 > 2 or 3 > 2) and 5 < 4", false),
        ("not 1 > 2 and 1 > 0", true),
        ("!(1 < 2) || 2 >= 2 && 3 != 4", true),
        ("1min == 60 and 5ms == 0.005 and 20% == 0.2 and 1.5s > 1", true),
    ] {
        assert_eq!(holds(text, None), Some(expected), "{text}");
    }
}

#[test]
fn a_figure_has_a_name_and_what_it_is_of() {
    let parsed = Expression::parse("holder_age('my m') > 5s and miss_ratio>20%").unwrap();
    let values = parsed.values();
    assert_eq!((values[0].text.as_str(), values[0].of.as_deref()), ("holder_age('my m')", Some("my m")));
    assert_eq!((values[1].text.as_str(), values[1].of.as_deref(), values[1].at), ("miss_ratio", None, 28));
    assert_eq!(holds("holder_age(\"m\") > 5s", Some(5.1)), Some(true));
    assert_eq!(holds("holder_age(\"m\") > 5s", Some(5.0)), Some(false));
}

#[test]
fn what_is_not_known_is_not_true_and_decides_nothing() {
    assert_eq!(holds("deaths > 0", None), None);
    assert_eq!(holds("not deaths > 0", None), None);
    assert_eq!(holds("deaths > 0 or 1 > 0", None), Some(true));
    assert_eq!(holds("1 > 0 or deaths > 0", None), Some(true));
    assert_eq!(holds("deaths > 0 and 1 < 0", None), Some(false));
    assert_eq!(holds("deaths > 0 and 1 > 0", None), None);
}

#[test]
fn errors_point_at_what_is_wrong() {
    for (text, column, says) in [
        ("deaths >", 8, "the end, expected a number, a figure"),
        ("deaths > 0 deaths", 11, "`deaths`, expected an operator"),
        ("miss_ration(\"m\") > 1", 0, "did you mean `miss_ratio`"),
        ("wait_ms_per_s(m) > 1", 14, "`m)`, expected the name of a mutex"),
        ("wait_ms_per_s(\"m) > 1", 14, "a quote that does not end"),
        ("wait_ms_per_s(\"m\" > 1", 18, "expected `)`"),
        ("(deaths > 0", 11, "the end, expected `)`"),
        ("5 parsecs > 1", 2, "expected an operator"),
        ("deaths > 5parsecs", 9, "`5parsecs`, expected a number"),
        ("deaths > 1.2.3", 9, "expected a number"),
        ("deaths", 6, "a number, expected a condition"),
        ("deaths and 1 > 0", 0, "a number beside `and`"),
        ("1 > 0 and deaths", 10, "a number beside `and`"),
        ("(1 > 0) + 1 > 0", 0, "a condition, expected a number"),
        ("1 < 2 < 3", 2, "two comparisons in a row"),
        ("", 0, "the end, expected a number"),
        ("deaths > 0 and ünter > 1", 15, "expected a number, a figure"),
        ("not 5", 4, "a number beside"),
    ] {
        let said = wrong(text);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].contains(says), "{text}: {said}");
        assert_eq!(lines[1], format!("  {text}"));
        assert_eq!(lines[2], format!("  {:column$}^", ""), "{said}");
    }
    assert!(wrong(&"(".repeat(1000)).contains("nested too deep"));
}

#[test]
fn of_a_long_expression_only_the_place_is_shown() {
    let long = format!("{}miss_ration > 1{}", "deaths > 0 or ".repeat(400), " or deaths > 0".repeat(1000));
    for text in [long, "x".repeat(10_000), format!("wait_ms_per_s(\"{}) > 1", "m".repeat(10_000))] {
        let said = wrong(&text);
        assert!(said.len() < 400, "{said}");
        let lines: Vec<&str> = said.lines().collect();
        let place = lines[2].chars().count() - 1;
        assert!(["m", "x", "\""].contains(&lines[1].chars().nth(place).unwrap().to_string().as_str()), "{said}");
    }
}

#[test]
fn what_is_divided_by_nothing_is_not_known() {
    for (text, column) in [("1/0 > 0", 2), ("deaths / (2 - 2) > 0", 9)] {
        let said = wrong(text);
        assert!(said.starts_with("a division by 0"), "{said}");
        assert_eq!(said.lines().last(), Some(format!("  {:column$}^", "").as_str()));
    }
    assert_eq!((holds("1 / deaths > 0", Some(0.0)), holds("deaths / deaths >= 0", Some(0.0))), (None, None));
    assert_eq!(holds("1 / deaths > 0", Some(4.0)), Some(true));
}

#[test]
fn an_expression_of_very_many_terms_is_refused() {
    for text in [format!("{}1 > 0", "1+".repeat(60_000)), format!("{}1 > 0", "1>0 or ".repeat(9_000))] {
        let said = wrong(&text);
        assert!(said.contains("at most 1000 numbers and figures") && said.len() < 400, "{said}");
    }
    for deep in ["-", "not ", "("] {
        assert!(wrong(&format!("{}1 > 0", deep.repeat(20_000))).contains("nested too deep"), "{deep}");
    }
    assert_eq!(holds(&format!("{}1 > 0", "1+".repeat(900)), None), Some(true));
}
