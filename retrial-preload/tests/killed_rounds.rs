//! Half of the exec'ed processes that contend for a robust process-shared mutex are killed: a few of the rounds that
//! `cargo run --release -p bench -- killed` has by the thousand. Under libc alone some of them hang.

mod kit;

use kit::{Named, compile};
use retrial::P;
use retrial::interposer::CALLS;
use std::path::Path;
use std::process::Stdio;

const ROUNDS: usize = 20;
/// Gets of each survivor.
const GETS: usize = 50;
const HOLDS_NS: [u32; 2] = [20_000, 200_000];
const SCHEMES: [&str; 2] = ["orbit", "pthread"];

#[test]
fn survivors_of_the_killed_go_on() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/programs/killed.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("killed-rounds");
    assert!(compile(false, &source, &program, &[]).success(), "{} compiles", source.display());
    let named = Named::new("killed");
    let mut deaths = 0;
    for (scheme, hold_ns) in SCHEMES.into_iter().flat_map(|scheme| HOLDS_NS.map(|hold_ns| (scheme, hold_ns))) {
        named.instance.set(P::Scheme, None, P::Scheme.parse(scheme, 0).expect("a scheme"));
        let mut command = named.run(&program);
        command.arg("rounds").args([ROUNDS, hold_ns as usize, GETS, 1].map(|number| number.to_string()));
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{scheme}: {command:?} ended with {}", output.status);
        assert_eq!(text.lines().count(), ROUNDS, "{scheme}: {text}");
        for line in text.lines() {
            for part in ["hung\":false", "violations\":0", "not_recoverable\":0", "errors\":0", "kills\":3"] {
                assert!(line.contains(&format!("\"{part},")), "{scheme}, {hold_ns} ns: {line}");
            }
            deaths += usize::from(!line.contains("\"owner_deaths\":0,"));
        }
    }
    let robust = CALLS.iter().position(|(name, _)| *name == "robust mutex").expect("it is counted");
    // Those that were killed have got it too, and each survivor of a round has said so often.
    let gets = named.instance.tables().calls()[robust];
    let expected = SCHEMES.len() * HOLDS_NS.len() * ROUNDS * 3 * GETS;
    assert!(gets >= expected as u64, "{gets} of {expected} gets or more were ours");
    assert!(deaths > 0, "some were killed in the critical section");
}
