//! Reports of an instance that never was.

use super::course::{Course, charts};
use super::{Report, Step};
use crate::golden::golden;
use crate::output::markup;
use crate::recording::Span;
use crate::recording::findings::{Blocker, Source};
use crate::recording::store::{Holder, Rounds};
use crate::top::tests::scene::snapshot;
use retrial::views::LocationId;
use retrial::{Mode, MutexId};

/// A second of it, sampled a hundred times.
fn report(from: u64, to: u64) -> Report {
    const SECOND: u64 = 1_000_000_000;
    let holder = &snapshot(to).sessions[0].info;
    let blocker = Blocker {
        holder: Holder {
            sid: holder.sid,
            claimed_ns: holder.claimed_ns,
            pid: holder.pid,
            mode: Some(Mode::Exclusive),
            location: Some(LocationId(1)),
        },
        mutex: MutexId(1),
        waiters: 2,
        time_ns: SECOND / 2,
        longest_ns: SECOND / 4,
    };
    let rounds = Rounds {
        rounds: 100,
        length_ns: SECOND,
        sessions_ns: 5 * SECOND,
        holding_ns: SECOND * 9 / 10,
        spinning_ns: SECOND / 20,
        recorder_ns: 4_300_000,
    };
    Report {
        span: Span { from: Some(snapshot(from)), to: snapshot(to) },
        rounds,
        deadlocks: Vec::new(),
        blockers: vec![blocker],
        of: "bank.db".to_owned(),
        source: Source::File("bank.db".to_owned()),
        next: "retrial sql bank.db 'SELECT * FROM v$mutex_wait'".to_owned(),
        timed: None,
        course: Vec::new(),
    }
}

/// Three seconds of it, a part for each.
fn drawn() -> Report {
    Report { course: (1..4).map(|at| Step::of(&report(at, at + 1))).collect(), ..report(1, 4) }
}

#[test]
fn a_report_is_as_it_was() {
    golden("report.txt", &report(1, 2).text());
}

#[test]
fn a_page_is_as_it_was() {
    golden("report.html", &drawn().html().unwrap());
}

#[test]
fn a_page_has_every_figure_of_the_text() {
    let (text, page) = (drawn().text(), drawn().html().unwrap());
    let mut rest = page.as_str();
    for word in text.split_whitespace() {
        let shown = markup(word.trim_matches(['(', ')']));
        // In the same order: what has been passed is not looked at again.
        let found = rest.find(&shown).map(|at| &rest[at + shown.len()..]);
        // Numbers of findings are made by the browser.
        let is_made = word.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok());
        rest = if is_made { rest } else { found.unwrap_or_else(|| panic!("no {shown} in {rest}")) };
    }
}

#[test]
fn the_parts_of_a_bar_fill_it() {
    let page = drawn().html().unwrap();
    let bar = page.split_once("<svg class=\"bar\"").unwrap().1.split_once("</svg>").unwrap().0;
    let number = |part: &str, what: &str| -> f64 {
        part.split_once(&format!(" {what}=\"")).unwrap().1.split_once('%').unwrap().0.parse().unwrap()
    };
    let mut left = 0.0;
    for part in bar.lines().filter(|line| line.starts_with("<rect")) {
        assert!((number(part, "x") - left).abs() < 0.002, "{bar}");
        left += number(part, "width");
    }
    assert!((left - 100.0).abs() < 0.01, "{bar}");
}

#[test]
fn names_are_no_markup() {
    let mut report = drawn();
    let hostile = "\u{1b}[31m<script>alert('x')</script>&\"\n";
    report.span.to.mutexes[0].name = hostile.to_owned();
    report.span.to.places.insert(LocationId(2), hostile.to_owned());
    report.span.to.sessions[0].info.name = hostile.to_owned();
    report.span.to.instance.name = hostile.to_owned();
    let page = report.html().unwrap();
    assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
    let shown = "\\u001b[31m&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;";
    for around in [("<h1>retrial report of ", ""), ("<td>", "\\u000a</td>")] {
        assert!(page.contains(&format!("{}{shown}{}", around.0, around.1)), "{page}");
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
}

#[test]
fn a_part_of_a_course_is_as_long_as_its_snapshots_say() {
    let steps = (1..4).map(|at| Step::of(&report(at, at + 1))).collect();
    let charts = charts(&[Course { name: "", steps }]);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(titles, ["sessions", "gets per second", "miss ratio ρ", "processors busy (%)"]);
    let points: Vec<(f64, f64)> = charts[1].series[0].points.iter().map(|point| (point.x, point.y)).collect();
    assert_eq!(points, [0.0, 1.0, 1.0, 2.0, 2.0, 3.0].map(|x| (x, 62_012.0)));
    let holding = &charts[0].series[1];
    assert_eq!(holding.name, "holding");
    assert!(holding.points.iter().all(|point| (point.y - 0.9).abs() < 1e-9), "{holding:?}");
}
