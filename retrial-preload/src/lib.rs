//! The pthread interposer of retrial: puts the library's mutexes and waiting under programs that know nothing
//! of it.
//!
//! `LD_PRELOAD=libretrial_preload.so PROGRAM`, or `retrial run -- PROGRAM`, which makes the instance as well.
//! What the environment says:
//!
//! | variable           | meaning                                                                                  |
//! |--------------------|------------------------------------------------------------------------------------------|
//! | `RETRIAL_INSTANCE` | the instance to take part in, by name or path; without it, one of the process's own      |
//! | `RETRIAL_SCHEME`   | the wait scheme of the process's own instance                                            |
//! | `RETRIAL_PRELOAD`  | `off`: every call goes to libc                                                           |
//! | `RETRIAL_EXCLUDE`  | programs by name, in which it is off: `gdb,python3*`; by file name or as they were started  |
//! | `RETRIAL_PROFILE`  | the directory in which `retrial run --profile` waits for samples                         |
//!
//! Every call decides from the object alone whether this library handles it: the state is in the object's own
//! bytes, and its kind is where libc keeps it.
//!
//! | object                                   | state                | a get that misses waits          |
//! |------------------------------------------|----------------------|----------------------------------|
//! | mutex, private, not robust; `mtx_t`      | our record           | by the scheme                    |
//! | mutex, process-shared or robust          | libc's               | by the scheme, parked in libc    |
//! | mutex, inheriting or protecting          | libc's               | in libc, counted as fallen back  |
//! | condition, private; `cnd_t`              | ours                 | on a futex                       |
//! | condition, shared, mutex of libc's format| libc's               | in libc, counted as fallen back  |
//! | condition, shared, mutex of our format   | none                 | by polling, at most 5 ms         |
//! | rwlock, spin lock                        | libc's               | by the scheme, parked in libc    |
//! | semaphore, barrier                       | libc's               | in libc, timed as an event       |
//!
//! On the path of a lock nothing is allocated, printed or looked up by name. `dlopen` loses the flag
//! `RTLD_DEEPBIND`, with which a library would find libc's calls. Not caught is a program that asks for
//! libc's by `dlvsym`, or loads another libc by `dlmopen`: what mutexes such calls share with the program's
//! exclude, but conditions and owners are not known to both. `ThreadSanitizer` does so; where it, or anybody,
//! takes the calls before us, all is left to libc.

mod c11;
mod caller;
mod condition;
mod constructor;
mod event;
pub mod exports;
pub mod filter;
mod foreign;
mod instance;
mod limit;
pub mod loading;
mod mutex;
mod private;
mod process;
mod profile;
mod program;
mod real;
mod registry;
mod rwlock;
mod sampling;
mod spin;
mod spots;
mod thread;
mod waiting;
