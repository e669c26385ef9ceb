//! What a run's figures do not have, and what to type next.

use super::outcome::{Calls, Outcome};
use crate::output::{counted, quoted};
use crate::predict::rules::SATURATED;
use retrial::views::{Counter, Tables};
use retrial_model::Measure;
use std::fs;
use std::path::Path;

/// What the instance knows of threads that are in no figure.
#[derive(Debug)]
pub struct Unseen {
    /// Threads that found no room for a session, and how many sessions there was room for, if that was why.
    pub threads: u32,
    pub full_at: Option<u32>,
    /// Processes that the program left behind, and the sessions that live on.
    pub processes: Vec<u32>,
    pub living: usize,
}

impl Unseen {
    pub fn of(tables: &Tables) -> Self {
        Self {
            threads: tables.threads_without_session(),
            full_at: Some(tables.capacity().sessions).filter(|room| tables.sids().count() >= *room as usize),
            processes: tables.address().map(|address| processes(address.path())).unwrap_or_default(),
            living: tables.sessions().iter().filter(|session| !session.dead).count(),
        }
    }
}

/// Other processes that have a file mapped and may be looked at.
fn processes(file: &Path) -> Vec<u32> {
    let file = file.to_string_lossy();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        *pid != std::process::id() && maps.lines().any(|line| line.ends_with(&*file))
    };
    numbers.filter(has_it).collect()
}

impl Outcome {
    /// Calls of mutexes whose holder gets its waiters' priority, or one of its own: all of them are libc's.
    pub fn unseen_calls(&self) -> u64 {
        let of = |calls: &&Calls| matches!(calls.kind, "inheriting mutex" | "protecting mutex");
        self.calls.iter().filter(of).map(|calls| calls.fallback).sum()
    }

    /// What waited and is in no figure.
    pub(super) fn not_seen(&self) -> impl Iterator<Item = String> {
        let threads = (self.unseen.threads > 0).then(|| {
            let had = counted(self.unseen.threads.into(), "thread", "threads");
            match self.unseen.full_at {
                Some(room) => format!(
                    "{had} had no session: the instance has room for {}. Their waits are not in these figures; \
                     type --sessions {}",
                    counted(room.into(), "thread at a time", "threads at a time"),
                    self.sessions_wanted(room),
                ),
                None => format!(
                    "{had} had no session: shared memory is full. Their waits are not in these figures; see df /dev/shm"
                ),
            }
        });
        let calls = self.unseen_calls();
        let calls = (calls > 0).then(|| {
            let calls = counted(calls, "call", "calls");
            format!(
                "{calls} of mutexes with priority inheritance or a ceiling are left to libc (fallback): waits for these \
                 are not seen"
            )
        });
        threads.into_iter().chain(calls)
    }

    /// What goes on after the program's end.
    pub(super) fn left_behind(&self) -> Option<String> {
        let Unseen { processes, living, .. } = &self.unseen;
        let pids = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let runs = match processes.as_slice() {
            [] if *living == 0 => return None,
            [] => "processes that the program left behind still run".to_owned(),
            [_] => format!("a process that the program left behind still runs (pid {pids})"),
            _ => format!("processes that the program left behind still run (pids {pids})"),
        };
        let of = counted(*living as u64, "session", "sessions");
        Some(if self.kept {
            format!("{runs}, with {of}: see retrial ps --instance {}", quoted(&self.instance))
        } else {
            format!(
                "{runs}, with {of}: this report ends with the program; --keep keeps the instance, for retrial ps and show"
            )
        })
    }

    const fn sessions_wanted(&self, room: u32) -> u32 {
        room.saturating_add(self.unseen.threads)
    }

    pub(super) fn next(&self) -> String {
        if self.kept {
            return format!("retrial show --instance {0}; then retrial rm {0}", quoted(&self.instance));
        }
        if self.nothing.is_some() {
            return "retrial demo".to_owned();
        }
        if !self.deadlocks.is_empty() {
            // Another scheme waits in another way for what nobody gives back.
            let again = "retrial run --instance deadlock";
            return format!("{again} -- {}; while it hangs: retrial who -i deadlock", self.command);
        }
        if let Some(room) = self.unseen.full_at.filter(|_| self.unseen.threads > 0) {
            return format!("retrial run --sessions {} -- {}", self.sessions_wanted(room), self.command);
        }
        if self.unseen_calls() > 0 && self.total.figures.get(Counter::Waits) == 0 {
            return format!("{} & retrial attach $!", self.command);
        }
        if self.total.figures.get(Counter::Waits) == 0 {
            // A scheme begins after the first spin, and does not change how long an event takes to come.
            return format!("retrial run --profile -- {}", self.command);
        }
        // Where a lock is held nearly all the time, no other way to wait brings more gets.
        let utilization = self.mutexes.first().and_then(|used| Measure::Utilization.of(&used.profile));
        if self.profile.is_none() && utilization.is_some_and(|utilization| utilization >= SATURATED) {
            return format!("retrial run --profile -- {}", self.command);
        }
        let other = if self.scheme() == "pthread" { "orbit" } else { "pthread" };
        format!("retrial run --scheme {other} -- {}", self.command)
    }
}
