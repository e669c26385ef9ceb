//! What an operator does: holds, kills, recovers, looks, sets, pokes.

#![allow(missing_docs)]

mod kit;
#[path = "../../retrial/tests/kit/not_tested.rs"]
mod not_tested;

use kit::directory::Directory;
use kit::{Running, Scratch, both, command, until};
use not_tested::not_tested;
use retrial::engine::RawMutex;
use retrial::views::{Sid, Word};
use retrial::{Class, CodeLocation};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Starts a holder of `m` in a mode and kills it while it holds.
fn killed(scratch: &Scratch, mode: &str) -> u32 {
    let place = format!("place {mode}");
    let holder = scratch.hold(&["m", "--create", "--mode", mode, "--location", &place]);
    let pid = holder.pid();
    assert_eq!(holder.signal(libc::SIGKILL).0, None);
    pid
}

fn get(scratch: &Scratch, arguments: &[&str]) -> Value {
    let rows = scratch.rows(&[&["hold", "m", "--for", "0s", "--wait", "60s"], arguments].concat());
    assert_eq!(rows.len(), 1);
    rows[0].clone()
}

#[test]
fn a_killed_holder_of_x_lx_or_e_is_replaced_and_the_next_is_told() {
    for mode in ["X", "LX", "E"] {
        for next in ["S", "X", "LX", "E"] {
            let scratch = Scratch::new();
            let pid = killed(&scratch, mode);
            let rows = scratch.rows(&["ps"]);
            assert_eq!(rows.len(), 1, "{rows:?}");
            assert_eq!((&rows[0]["state"], &rows[0]["pid"]), (&"DEAD".into(), &pid.into()));
            assert_eq!(rows[0]["holds"], format!("m {mode}"));
            let got = get(&scratch, &["--mode", next]);
            assert_eq!(got["owner_died"], true, "{mode} then {next}: {got}");
            assert_eq!(got["dead_mode"], mode);
            assert_eq!(got["dead_location"], format!("place {mode}"));
            assert_eq!(got["dead_sid"], 1);
            // Poisoned until somebody says that the data are fine.
            assert_eq!(scratch.word("m"), Word::FREE.with(Word::POISONED));
            assert_eq!(get(&scratch, &["--mode", next])["owner_died"], true);
            assert_eq!(get(&scratch, &["--mode", "X", "--consistent"])["consistent"], true);
            assert_eq!(get(&scratch, &["--mode", next])["owner_died"], false);
            assert_eq!(scratch.word("m"), Word::FREE);
            assert!(scratch.rows(&["ps"]).is_empty());
        }
    }
}

#[test]
fn a_waiter_is_told_of_the_holder_that_dies_while_it_waits() {
    for scheme in retrial::wait::NAMES {
        let scratch = Scratch::new();
        scratch.run(&["set", &format!("mutex_wait_scheme={scheme}")]);
        let holder = scratch.hold(&["m", "--create", "--mode", "LX", "--location", "here"]);
        let mut waiter = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
        waiter.until("Session 2 waits");
        until("the wait", || scratch.rows(&["ps"]).iter().any(|row| row["state"] == "waiting"));
        holder.signal(libc::SIGKILL);
        waiter.until("Session 2 holds m in X");
        let told = waiter.until("Owner died");
        assert!(told.contains("session 1 held m in LX, got at here"), "{scheme}: {told}");
        assert_eq!(waiter.end().0, Some(0));
    }
}

#[test]
fn a_killed_reader_is_silent_and_its_reference_alone_is_dropped() {
    let scratch = Scratch::new();
    let reader = scratch.hold(&["m", "--create", "--mode", "S"]);
    killed(&scratch, "S");
    assert_eq!(scratch.word("m").references(), 2);
    let rows = scratch.rows(&["recover"]);
    assert_eq!((rows.len(), &rows[0]["sid"], &rows[0]["given_back"]), (1, &2.into(), &1.into()), "{rows:?}");
    assert_eq!(scratch.word("m").references(), 1);
    // The living reader still keeps X out.
    let busy = scratch.fail(&["hold", "m", "--mode", "X", "--wait", "0s"]);
    assert!(busy.contains("S by 1") && busy.contains("session 1 S"), "{busy}");
    reader.die_of(libc::SIGINT);
    let got = get(&scratch, &["--mode", "X"]);
    assert_eq!(got["owner_died"], false);
    assert_eq!(scratch.word("m"), Word::FREE);
}

#[test]
fn a_waiter_for_x_outlives_dead_readers() {
    let scratch = Scratch::new();
    killed(&scratch, "S");
    killed(&scratch, "S");
    // The second took the first one's slot or its own: either way nothing is left over.
    let got = get(&scratch, &["--mode", "X"]);
    assert_eq!(got["owner_died"], false);
    assert_eq!(scratch.word("m"), Word::FREE);
}

#[test]
fn recover_gives_back_without_a_waiter_and_clear_poison_ends_it() {
    for mode in ["X", "LX", "E"] {
        let scratch = Scratch::new();
        killed(&scratch, mode);
        let text = scratch.run(&["recover", "--session", "1"]);
        assert!(text.contains("recovered") && text.contains("--clear-poison m"), "{text}");
        assert!(scratch.rows(&["ps"]).is_empty());
        let row = &scratch.rows(&["show", "mutexes", "m"])[0];
        assert_eq!((&row["poisoned"], &row["word"]), (&true.into(), &"free, poisoned".into()));
        assert_eq!(row["last_death"], format!("session 1 in {mode} at place {mode}"));
        let row = &scratch.rows(&["recover", "--clear-poison", "m"])[0];
        assert_eq!((&row["was_poisoned"], &row["dead_mode"]), (&true.into(), &mode.into()));
        assert_eq!(scratch.word("m"), Word::FREE);
        assert!(scratch.run(&["recover", "--clear-poison", "m"]).contains("was not poisoned"));
        assert!(scratch.run(&["recover"]).contains("No dead sessions"));
        assert!(scratch.run(&["alerts"]).contains(&format!("held m in {mode} from place {mode}")));
    }
}

#[test]
fn a_living_session_is_not_recovered() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create"]);
    let error = scratch.fail(&["recover", "--session", "1"]);
    assert!(error.contains("session 1 lives") && error.contains("expected the SID of a dead one"), "{error}");
    let error = scratch.fail(&["recover", "--session", "7"]);
    assert!(error.contains("no session 7"), "{error}");
    assert_eq!(scratch.word("m").sid(), Sid::new(1));
    drop(holder);
}

#[test]
fn ctrl_c_ends_a_hold_and_a_wait_and_leaves_nothing() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create", "--mode", "S"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "X"]);
    waiter.until("Session 2 waits");
    let said = waiter.die_of(libc::SIGINT);
    assert!(said.contains("given up"), "{said}");
    assert_eq!(scratch.rows(&["ps"]).len(), 1);
    let said = holder.die_of(libc::SIGINT);
    assert!(said.contains("released m"), "{said}");
    assert!(scratch.rows(&["ps"]).is_empty());
    assert_eq!(scratch.word("m"), Word::FREE);
}

#[test]
fn ps_says_who_waits_for_whom() {
    let scratch = Scratch::new();
    let _holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "S"]);
    waiter.until("Session 2 waits");
    until("the wait", || scratch.rows(&["ps"])[1]["state"] == "waiting");
    let rows = scratch.rows(&["ps"]);
    assert_eq!((&rows[0]["sid"], &rows[0]["holds"], &rows[0]["state"]), (&1.into(), &"m X".into(), &"running".into()));
    assert_eq!((&rows[1]["sid"], &rows[1]["holds"]), (&2.into(), &"".into()));
    assert_eq!(rows[1]["waits_for"], "cursor: pin S wait on X");
    assert_eq!((&rows[1]["mutex"], &rows[1]["held_by"]), (&"m".into(), &"1 X".into()));
    assert_eq!((&rows[1]["name"], &rows[1]["action"]), (&"hold".into(), &"S m".into()));
    assert!(rows[1]["waited_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_trace_prints_runs_and_says_what_it_waits_for() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=1"]);
    let holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let trace = scratch.start(&["trace", "--until-idle", "--session", "2", "--mutex", "m"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "S", "--for", "0s"]);
    waiter.until("Session 2 waits");
    let observer = scratch.observer();
    until("sleeps", || observer.tables().event(Sid::new(2), 3).is_some_and(|run| run.count > 9));
    holder.signal(libc::SIGTERM);
    waiter.end();
    let (code, text) = trace.end();
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "session 2 waits for cursor: pin S wait on X on \"m\" held by session 1, at retrial hold");
    assert_eq!(lines[1], "  yield()");
    assert!(lines[2].starts_with("  sleep timeout=1 ms, actual ") && lines[2].contains(" call repeated "), "{text}");
    assert!(lines[3].starts_with("  got S after ") && lines.len() == 4, "{text}");
}

#[test]
fn commands_that_look_on_end_when_the_instance_has_gone() {
    let scratch = Scratch::new();
    let lookers = [scratch.start(&["trace"]), scratch.start(&["alerts", "--follow"])];
    let maps = |looker: &Running| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", looker.pid()));
        maps.is_ok_and(|maps| maps.contains(&scratch.name))
    };
    until("they look", || lookers.iter().all(maps));
    assert!(command(&["rm", &scratch.name]).status().unwrap().success());
    for looker in lookers {
        let (code, text) = looker.end();
        assert!(code == Some(0) && text.ends_with(" has gone.\n"), "{code:?} {text}");
    }
}

#[test]
fn an_instance_is_found_by_a_process_that_takes_part() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create"]);
    let pid = holder.pid().to_string();
    let beside = Running::new(std::process::Command::new("sleep").arg("300"));
    let none = beside.pid().to_string();
    for arguments in [["show", "mutexes"].as_slice(), &["ps"], &["alerts"]] {
        let by_pid = |pid: &str| command(&[arguments, &["-p", pid]].concat()).output().unwrap();
        let found = by_pid(&pid);
        assert!(found.status.success(), "{arguments:?}: {}", both(&found));
        assert!(kit::failed(&by_pid(&none)).contains(&format!("process {none} takes part in no instance")));
    }
}

#[test]
fn a_trace_ends_with_the_run_that_is_open() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=10g"]);
    let _holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "X"]);
    waiter.until("Session 2 waits");
    until("yields", || scratch.observer().tables().event(Sid::new(2), 2).is_some());
    let text = scratch.run(&["trace", "--for", "50ms", "--json"]);
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["began", "yield"], "{text}");
    // A waiter that dies ends its wait.
    let mut trace = scratch.start(&["trace", "--until-idle"]);
    trace.until("session 2 waits for cursor: pin X");
    waiter.signal(libc::SIGKILL);
    trace.until("died while it waited");
    assert_eq!(trace.end().0, Some(0));
}

#[test]
fn a_trace_does_not_take_the_slots_next_session_for_the_one_that_died() {
    let scratch = Scratch::new();
    scratch.run(&["set", "mutex_wait_scheme=1"]);
    let _holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let mut trace = scratch.start(&["trace"]);
    let waiter = scratch.start(&["hold", "m", "--mode", "X"]);
    trace.until("session 2 waits for cursor: pin X");
    // It does not look while another session comes.
    let pid = trace.pid().cast_signed();
    // SAFETY: a child of our own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    waiter.signal(libc::SIGKILL);
    let _next = scratch.start(&["hold", "m", "--mode", "S"]);
    let session = || scratch.observer().tables().session_info(Sid::new(2)).filter(|session| !session.dead);
    until("the next one waits", || session().is_some_and(|session| session.last_run > session.first_run));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    let mut text = String::new();
    while !text.contains("session 2 waits for cursor: pin S wait on X") {
        text += &trace.line();
    }
    assert!(text.contains("died while it waited"), "{text}");
}

#[test]
fn the_type_in_use_under_adaptive_is_shown() {
    let scratch = Scratch::new();
    scratch.run(&["set", "--type", "Cursor Pin", "mutex_wait_scheme=adaptive"]);
    let holder = scratch.hold(&["m", "--create"]);
    assert_eq!(scratch.rows(&["show", "mutexes"])[0]["scheme"], "ADAPTIVE (YDB)");
    // A threshold of nothing, a check at every get: one queued session switches it.
    scratch.run(&[
        "set",
        "adaptive_check_every=1",
        "adaptive_ydb_threshold=0",
        "adaptive_streak=1",
        "adaptive_pthread_threshold=0",
        // Several sleeps in each 10 ms, which count as a check too.
        "queue_timeout=1",
    ]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "X", "--for", "0s"]);
    waiter.until("Session 2 waits");
    until("a park", || scratch.rows(&["show", "mutexes"])[0]["sleeps"].as_u64().unwrap() > 128);
    holder.signal(libc::SIGTERM);
    waiter.end();
    assert_eq!(scratch.rows(&["show", "mutexes"])[0]["scheme"], "ADAPTIVE (PTHREAD)");
}

#[test]
fn of_two_creators_one_wins_and_the_other_is_told() {
    for _ in 0..20 {
        let scratch = Scratch::unborn();
        let mut both_at_once: Vec<Running> =
            (0..2).map(|_| Running::new(&mut command(&["create", &scratch.name]))).collect();
        let mut codes: Vec<_> = both_at_once.drain(..).map(|creator| creator.end().0.unwrap()).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 2]);
        let error = kit::failed(&command(&["create", &scratch.name]).output().unwrap());
        assert!(
            error.contains("exists") && error.contains("expected a new name") && error.contains("help:"),
            "{error}"
        );
        assert!(scratch.rows(&["ps"]).is_empty());
    }
}

#[test]
fn a_poked_mutex_is_busy_as_the_source_has_it() {
    let scratch = Scratch::new();
    scratch.run(&["hold", "m", "--create", "--mode", "X", "--for", "0s"]);
    let refused = scratch.fail(&["poke", "m", "0x0000000100000001"]);
    assert!(refused.contains("no terminal") && refused.contains("--yes"), "{refused}");
    assert_eq!(scratch.word("m"), Word::FREE);
    let rows = scratch.rows(&["poke", "m", "0x0000000100000001", "--yes"]);
    assert_eq!((&rows[0]["when"], &rows[0]["value"]), (&"BEFORE".into(), &"0x0000000000000000".into()));
    assert_eq!((&rows[1]["when"], &rows[1]["value"]), (&"AFTER".into(), &"0x0000000100000001".into()));
    let peeked = scratch.rows(&["peek", "m"]);
    assert_eq!((peeked.len(), &peeked[0]["value"]), (5, &"0x0000000100000001".into()));
    assert_eq!((&peeked[0]["field"], &peeked[0]["meaning"]), (&"m: word".into(), &"sid 1 E, 1 references".into()));
    assert_eq!(peeked[3]["meaning"], "1");
    assert_eq!(peeked[1]["meaning"], "0 parked; 0 woken and on the way");
    assert_eq!(peeked[4]["meaning"], "nobody has drained it; 0 wake-ups");
    // By address it is the same word.
    let address = peeked[0]["address"].as_str().unwrap();
    assert_eq!(scratch.rows(&["peek", address])[0]["value"], "0x0000000100000001");
    let busy = scratch.fail(&["hold", "m", "--mode", "S", "--wait", "20ms"]);
    assert!(busy.contains("sid 1 E, 1 references"), "{busy}");
    scratch.run(&["poke", address, "0", "-y"]);
    assert_eq!(get(&scratch, &["--mode", "X"])["owner_died"], false);
}

#[test]
fn set_prints_old_and_new_with_the_unit_in_force() {
    let scratch = Scratch::new();
    let rows = scratch.rows(&["set", "mutex_wait_time=30cs", "mutex_wait_scheme=2"]);
    assert_eq!((&rows[0]["old"], &rows[0]["new"]), (&"orbit".into(), &"backoff".into()));
    assert_eq!((&rows[1]["old"], &rows[1]["new"], &rows[1]["unit"]), (&"1".into(), &"30".into(), &"cs".into()));
    let text = scratch.run(&["set", "mutex_wait_scheme=1"]);
    assert!(text.contains("mutex_wait_time is 30 ms in scheme 1 (sleep)"), "{text}");
    scratch.run(&["set", "--type", "Library Cache", "mutex_wait_scheme=backoff"]);
    let units = |arguments: &[&str]| scratch.rows(&[&["show", "params", "mutex_wait_time"], arguments].concat());
    assert_eq!((&units(&[])[0]["unit"], &units(&[])[0]["set_for"]), (&"ms".into(), &"instance".into()));
    assert_eq!(units(&["--type", "Library Cache"])[0]["unit"], "cs");
    let text = scratch.run(&["show", "params", "mutex_wait_time", "--type", "Library Cache"]);
    assert!(text.contains("scheme in force for type Library Cache is backoff, its value is in cs"), "{text}");
    let rows = scratch.rows(&["show", "params", "mutex_wait_scheme"]);
    let set_for: Vec<_> = rows.iter().map(|row| row["set_for"].as_str().unwrap()).collect();
    assert_eq!(set_for, ["instance", "type Library Cache"]);
    let text = scratch.run(&["set", "mutex_wait_scheme=0"]);
    assert!(text.contains("type Library Cache has its own mutex_wait_scheme: backoff"), "{text}");
    scratch.run(&["set", "--type", "Library Cache", "--unset", "mutex_wait_scheme"]);
    assert_eq!(scratch.rows(&["show", "params", "mutex_wait_scheme"]).len(), 1);
    scratch.run(&["set", "--unset", "mutex_wait_scheme", "--unset", "mutex_wait_time"]);
    assert!(scratch.rows(&["show", "params"]).iter().all(|row| row["value"] == row["default"]));
}

#[test]
fn every_view_is_text_json_and_csv() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create", "--mode", "X"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "S"]);
    waiter.until("Session 2 waits");
    until("a step", || scratch.rows(&["show", "sleeps"]).len() == 1);
    holder.signal(libc::SIGTERM);
    waiter.until(" holds ");
    for view in ["instance", "params", "mutexes", "types", "locations", "events", "sleeps", "history", "machine"] {
        let rows = scratch.rows(&["show", view]);
        assert!(!rows.is_empty(), "{view}");
        let csv = scratch.run(&["show", view, "--csv"]);
        let columns: Vec<_> = rows[0].as_object().unwrap().keys().cloned().collect();
        assert_eq!(csv.lines().next().unwrap(), columns.join(","), "{view}");
        assert_eq!(csv.lines().count(), rows.len() + 1, "{view}");
        assert!(!scratch.run(&["show", view]).is_empty());
    }
    let text = scratch.run(&["show", "sleeps"]);
    assert!(text.starts_with("Mutex Type") && text.contains("Wait Time (ms)") && text.contains("Cursor Pin"), "{text}");
    let event = &scratch.rows(&["show", "events"])[0];
    assert_eq!((&event["event"], &event["waits"]), (&"cursor: pin S wait on X".into(), &1.into()));
    let parts = ["spin_pct", "yield_pct", "slept_pct", "over_pct"].map(|part| event[part].as_f64().unwrap());
    assert!((parts.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{event}");
    let past = &scratch.rows(&["show", "history"])[0];
    assert_eq!((&past["requesting_session"], &past["blocking_session"]), (&2.into(), &1.into()));
    assert_eq!(both(&command(&["list", "--json"]).output().unwrap()).matches(&scratch.name).count(), 1);
}

#[test]
fn what_calibrate_measures_is_kept_and_given_to_later_instances() {
    let directory = Directory::new();
    let home = directory.join("home");
    let with = |arguments: &[&str]| command(arguments).env("XDG_CACHE_HOME", &home).output().unwrap();
    let cost = |scratch: &Scratch, name: &str| {
        let rows = scratch.rows(&["show", "machine"]);
        rows.iter().find(|row| row["name"] == name).unwrap()["value"].clone()
    };
    let before = Scratch::new();
    assert_eq!(cost(&before, "sleep_1ms"), Value::Null);
    assert!(before.run(&["show", "machine"]).contains(&format!("Next: retrial calibrate -i {}", before.name)));
    let output = with(&["calibrate", "-i", &before.name, "--json"]);
    assert!(output.status.success(), "{}", both(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), retrial::views::COSTS);
    for row in &rows {
        assert_eq!(row["value"], cost(&before, row["name"].as_str().unwrap()));
    }
    // A sleep takes what was asked for, at the least.
    assert!(cost(&before, "sleep_1ms").as_u64() >= Some(1_000_000));
    let after = Scratch::unborn();
    assert!(with(&["create", &after.name, "--sessions", "4"]).status.success());
    assert_eq!(cost(&after, "sleep_1ms"), cost(&before, "sleep_1ms"));
    // Also where only some of the processors may be used.
    let (all, one) = kit::processors();
    let bound = Scratch::unborn();
    kit::run_on(&one);
    assert!(with(&["create", &bound.name, "--sessions", "4"]).status.success());
    kit::run_on(&all);
    assert_eq!(cost(&bound, "sleep_1ms"), cost(&before, "sleep_1ms"));
    // Of another machine, or damaged: as if there were none.
    let file = home.join("retrial").join("machine");
    let text = std::fs::read_to_string(&file).unwrap();
    for bad in [text.replacen("Linux", "Linus", 1), text.replacen("poll", "pool", 1), String::new()] {
        assert_ne!(bad, text);
        std::fs::write(&file, bad).unwrap();
        let other = Scratch::unborn();
        assert!(with(&["create", &other.name, "--sessions", "4"]).status.success());
        assert_eq!(cost(&other, "sleep_1ms"), Value::Null);
    }
    // Nothing is measured for an instance that is not there, and nothing is lost when it cannot be kept.
    assert!(kit::failed(&with(&["calibrate", "-i", "no-such-instance"])).contains("retrial create no-such-instance"));
    std::fs::remove_dir_all(&home).unwrap();
    std::fs::write(&home, "a file").unwrap();
    let said = kit::failed(&with(&["calibrate"]));
    assert!(said.contains("cannot write") && said.contains("XDG_CACHE_HOME"), "{said}");
    assert_eq!(std::fs::read_to_string(&home).unwrap(), "a file");
}

#[test]
fn a_long_wait_is_written_to_the_alert_log() {
    let scratch = Scratch::new();
    scratch.run(&["set", "alert_threshold=1", "mutex_wait_scheme=1"]);
    let _holder = scratch.hold(&["m", "--create"]);
    let mut follow = scratch.start(&["alerts", "--follow"]);
    let mut waiter = scratch.start(&["hold", "m", "--mode", "X"]);
    waiter.until("Session 2 waits");
    let alert = follow.until("session 2 has waited");
    assert!(alert.contains("for X in m at retrial hold; held by session 1"), "{alert}");
    let whereabouts = follow.until("session 1 has it in X from retrial hold; pid");
    assert!(whereabouts.contains("asleep") || whereabouts.contains("running"), "{whereabouts}");
    let rows = scratch.rows(&["alerts"]);
    assert_eq!((rows.len(), &rows[0]["number"]), (2, &1.into()));
    assert!(scratch.rows(&["alerts", "--after", "2"]).is_empty());
    follow.die_of(libc::SIGINT);
}

#[test]
fn an_instance_in_use_is_removed_by_force_only() {
    let scratch = Scratch::new();
    let holder = scratch.hold(&["m", "--create"]);
    let refused = kit::failed(&command(&["rm", &scratch.name]).output().unwrap());
    assert!(refused.contains("1 living session") && refused.contains("expected none") && refused.contains("--force"));
    assert!(scratch.path().exists());
    assert!(command(&["rm", &scratch.name, "--force"]).output().unwrap().status.success());
    assert!(!scratch.path().exists());
    // Who was in it goes on.
    holder.die_of(libc::SIGINT);
}

/// What [`an_instance_is_removed_whose_killed_thread_had_more_sessions_than_the_kernel_marks`] kills.
#[test]
#[ignore = "a process to be killed"]
fn takes_sessions() {
    let Ok(name) = std::env::var("RETRIAL_TEST_TAKES_SESSIONS") else { return };
    let instance = retrial::Instance::attach(&retrial::Address::new(&name).unwrap()).unwrap();
    let _sessions: Vec<_> = (0..2100).map(|_| instance.session("many", retrial::Class::Normal).unwrap()).collect();
    println!("\nready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn an_instance_is_removed_whose_killed_thread_had_more_sessions_than_the_kernel_marks() {
    let scratch = Scratch::with(&["--sessions", "2200", "--mutexes", "8", "--rows", "1"]);
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "takes_sessions", "--ignored", "--nocapture"])
        .env("RETRIAL_TEST_TAKES_SESSIONS", &scratch.name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"));
    let refused = kit::failed(&command(&["rm", &scratch.name]).output().unwrap());
    assert!(refused.contains("2100 living sessions"), "{refused}");
    process.kill().unwrap();
    process.wait().unwrap();
    let output = command(&["rm", &scratch.name]).output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
}

/// Names as another user may choose them: a title for the terminal, a colour, a change of direction, a line of its own.
const HOSTILE: &str = "\x1b]0;x\x07\u{9b}31m\u{202e}";

fn assert_shown(output: &std::process::Output, arguments: &[&str]) {
    let text = both(output);
    let obeyed = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    assert!(!text.contains(obeyed), "{arguments:?}: {text:?}");
    assert!(text.contains("\\u001b]0;x"), "{arguments:?} does not show the name: {text}");
}

#[test]
fn names_that_a_terminal_would_obey_are_shown() {
    let scratch = Scratch::new();
    let instance = scratch.instance();
    let session = instance.session(HOSTILE, retrial::Class::Normal).unwrap();
    session.set_action(HOSTILE);
    let mutex = instance.mutex(HOSTILE, HOSTILE, || 0u64).unwrap();
    instance.register_location(HOSTILE).unwrap();
    let guard = mutex.exclusive(&session, retrial::location!("here")).unwrap();
    // A wait that fails: a row of figures, of the history and of the steps.
    let waiter = instance.session(HOSTILE, retrial::Class::Normal).unwrap();
    let soon = retrial::Patience::Until(retrial::sys::Deadline::after(std::time::Duration::from_millis(2)));
    assert!(mutex.get(&waiter, retrial::Mode::Exclusive, retrial::location!("there"), soon).is_err());
    instance.alert(HOSTILE);
    for format in [&[][..], &["--json"], &["--csv"]] {
        let views = ["mutexes", "types", "locations", "events", "sleeps", "history"].map(|view| vec!["show", view]);
        for command in [vec!["ps"], vec!["alerts"]].into_iter().chain(views) {
            let arguments = [&command[..], format].concat();
            let output = scratch.output(&arguments);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", both(&output));
            assert_shown(&output, &arguments);
        }
    }
    assert_shown(&scratch.output(&["export", "--once"]), &["export", "--once"]);
    // JSON says what is there all the same.
    assert_eq!(scratch.rows(&["ps"])[0]["name"], HOSTILE);
    // Errors quote names: the one that was typed, and those that there are.
    for arguments in [&["hold", HOSTILE, "--for", "0s", "--wait", "1ms"][..], &["show", "sleeps", "--type", "none"]] {
        let output = scratch.output(arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert_shown(&output, arguments);
    }
    drop(guard);
}

#[test]
fn an_end_of_a_line_in_a_name_ends_no_line() {
    const TWO_LINES: &str = "one\nTWO";
    let scratch = Scratch::new();
    let instance = scratch.instance();
    let session = instance.session(TWO_LINES, retrial::Class::Normal).unwrap();
    session.set_action(TWO_LINES);
    let mutex = instance.mutex(TWO_LINES, "test", || 0u64).unwrap();
    let guard = mutex.exclusive(&session, retrial::location!("one\nTWO")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = instance.session("waiter", retrial::Class::Normal).unwrap();
            drop(mutex.exclusive(&session, retrial::location!("one\nTWO")).unwrap());
        });
        until("the wait", || scratch.observer().tables().waits().next().is_some());
        for arguments in
            [&["who"][..], &["who", "--mutex", "#1"], &["trace", "--for", "300ms"], &["report", "--for", "300ms"]]
        {
            let text = scratch.run(arguments);
            assert!(text.contains("one\\u000aTWO"), "{arguments:?}: {text}");
            assert!(text.lines().all(|line| !line.starts_with("TWO")), "{arguments:?}: {text}");
        }
        drop(guard);
    });
}

#[test]
fn what_the_text_says_is_in_the_json_too() {
    let scratch = Scratch::new();
    scratch.run(&["hold", "m", "--create", "--for", "0s"]);
    for (arguments, keys) in [
        (&["report", "--for", "100ms", "--json"][..], &["pressure_pct", "stolen_pct", "threads_ready"][..]),
        (&["top", "--once", "--every", "100ms", "--json"], &["threads_ready", "alerts"]),
    ] {
        let told: serde_json::Value = serde_json::from_str(&scratch.run(arguments)).unwrap();
        assert!(keys.iter().all(|key| told.get(key).is_some()), "{arguments:?}: {told}");
    }
    let nobody = scratch.rows(&["who", "--mutex", "m"]);
    assert_eq!((nobody.len(), &nobody[0]["sid"]), (1, &serde_json::Value::Null));
    assert_eq!(nobody[0]["holds"][0]["object"]["name"], "m", "{nobody:?}");
}

#[test]
fn a_signal_ends_every_command_that_goes_on_and_is_what_it_dies_of() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let scratch = Scratch::new();
        let holder = scratch.hold(&["m", "--create", "--mode", "X"]);
        let mut trace = scratch.start(&["trace"]);
        let mut waiter = scratch.start(&["hold", "m", "--mode", "X"]);
        waiter.until("Session 2 waits");
        trace.until("session 2 waits");
        scratch.run(&["set", "alert_threshold=1"]);
        let mut alerts = scratch.start(&["alerts", "--follow"]);
        alerts.until("session 2 has waited");
        for command in [trace, alerts, waiter, holder] {
            command.die_of(signal);
        }
        assert!(scratch.rows(&["ps"]).is_empty(), "what they held is given back");
    }
}

#[test]
fn several_instances_are_removed_by_one_command_and_all_failures_are_said() {
    let scratches = [Scratch::new(), Scratch::new()];
    let missing = Scratch::unborn();
    let names = [&*scratches[0].name, &missing.name, &scratches[1].name];
    let output = command(&[&["rm"], &names[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(both(&output).contains("no instance"), "{}", both(&output));
    assert!(scratches.iter().all(|scratch| !scratch.path().exists()));
}

#[test]
fn what_runs_have_left_is_removed_and_nothing_else() {
    // As `retrial run` creates it; its creator is gone, for that is another process.
    let left = Scratch::with(&["--sessions", "16", "--mutexes", "64", "--locations", "64", "--arena", "0"]);
    let with_data = Scratch::new();
    let used = Scratch::with(&["--sessions", "16", "--mutexes", "64", "--locations", "64", "--arena", "0"]);
    let instance = used.instance();
    let _session = instance.session("lives", retrial::Class::Normal).unwrap();
    // Of these only: others run their tests on this machine, too.
    let output = command(&["rm", "--dead", &left.name, &with_data.name, &used.name]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(both(&output).contains(&format!("Removed {}", left.name)), "{}", both(&output));
    assert_eq!((left.path().exists(), with_data.path().exists(), used.path().exists()), (false, true, true));
}

#[test]
fn a_mutex_in_a_programs_own_memory_is_shown_as_it_is() {
    static EMBEDDED: RawMutex = RawMutex::new();
    let scratch = Scratch::new();
    let instance = scratch.instance();
    // SAFETY: sessions of this instance alone get it, and it is registered once.
    unsafe { EMBEDDED.register(&instance, retrial::views::TypeId(7), "embedded") }.unwrap();
    let session = instance.session("holder", Class::Normal).unwrap();
    // SAFETY: as above.
    let _held = unsafe { EMBEDDED.exclusive(&session, &CodeLocation::new("here")) }.unwrap();
    let output = scratch.output(&["show", "mutexes", "--json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    if rows[0]["word"] == "" {
        return not_tested("this user may not read other processes' memory");
    }
    assert_eq!(
        (&rows[0]["name"], &rows[0]["word"], &rows[0]["gets"]),
        (&"embedded".into(), &"sid 1 X".into(), &1.into())
    );
    assert_eq!(scratch.rows(&["ps"])[0]["holds"], "embedded X");
    let text = scratch.run(&["show", "mutexes"]);
    assert!(!text.contains("peek"), "its words are not in the instance: {text}");
}
