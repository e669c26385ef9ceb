//! Who can open, make and remove what: names, links, other people's files, permissions, observers.
//!
//! What takes another user is done in children that become one, and needs root; the kind of file that needs
//! root as well. Without it those tests say so on standard error and pass.

use retrial::layout::DIRECTORY;
use retrial::views::{Sid, TypeId};
use retrial::{
    Address, AttachError, Capacity, Class, CreateError, GetError, Instance, Mode, MutexId, Observer, P, Patience,
    SessionError, location,
};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Small, since files are compared byte by byte.
const CAPACITY: Capacity = Capacity { sessions: 8, mutexes: 16, locations: 16, rows: 4, arena: 4096 };

/// Users and a group that need not exist.
const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;
const GROUP: u32 = 54_399;

/// A directory with what a test makes in it.
struct Directory(PathBuf);

impl Directory {
    fn new(mode: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("retrial-security-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn address(&self, name: &str) -> Address {
        Address::new(self.path(name).to_str().unwrap()).unwrap()
    }

    /// A valid segment.
    fn segment(&self, name: &str, mode: u32) -> Address {
        let address = self.address(name);
        let instance = Instance::create(&address, CAPACITY, mode).unwrap();
        instance.mutex("m", "test", || 7u64).unwrap();
        address
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a test can become somebody else.
fn is_root(test: &str) -> bool {
    // SAFETY: the child asks and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes no memory.
        let rc = unsafe { libc::setresuid(ALICE, ALICE, ALICE) };
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(rc != 0)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        eprintln!("{test}: not tested, it takes root to become somebody else");
    }
    status == 0
}

fn chown(path: &Path, user: u32, group: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(group)).unwrap();
}

/// Runs `deed` in a child of fork, so that what it changes of its process is its own; its panic is ours.
fn apart(deed: impl FnOnce()) {
    // What the library does once in a process is not half done by another thread at the fork.
    drop(Instance::anonymous(CAPACITY).unwrap().session("", Class::Normal).unwrap());
    let (mut output, mut input) = std::io::pipe().unwrap();
    // SAFETY: the child does the deed and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = panic::catch_unwind(AssertUnwindSafe(deed));
        let text = |e: &(dyn std::any::Any + Send)| {
            e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(ToString::to_string))
        };
        let said = result.err().map_or("done".into(), |e| text(&*e).unwrap_or("panic".into()));
        let _ = input.write_all(said.as_bytes());
        // SAFETY: ends the child without what the harness would do at its end.
        unsafe { libc::_exit(0) };
    }
    drop(input);
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(said, "done", "in the child");
}

/// The same as another user, of these groups besides.
fn as_user(user: u32, groups: &[u32], deed: impl FnOnce()) {
    apart(|| {
        // SAFETY: readable in this length.
        assert_eq!(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }, 0);
        // SAFETY: takes no memory.
        assert_eq!(unsafe { libc::setresgid(user, user, user) }, 0);
        // SAFETY: takes no memory.
        assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
        deed();
    });
}

/// All that can be opened or removed at an address, each refused.
fn refusals(address: &Address) -> [(&'static str, AttachError); 3] {
    let [attach, remove] = refusals_to_change(address);
    [attach, ("observe", Observer::open(address).expect_err("observe")), remove]
}

/// To take part and to remove, each refused.
fn refusals_to_change(address: &Address) -> [(&'static str, AttachError); 2] {
    [
        ("attach", Instance::attach(address).expect_err("attach")),
        ("remove", retrial::remove(address).expect_err("remove")),
    ]
}

/// Neither does whatever is there give way to a new instance.
fn is_in_the_way(address: &Address) {
    let created = Instance::create(address, CAPACITY, 0o600);
    assert!(matches!(created, Err(CreateError::Exists(_))), "{created:?}");
    let either = Instance::create_or_attach(address, CAPACITY, 0o600);
    assert!(matches!(either, Err(CreateError::Attach(_))), "{either:?}");
}

// Part one: names.

/// What the documentation of names says, once more.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = |b: &u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    (1..=64).contains(&bytes.len()) && bytes.iter().all(plain) && !matches!(bytes[0], b'.' | b'-')
}

/// Whether a name is taken, and if it is, that it is a file of that name in the one directory.
fn is_taken(text: &str) -> bool {
    let Ok(address) = Address::new(text) else {
        assert_eq!(Address::new(text).unwrap_err().found, text);
        return false;
    };
    let path = address.path();
    assert_eq!(path.parent(), Some(Path::new(DIRECTORY)), "{text:?}");
    assert_eq!(path.file_name().unwrap().as_bytes(), format!("retrial.{text}").as_bytes());
    assert_eq!(path.components().filter(|c| matches!(c, Component::Normal(_))).count(), 3, "{text:?}");
    assert_eq!(address.to_string(), text);
    true
}

#[test]
fn a_name_is_a_file_in_one_directory_or_refused() {
    let mut cases = 0;
    // Every character there is, in every position of a short name.
    for c in ('\0'..=char::MAX).filter(|c| *c != '/') {
        let mut text = String::with_capacity(8);
        for (before, after) in [("", ""), ("", "b"), ("a", ""), ("a", "b")] {
            text.clear();
            text.extend([before, c.encode_utf8(&mut [0; 4]), after]);
            assert_eq!(is_taken(&text), is_name(&text), "{text:?}");
            cases += 1;
        }
    }
    for len in 0..=300 {
        for c in ['a', '.', '-', '_', 'é'] {
            let text: String = std::iter::repeat_n(c, len).collect();
            assert_eq!(is_taken(&text), is_name(&text), "{len} of {c}");
            let text = format!("a{text}");
            assert_eq!(is_taken(&text), is_name(&text), "{len} of {c}");
            cases += 2;
        }
    }
    assert_eq!(cases, 4 * (0x0011_0000 - 0x800 - 1) + 301 * 10);
    let hostile = [
        "",
        ".",
        "..",
        "...",
        "-",
        "-rf",
        "--help",
        ".hidden",
        ".retrial",
        " a",
        "a ",
        "a b",
        "a\0b",
        "a\nb",
        "a\tb",
        "a\x1b[2Jb",
        "a\x7fb",
        "a\\b",
        "a:b",
        "a*b",
        "a$b",
        "~",
        "~root",
        "a%2fb",
        "a\u{2215}b",
        "a\u{ff0f}b",
        "é",
        "a\u{202e}b",
        "a\u{feff}",
        "\u{0}",
    ];
    for text in hostile {
        assert!(!is_taken(text), "{text:?}");
    }
    assert!(is_taken(&"a".repeat(64)) && !is_taken(&"a".repeat(65)));
    // With a `/` it is a path, and the caller's own choice; but for NUL it is taken as it is.
    for path in ["a/b", "../a", "./a", "/a", "a/", "/", "/dev/shm/../a"] {
        assert_eq!(Address::new(path).unwrap().path(), Path::new(path));
    }
    assert!(Address::new("a/\0").is_err() && Address::new("/etc\0/a").is_err());
}

// Part two: what a name may be of.

#[test]
fn a_symbolic_link_is_neither_followed_nor_replaced_nor_removed() {
    let directory = Directory::new(0o700);
    directory.segment("segment", 0o600);
    fs::write(directory.path("text"), "root:x:0:0\n").unwrap();
    fs::create_dir(directory.path("directory")).unwrap();
    let targets = ["segment", "text", "directory", "nowhere", "link", "/dev/null", "../nowhere/deep"];
    let shm = Address::new(&format!("security-link-{}", std::process::id())).unwrap();
    let bytes = |target: &Path| if target.is_file() { fs::read(target).ok() } else { None };
    let mut cases = 0;
    for link in [directory.address("link"), shm] {
        for target in targets {
            let full = directory.path(target);
            let before = bytes(&full);
            symlink(&full, link.path()).unwrap();
            for (what, error) in refusals(&link) {
                let AttachError::FileKind { found: "symbolic link", path } = error else { panic!("{what}: {error}") };
                assert_eq!(path, link.path());
                cases += 1;
            }
            is_in_the_way(&link);
            assert_eq!(fs::read_link(link.path()).unwrap(), full, "the link is as it was");
            assert_eq!(bytes(&full), before, "{target}: byte for byte");
            assert_eq!(full.exists(), ["segment", "text", "directory", "/dev/null"].contains(&target));
            fs::remove_file(link.path()).unwrap();
        }
    }
    assert_eq!(cases, 42);
    assert!(Instance::attach(&directory.address("segment")).is_ok(), "what a link was to is still what it was");
}

/// A kind of file, how to make one, and what it is refused with.
type Make<'a> = (&'static str, Box<dyn Fn() -> bool + 'a>, fn(&AttachError) -> bool);

#[test]
fn what_is_no_segment_is_refused_as_what_it_is_and_stays() {
    let directory = Directory::new(0o700);
    let address = directory.address("it");
    let path = address.path();
    let text = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string with its 0.
    let mknod = |mode, device| unsafe { libc::mknod(text.as_ptr(), mode | 0o600, device) == 0 };
    let kinds: Vec<Make<'_>> = vec![
        ("FIFO", Box::new(|| mknod(libc::S_IFIFO, 0)), |e| matches!(e, AttachError::FileKind { found: "FIFO", .. })),
        ("directory", Box::new(|| fs::create_dir(path).is_ok()), |e| {
            matches!(e, AttachError::FileKind { found: "directory", .. })
        }),
        // As /dev/null, which anybody may write to. On a file system without devices the kernel opens none.
        ("device", Box::new(|| mknod(libc::S_IFCHR, libc::makedev(1, 3))), |e| {
            matches!(e, AttachError::FileKind { found: "device or socket", .. })
        }),
        // The kernel opens no socket: which of the two says so is not told apart here.
        ("socket", Box::new(|| UnixListener::bind(path).is_ok()), |e| {
            matches!(e, AttachError::FileKind { found: "device or socket", .. } | AttachError::Io { .. })
        }),
        ("empty", Box::new(|| File::create(path).is_ok()), |e| matches!(e, AttachError::Magic { found: 0, .. })),
        ("7 bytes", Box::new(|| fs::write(path, "RETRIAL").is_ok()), |e| {
            matches!(e, AttachError::Magic { found: 0, .. })
        }),
        (
            "text",
            Box::new(|| fs::write(path, "root:x:0:0:root\n").is_ok()),
            |e| matches!(e, AttachError::Magic { found, .. } if *found == u64::from_le_bytes(*b"root:x:0")),
        ),
    ];
    let mut seen = 0;
    for (kind, make, is_right) in &kinds {
        if !make() {
            let error = std::io::Error::last_os_error();
            assert!(*kind == "device" && error.raw_os_error() == Some(libc::EPERM), "{kind}: {error}");
            eprintln!("what_is_no_segment_is_refused_as_what_it_is_and_stays: no device without root");
            continue;
        }
        let before = fs::symlink_metadata(path).unwrap();
        for (what, error) in refusals(&address) {
            assert!(is_right(&error), "{what} {kind}: {error}");
        }
        is_in_the_way(&address);
        let after = fs::symlink_metadata(path).unwrap();
        let facts = |m: &fs::Metadata| (m.ino(), m.mode(), m.uid(), m.len(), m.mtime_nsec());
        assert_eq!(facts(&after), facts(&before), "{kind}: it is as it was");
        let is_socket_or_directory = after.file_type().is_socket() || after.is_dir();
        assert_eq!(is_socket_or_directory, ["socket", "directory"].contains(kind));
        if after.is_dir() {
            fs::remove_dir(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        seen += 1;
    }
    assert!(seen >= 6);
    assert!(matches!(Instance::attach(&Address::new("/dev/null").unwrap()), Err(AttachError::FileKind { .. })));
    assert!(matches!(
        refusals(&address).map(|(_, e)| e),
        [AttachError::NotFound(_), AttachError::NotFound(_), AttachError::NotFound(_)]
    ));
}

type Spoil = Box<dyn Fn(&Path)>;

#[test]
fn what_is_removed_is_a_segment_whole_or_not() {
    let directory = Directory::new(0o700);
    let spoil = |at: u64, byte: u8| {
        move |path: &Path| {
            let file = File::options().write(true).open(path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 8], at).unwrap();
        }
    };
    let cut = |path: &Path| File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    let cases: [(&str, Spoil, bool); 5] = [
        ("whole", Box::new(|_: &Path| {}), true),
        ("of another build", Box::new(spoil(8, 1)), true),
        ("of impossible capacity", Box::new(spoil(16, 0xff)), true),
        ("truncated", Box::new(cut), true),
        ("of other people", Box::new(spoil(0, b'x')), false),
    ];
    for (what, spoil, goes) in cases {
        let address = directory.segment("it", 0o600);
        spoil(address.path());
        let before = fs::read(address.path()).unwrap();
        let removed = retrial::remove(&address);
        assert_eq!(removed.is_ok(), goes, "{what}: {removed:?}");
        if goes {
            assert!(!address.path().exists(), "{what}");
        } else {
            assert!(matches!(removed, Err(AttachError::Magic { .. })), "{what}");
            assert_eq!(fs::read(address.path()).unwrap(), before, "{what}");
            fs::remove_file(address.path()).unwrap();
        }
    }
}

// Part three: whose it is.

#[test]
fn a_file_of_somebody_else_is_not_trusted_by_any_name() {
    if !is_root("a_file_of_somebody_else_is_not_trusted_by_any_name") {
        return;
    }
    let directory = Directory::new(0o1777);
    // Alice's, open to everybody; and a second name for it in a place of Bob's.
    let hers = directory.segment("hers", 0o666);
    chown(hers.path(), ALICE, ALICE);
    fs::create_dir(directory.path("his")).unwrap();
    let link = directory.address("his/link");
    fs::hard_link(hers.path(), link.path()).unwrap();
    chown(&directory.path("his"), BOB, BOB);
    let before = fs::read(hers.path()).unwrap();
    for address in [&hers, &link] {
        as_user(BOB, &[], || {
            for (what, error) in refusals_to_change(address) {
                let AttachError::Owner { found, expected, path } = error else { panic!("{what}: {error}") };
                assert_eq!((found, expected, &*path), (ALICE, BOB, address.path()), "{what}");
            }
            is_in_the_way(address);
            assert!(Observer::open(address).is_ok(), "who may read may look");
        });
        as_user(ALICE, &[], || assert!(Observer::open(address).is_ok(), "by whatever name"));
    }
    assert_eq!(fs::read(hers.path()).unwrap(), before);
    assert!(link.path().exists() && hers.path().exists());
    as_user(ALICE, &[], || assert!(Instance::attach(&hers).is_ok()));
    // What Alice could write there would be written with root's rights.
    assert!(matches!(Instance::attach(&hers), Err(AttachError::Owner { found: ALICE, expected: 0, .. })));
    // Root's is trusted by everybody who may open it.
    let roots = directory.segment("roots", 0o666);
    as_user(BOB, &[], || assert!(Instance::attach(&roots).is_ok() && Observer::open(&roots).is_ok()));
    as_user(BOB, &[], || assert!(matches!(retrial::remove(&roots), Err(AttachError::Io { .. })), "a sticky directory"));
    assert!(roots.path().exists());
}

#[test]
fn a_name_that_somebody_else_took_first_is_refused_and_left() {
    if !is_root("a_name_that_somebody_else_took_first_is_refused_and_left") {
        return;
    }
    let directory = Directory::new(0o1777);
    let name = |kind: &str| directory.address(kind);
    let kinds = ["file", "segment", "link", "directory", "fifo"];
    as_user(BOB, &[], || {
        fs::write(name("file").path(), "mine").unwrap();
        fs::set_permissions(name("file").path(), Permissions::from_mode(0o666)).unwrap();
        directory.segment("segment", 0o666);
        symlink("/etc/passwd", name("link").path()).unwrap();
        fs::create_dir(name("directory").path()).unwrap();
        let fifo = std::ffi::CString::new(name("fifo").path().as_os_str().as_bytes()).unwrap();
        // SAFETY: a string with its 0.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
    });
    let facts = |kind: &str| {
        let metadata = fs::symlink_metadata(name(kind).path()).unwrap();
        (metadata.ino(), metadata.mode(), metadata.len(), metadata.uid())
    };
    let before = kinds.map(facts);
    as_user(ALICE, &[], || {
        for kind in kinds {
            refusals_to_change(&name(kind));
            assert_eq!(Observer::open(&name(kind)).is_ok(), kind == "segment");
            is_in_the_way(&name(kind));
        }
        assert!(matches!(Instance::attach(&name("segment")), Err(AttachError::Owner { found: BOB, .. })));
    });
    assert_eq!(kinds.map(facts), before);
}

#[test]
fn in_a_sticky_directory_an_instance_is_its_owners() {
    if !is_root("in_a_sticky_directory_an_instance_is_its_owners") {
        return;
    }
    for mode in [0o600, 0o640, 0o644, 0o660, 0o666] {
        let directory = Directory::new(0o1777);
        let address = directory.address("hers");
        as_user(ALICE, &[], || {
            drop(Instance::create(&address, CAPACITY, mode).unwrap());
            assert!(Instance::attach(&address).is_ok());
        });
        as_user(BOB, &[], || {
            assert_eq!(Observer::open(&address).is_ok(), mode & 0o004 != 0, "{mode:o}");
            for (what, error) in refusals_to_change(&address) {
                // Who may not open it is told so; who may is told whose it is.
                let may = if what == "attach" { mode & 0o006 == 0o006 } else { mode & 0o004 != 0 };
                match error {
                    AttachError::Permission { owner: ALICE, mode: m, user: BOB, .. } if m == mode && !may => {}
                    AttachError::Owner { found: ALICE, expected: BOB, .. } if may => {}
                    other => panic!("{what} {mode:o}: {other:?}"),
                }
            }
        });
        as_user(ALICE, &[], || retrial::remove(&address).unwrap());
        assert!(!address.path().exists());
    }
}

// Part four: permissions.

#[test]
fn a_file_has_the_permissions_asked_for_whatever_the_umask() {
    let directory = Directory::new(0o700);
    let mut cases = 0;
    for (mask, mode) in [0, 0o002, 0o022, 0o027, 0o077, 0o777]
        .into_iter()
        .flat_map(|mask| [0o600, 0o640, 0o644, 0o660, 0o664, 0o666, 0o400, 0].map(|mode| (mask, mode)))
    {
        let address = directory.address(&format!("{mask:o}-{mode:o}"));
        apart(|| {
            // SAFETY: takes no memory; the child's own.
            unsafe { libc::umask(mask) };
            drop(Instance::create(&address, CAPACITY, mode).unwrap());
            let found = |address: &Address| fs::metadata(address.path()).unwrap().mode() & 0o7777;
            assert_eq!(found(&address), mode, "{mode:o} under {mask:o}");
            fs::remove_file(address.path()).unwrap();
            drop(Instance::create_or_attach(&address, CAPACITY, mode).unwrap());
            assert_eq!(found(&address), mode, "{mode:o} under {mask:o}");
        });
        cases += 1;
    }
    assert_eq!(cases, 48);
}

#[test]
fn who_may_read_observes_and_who_may_write_takes_part() {
    if !is_root("who_may_read_observes_and_who_may_write_takes_part") {
        return;
    }
    let directory = Directory::new(0o755);
    let mut cases = 0;
    for mode in [0o600, 0o640, 0o644, 0o660, 0o664, 0o666, 0o606, 0o622] {
        let address = directory.segment(&format!("{mode:o}"), mode);
        chown(address.path(), 0, GROUP);
        let before = fs::read(address.path()).unwrap();
        for groups in [&[][..], &[GROUP][..]] {
            let bits = if groups.is_empty() { mode & 7 } else { mode >> 3 & 7 };
            as_user(BOB, groups, || {
                let refused = |error: Option<AttachError>, may: bool| match error {
                    None => assert!(may, "{mode:o}, {groups:?}"),
                    Some(error) => {
                        assert!(!may, "{mode:o}, {groups:?}: {error}");
                        let AttachError::Permission { path, owner, mode: said, user } = error else {
                            panic!("{mode:o}, {groups:?}: {error}")
                        };
                        assert_eq!((&*path, owner, said, user), (address.path(), 0, mode, BOB));
                    }
                };
                refused(Observer::open(&address).err(), bits & 4 != 0);
                refused(Instance::attach(&address).err(), bits & 6 == 6);
            });
            cases += 1;
        }
        assert_eq!(fs::read(address.path()).unwrap().len(), before.len());
    }
    assert_eq!(cases, 16);
}

// Part five: observers.

/// An instance in use: waits, alerts, deaths, figures.
fn used(address: &Address) {
    let instance = Instance::create(address, CAPACITY, 0o600).unwrap();
    instance.set(P::SpinCount, None, 3);
    instance.set(P::AlertThreshold, None, 1);
    let mutex = instance.mutex("m", "a type", || 7u64).unwrap();
    let (a, b) = (instance.session("a", Class::Normal).unwrap(), instance.session("b", Class::Normal).unwrap());
    a.set_action("acts");
    let guard = mutex.exclusive(&a, location!("holds")).unwrap();
    let short = std::time::Duration::from_millis(5);
    let waited = mutex.get(&b, Mode::Shared, location!("waits"), Patience::within(short));
    assert!(matches!(waited, Err(GetError::TimedOut)));
    drop(waited);
    std::mem::forget(guard);
    drop(a);
    assert!(matches!(mutex.exclusive(&b, location!("after the dead")), Err(GetError::OwnerDied(_))));
    // One that is dead and not recovered: an observer sees it and does nothing about it.
    std::mem::forget(mutex.get(&b, Mode::LongExclusive, location!("dies"), Patience::None));
    instance.alert("seen");
}

/// Protection and first address of each mapping of a file in this process.
fn mappings(path: &Path) -> Vec<(String, usize)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    ours.map(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let start = usize::from_str_radix(range.split_once('-').unwrap().0, 16).unwrap();
        (rest.split_once(' ').unwrap().0.to_owned(), start)
    })
    .collect()
}

#[test]
fn an_observer_cannot_write() {
    let directory = Directory::new(0o700);
    let address = directory.address("it");
    used(&address);
    assert_eq!(mappings(address.path()), [], "nothing is left of who took part");
    let observer = Observer::open(&address).unwrap();
    let mapped = mappings(address.path());
    let [(protection, start)] = &*mapped else { panic!("{mapped:?}") };
    assert_eq!(protection, "r--s");
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    assert_eq!(open.filter(|target| target == address.path()).count(), 0, "no descriptor is left");
    let start = std::ptr::without_provenance_mut::<libc::c_void>(*start);
    for more in [libc::PROT_WRITE, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: a page of the mapping; no protection that the kernel grants here lets anybody write to it.
        assert_eq!(unsafe { libc::mprotect(start, 4096, more) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EACCES), "not even if it wanted to");
    }
    assert_eq!(observer.tables().mutexes().len(), 1);
    drop(observer);
    assert_eq!(mappings(address.path()), []);
}

/// The functions of `Tables` that anybody can call, from its sources.
fn functions_of_tables() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        for block in text.split("\nimpl Tables {\n").skip(1) {
            let block = block.split("\n}\n").next().unwrap();
            let name = |line: &str| Some(line.strip_prefix("    pub fn ")?.split(['(', '<']).next()?.to_owned());
            names.extend(block.lines().filter_map(name));
        }
    }
    names
}

#[test]
#[allow(clippy::too_many_lines)] // one story
fn an_observer_leaves_every_byte_as_it_was() {
    let directory = Directory::new(0o700);
    let address = directory.address("it");
    used(&address);
    let before = fs::read(address.path()).unwrap();
    let stamps = |path: &Path| fs::metadata(path).map(|m| (m.mtime(), m.mtime_nsec(), m.len(), m.mode())).unwrap();
    let stamped = stamps(address.path());
    let observer = Observer::open(&address).unwrap();
    let mut called = BTreeSet::new();
    macro_rules! call {
        ($($name:ident($($argument:expr),*);)*) => { $(
            called.insert(stringify!($name).to_owned());
            #[allow(clippy::let_underscore_untyped)]
            let _ = std::hint::black_box(observer.tables().$name($($argument),*));
        )* };
    }
    let types: Vec<Option<TypeId>> = std::iter::once(None).chain((0..=u8::MAX).map(|t| Some(TypeId(t)))).collect();
    for mutex_type in &types {
        call! { params(*mutex_type); param_set(P::Scheme, *mutex_type); }
    }
    for id in 0..=u16::MAX {
        call! { location_name(retrial::views::LocationId(id)); }
    }
    for id in (0..=40).chain([u32::MAX, 1 << 24, 1 << 31]) {
        let (mutex, sid) = (MutexId(id), Sid::new(id));
        call! {
            type_name(TypeId(id as u8));
            mutex_name(mutex);
            mutex_info(mutex);
            mutex_in_process(mutex);
            mutex_state(mutex);
            death(mutex);
            offset_of(mutex);
            object_of(mutex);
            session_info(sid);
            last_run(sid);
            is_dead(sid);
            may_live_since(sid, 1);
        }
        for run in (0..70).chain([u64::MAX]) {
            call! { event(sid, run); }
        }
    }
    for offset in (0..before.len() as u64 + 64).step_by(4) {
        // SAFETY: the file is this test's alone.
        let _ = std::hint::black_box(unsafe { observer.tables().peek(offset, 1) });
    }
    call! {
        capacity(); address(); len_bytes(); created_ns(); creator_pid(); has_barrier(); costs(); recoveries();
        type_named("a type"); types(); locations(); alerts_written(); arena_used(); mutex_named("m"); mutexes();
        last_mutex(); alerts(0); history(); sessions(); figures(); session_gets(); calls(); events(); event_figures();
        threads_without_session();
        rows_until(|_, _| None);
    }
    // SAFETY: as above.
    let _ = std::hint::black_box(unsafe { observer.tables().peek(0, before.len() / 8) });
    called.insert("sids".to_owned());
    assert_eq!(observer.tables().sids().count(), 2);
    called.insert("waits".to_owned());
    assert_eq!(observer.tables().waits().count(), 0);
    called.extend(["gets_by_session", "is_followed"].map(str::to_owned));
    assert!(observer.tables().sessions().iter().all(|session| !observer.tables().is_followed(session)));
    assert_eq!(observer.tables().gets_by_session().count(), 3);
    called.insert("wait_began".to_owned());
    for session in observer.tables().sessions() {
        let _ = std::hint::black_box(observer.tables().wait_began(&session));
    }
    assert_eq!(called, functions_of_tables(), "every one there is");
    assert!(observer.tables().sessions().iter().any(|session| session.dead), "the dead are seen");
    assert!(
        !observer.tables().history().is_empty()
            && !observer.tables().alerts(0).is_empty()
            && observer.tables().recoveries() > 0
    );
    drop(observer);
    assert!(fs::read(address.path()).unwrap() == before, "every byte");
    assert_eq!(stamps(address.path()), stamped);
    // And what it left alone is recovered by who takes part.
    let instance = Instance::attach(&address).unwrap();
    assert_eq!(instance.recover_all(), (1, 0));
    assert!(!matches!(instance.session("s", Class::Normal), Err(SessionError::Full { .. })));
}
