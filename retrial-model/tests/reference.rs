//! Every formula against numbers of an independent implementation.

use retrial_model::Function;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The worst relative error of a set, kept to be printed.
#[derive(Default)]
struct Worst {
    error: f64,
    place: String,
}

impl Worst {
    fn see(&mut self, found: &Value, expected: &Value, allowed: f64, place: &str) {
        assert_eq!(found.is_null(), expected.is_null(), "{place}: {found}, expected {expected}");
        let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64()) else { return };
        // Below the normal numbers of a double there are no eleven digits.
        let error = if expected.abs() < 1e-290 { found - expected } else { found / expected - 1.0 };
        assert!(error.abs() <= allowed, "{place}: {found:e}, expected {expected:e}, off by {error:e}");
        if error.abs() > self.error {
            (self.error, self.place) = (error.abs(), place.to_owned());
        }
    }
}

fn call(function: &str, parameters: &Value) -> Map<String, Value> {
    let parameters = parameters.as_object().unwrap();
    Function::named(function)
        .unwrap()
        .call(parameters)
        .unwrap_or_else(|error| panic!("{function} {parameters:?}: {error}"))
}

#[test]
fn one_miss_is_that_of_the_definitions_to_ten_digits() {
    let table: Value = serde_json::from_str(include_str!("reference/residual.json")).unwrap();
    let (mut residual, mut transform, mut paper) = (Worst::default(), Worst::default(), Worst::default());
    for case in table["cases"].as_array().unwrap() {
        let (dist, limit) = (&case["dist"], &case["limit"]);
        let place = format!("{dist} {limit}");
        let found = call("residual", &json!({"dist": dist, "limit": limit}));
        for name in ["k0", "spin_time", "remaining", "survival", "density", "minimum", "minimum_squared"] {
            residual.see(&found[name], &case[name], 1e-10, &format!("{name} of {place}"));
        }
        let mean = call("holding", &json!({"dist": dist}));
        residual.see(&mean["mean"], &case["mean"], 1e-12, &format!("mean of {place}"));
        for row in case["rates"].as_array().unwrap() {
            let (rate, place) = (&row["rate"], format!("{place} at {}", row["rate"]));
            let found = call("transform", &json!({"dist": dist, "limit": limit, "attempt_rate": rate}));
            transform.see(&found["transform"], &row["transform"], 1e-10, &place);
            if let Some(expected) = row.get("k_paper") {
                let found = call("spin-paper", &json!({"dist": dist, "limit": limit, "rate": rate}));
                paper.see(&found["k"], expected, 1e-10, &place);
            }
        }
    }
    for (name, worst) in [("residual", residual), ("transform", transform), ("paper", paper)] {
        println!("{name}: {:.1e} at {}", worst.error, worst.place);
    }
}

/// Calls of functions, their results in double precision, and how far they may be off.
#[test]
fn open_and_closed_systems_are_those_of_an_independent_implementation() {
    let table: Value = serde_json::from_str(include_str!("reference/functions.json")).unwrap();
    let mut worst: BTreeMap<&str, Worst> = BTreeMap::new();
    for case in table["cases"].as_array().unwrap() {
        let (name, parameters) = (case["function"].as_str().unwrap(), &case["parameters"]);
        let found = call(name, parameters);
        let allowed = case["error"].as_f64().unwrap();
        for (field, expected) in case["results"].as_object().unwrap() {
            let place = format!("{field} of {parameters}");
            worst.entry(name).or_default().see(&found[field], expected, allowed, &format!("{name} {place}"));
        }
    }
    for (name, worst) in worst {
        println!("{name}: {:.1e} at {}", worst.error, worst.place);
    }
}
