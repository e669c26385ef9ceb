//! One file per subcommand: parse, take the views, render.

pub mod advise;
pub mod alerts;
pub mod bench;
pub mod calibrate;
pub mod completions;
pub mod create;
pub mod demo;
pub mod doctor;
pub mod experiment;
pub mod export;
pub mod hold;
pub mod list;
pub mod man;
pub mod model;
pub mod peek;
pub mod poke;
pub mod ps;
pub mod recover;
pub mod rm;
pub mod run;
pub mod set;
pub mod show;
pub mod trace;
pub mod watch;
pub mod what_if;
pub mod who;
