//! What of this machine bears on waits: a table of checks over what was found out about it.

pub mod checks;
pub mod machine;
