//! Instances: created whole or not at all, found by name, checked before they are trusted.

use retrial::zerocopy::{FromBytes, Immutable, IntoBytes};
use retrial::{
    Address, AttachError, Capacity, Class, CreateError, Instance, MutexId, ObjectError, Observer, P, SessionError,
    location,
};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

/// A name of this process's own, removed at the end.
struct Name(Address);

impl Name {
    fn new(test: &str) -> Self {
        Self(Address::new(&format!("test-{test}-{}", std::process::id())).unwrap())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

#[test]
fn what_one_creates_another_attaches_to_and_a_third_observes() {
    let name = Name::new("attach");
    let creator = Instance::create(&name.0, Capacity::default(), 0o600).unwrap();
    let other = Instance::attach(&name.0).unwrap();
    let ours = creator.mutex("m", "test", || 41u64).unwrap();
    let theirs = other.mutex("m", "test", || 0u64).unwrap();
    let (a, b) = (creator.session("a", Class::Normal).unwrap(), other.session("b", Class::Normal).unwrap());
    *ours.exclusive(&a, location!("here")).unwrap() += 1;
    assert_eq!(*theirs.exclusive(&b, location!("there")).unwrap(), 42);
    let observer = Observer::open(&name.0).unwrap();
    let sessions = observer.tables().sessions();
    assert_eq!(sessions.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(observer.tables().mutex_state(ours.id()).unwrap().gets, 3, "one of them to write the first value");
    assert_eq!(name.0.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn of_two_that_race_to_create_one_wins_and_all_end_up_in_the_same() {
    let name = Name::new("race");
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                let instance = Instance::create_or_attach(&name.0, Capacity::default(), 0o600).unwrap();
                let counter = instance.mutex("counter", "test", || 0u64).unwrap();
                let session = instance.session("racer", Class::Normal).unwrap();
                *counter.exclusive(&session, location!()).unwrap() += 1;
            });
        }
    });
    let instance = Instance::attach(&name.0).unwrap();
    let session = instance.session("judge", Class::Normal).unwrap();
    let counter = instance.mutex("counter", "test", || 0u64).unwrap();
    assert_eq!(*counter.exclusive(&session, location!()).unwrap(), 8);
    assert!(matches!(Instance::create(&name.0, Capacity::default(), 0o600), Err(CreateError::Exists(_))));
}

#[test]
fn memory_is_touched_only_when_it_is_used() {
    let name = Name::new("sparse");
    let capacity = Capacity { sessions: 65_536, mutexes: 1 << 20, arena: 1 << 30, ..Capacity::default() };
    let instance = Instance::create(&name.0, capacity, 0o600).unwrap();
    let metadata = name.0.path().metadata().unwrap();
    assert!(metadata.len() > 1 << 30);
    let touched = metadata.blocks() * 512;
    assert!(touched < 256 << 10, "{touched} bytes of a fresh instance are in memory");
    drop(instance);
}

#[test]
fn names_cannot_leave_the_directory() {
    for bad in ["", ".", "..", ".hidden", "-rf", "a b", "a\0b", &"x".repeat(65)] {
        assert!(Address::new(bad).is_err(), "{bad:?}");
    }
    assert_eq!(Address::new("ok-1.2_3").unwrap().path(), PathBuf::from("/dev/shm/retrial.ok-1.2_3"));
    assert_eq!(Address::new("./x").unwrap().path(), PathBuf::from("./x"));
}

#[test]
fn a_full_session_table_says_which_capacity_to_raise() {
    let instance = Instance::anonymous(Capacity { sessions: 2, ..Capacity::default() }).unwrap();
    let a = instance.session("a", Class::Normal).unwrap();
    let _b = instance.session("b", Class::Normal).unwrap();
    let error = instance.session("c", Class::Normal).unwrap_err();
    assert_eq!(error, SessionError::Full { capacity: 2, owing: 0, mutex: MutexId(0) });
    assert!(error.to_string().contains("`sessions`"));
    drop(a);
    assert!(instance.session("c", Class::Normal).is_ok());
}

#[test]
fn threads_that_come_and_go_stay_in_few_slots() {
    let instance = Instance::anonymous(Capacity { sessions: 16_384, ..Capacity::default() }).unwrap();
    let highest = (0..500).map(|_| instance.session("short", Class::Normal).unwrap().sid().number()).max();
    assert!(highest < Some(3), "{highest:?}");
}

#[test]
fn a_full_arena_and_another_shape_are_said() {
    let instance = Instance::anonymous(Capacity { arena: 256, ..Capacity::default() }).unwrap();
    instance.mutex("a", "test", || 0u64).unwrap();
    assert!(instance.mutex("a", "test", || [0u64; 9]).unwrap_err().to_string().contains("expected"));
    assert!(instance.mutex("b", "test", || [0u64; 99]).unwrap_err().to_string().contains("`arena`"));
}

type Case = (&'static str, Vec<u8>, fn(&AttachError) -> bool);

#[test]
fn what_is_no_segment_of_ours_is_refused_and_left_as_it_is() {
    let directory = std::env::temp_dir().join(format!("retrial-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let address = |file: &str| Address::new(directory.join(file).to_str().unwrap()).unwrap();
    let good = address("good");
    drop(Instance::create(&good, Capacity::default(), 0o600).unwrap());
    let bytes = std::fs::read(good.path()).unwrap();
    let patched = |offset: usize, value: u64| {
        let mut bytes = bytes[..8192].to_vec();
        bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        bytes
    };

    let cases: [Case; 7] = [
        ("empty", vec![], |e| matches!(e, AttachError::Magic { .. })),
        ("random", (0..9999u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect(), |e| {
            matches!(e, AttachError::Magic { .. })
        }),
        ("short", bytes[..100].to_vec(), |e| matches!(e, AttachError::Truncated { .. })),
        ("truncated", bytes[..bytes.len() - 1].to_vec(), |e| matches!(e, AttachError::Truncated { .. })),
        (
            "other",
            {
                let mut b = patched(8, 1);
                b.resize(bytes.len(), 0);
                b
            },
            |e| matches!(e, AttachError::Format { .. }),
        ),
        (
            "none",
            {
                let mut b = patched(16, 0);
                b.resize(bytes.len(), 0);
                b
            },
            |e| matches!(e, AttachError::Capacity { .. }),
        ),
        (
            "huge",
            {
                let mut b = patched(16, 1 << 20);
                b.resize(bytes.len(), 0);
                b
            },
            |e| matches!(e, AttachError::Truncated { .. }),
        ),
    ];
    for (file, content, expected) in cases {
        let bad = address(file);
        std::fs::write(bad.path(), &content).unwrap();
        let error = Instance::attach(&bad).map(drop).unwrap_err();
        assert!(expected(&error), "{file}: {error}");
        assert!(expected(&Observer::open(&bad).map(drop).unwrap_err()), "{file}");
        assert_eq!(std::fs::read(bad.path()).unwrap(), content, "{file} was changed");
    }
    std::os::unix::fs::symlink(good.path(), directory.join("link")).unwrap();
    assert!(matches!(Instance::attach(&address("link")), Err(AttachError::FileKind { found: "symbolic link", .. })));
    assert!(matches!(Instance::attach(&address("missing")), Err(AttachError::NotFound(_))));
    let error = Observer::open(&address("/")).map(drop).unwrap_err();
    assert!(matches!(error, AttachError::FileKind { found: "directory", .. }), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn object_names_are_whole_or_refused() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    for bad in ["", "a\0b", &"x".repeat(65)] {
        assert!(instance.mutex(bad, "test", || 0u64).unwrap_err().to_string().contains("1 to 64"), "{bad:?}");
    }
    let longest = "x".repeat(64);
    let first = instance.mutex(&longest, "test", || 1u64).unwrap();
    assert_eq!(instance.mutex(&longest, "test", || 2u64).unwrap().id(), first.id());
}

#[test]
fn what_somebody_else_wrote_into_a_parameter_is_brought_into_its_range() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    instance.set(P::OrbitRetryRate, None, 0);
    instance.set(P::SpinCount, None, u64::MAX - 1);
    instance.set(P::Scheme, None, 999);
    let params = instance.params(None);
    assert_eq!(params.get(P::OrbitRetryRate), 1);
    assert_eq!(params.get(P::SpinCount), 10_000_000);
    assert_eq!(params.get(P::Scheme), retrial::wait::DEFAULT as u64);
}

#[test]
fn a_type_follows_the_instance_until_it_is_set() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let pin = instance.tables().type_named("Cursor Pin").unwrap();
    assert_eq!(pin.0, 7, "the source's number");
    instance.set(P::SpinCount, None, 10);
    assert_eq!(instance.params(Some(pin)).get(P::SpinCount), 10);
    instance.set(P::SpinCount, Some(pin), 0);
    assert_eq!(instance.params(Some(pin)).get(P::SpinCount), 0);
    assert_eq!(instance.params(None).get(P::SpinCount), 10);
    instance.unset(P::SpinCount, Some(pin));
    instance.unset(P::SpinCount, None);
    assert_eq!(instance.params(Some(pin)).get(P::SpinCount), 255);
}

/// Bytes of this process's mappings of a file.
fn mapped(name: &Name) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = name.0.path().display().to_string();
    let of = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    maps.lines().filter(|line| line.contains(&path)).filter_map(of).sum()
}

#[test]
fn what_is_mapped_grows_with_the_sessions_and_everybody_finds_them() {
    const SESSIONS: usize = 300;
    let name = Name::new("grows");
    let capacity = Capacity { sessions: 10_000, ..Capacity::default() };
    // The kernel knows the creator's mapping by no name.
    drop(Instance::create(&name.0, capacity, 0o600).unwrap());
    let instance = Instance::attach(&name.0).unwrap();
    let all = instance.tables().len_bytes() as u64;
    assert!((1..all / 20).contains(&mapped(&name)), "{} of {all} bytes", mapped(&name));
    let mut lengths = vec![mapped(&name)];
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|i| {
            let session = instance.session(&format!("s{i}"), Class::Normal).unwrap();
            lengths.push(mapped(&name));
            session
        })
        .collect();
    lengths.dedup();
    let grown = mapped(&name);
    assert!(grown < all / 4 && lengths.len() <= 4, "{lengths:?} of {all} bytes");
    let observer = Observer::open(&name.0).unwrap();
    assert!(mapped(&name) - grown < all / 20, "an observer maps as little");
    let names: Vec<String> = observer.tables().sessions().into_iter().map(|session| session.name).collect();
    assert_eq!(names, (0..SESSIONS).map(|i| format!("s{i}")).collect::<Vec<_>>());
    // SAFETY: nobody writes.
    let can_peek = |at| unsafe { observer.tables().peek(at, 1) }.is_some();
    assert!(can_peek(all - 8) && !can_peek(all), "all of it can be reached");
    drop(sessions);
    drop((instance, observer));
    assert_eq!(mapped(&name), 0, "all of it is unmapped");
}

#[test]
fn several_threads_grow_what_is_mapped_together() {
    let name = Name::new("grow-together");
    let capacity = Capacity { sessions: 4000, ..Capacity::default() };
    let instance = Instance::create(&name.0, capacity, 0o600).unwrap();
    let sessions: Vec<_> = (0..2000).map(|_| instance.session("", Class::Normal).unwrap()).collect();
    for _ in 0..20 {
        let other = Instance::attach(&name.0).unwrap();
        let found = std::thread::scope(|scope| {
            let look = || other.tables().sessions().len();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(found, [sessions.len(); 4]);
    }
}

#[test]
#[ignore = "the next test runs it in a process of its own"]
fn near_a_limit() {
    let name = Name::new("limit");
    drop(Instance::create(&name.0, Capacity { sessions: 10_000, ..Capacity::default() }, 0o600).unwrap());
    let instance = Instance::attach(&name.0).unwrap();
    let mut sessions = Vec::new();
    let mut grown = || {
        let before = mapped(&name);
        while mapped(&name) == before {
            sessions.push(instance.session("s", Class::Normal).unwrap());
        }
        mapped(&name) - before
    };
    let by_times = [(); 2].map(|()| grown())[1];
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: (pages << 12) + by_times, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is readable.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let by_one = grown();
    assert!(by_one < by_times / 8, "{by_one}, {by_times} bytes");
    println!("the limit leaves room for few");
}

#[test]
fn where_a_limit_leaves_room_for_few_sessions_only_these_are_mapped() {
    let mut near = std::process::Command::new(std::env::current_exe().unwrap());
    let near = near.args(["near_a_limit", "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&near.stdout).into_owned() + &String::from_utf8_lossy(&near.stderr);
    assert!(text.contains("the limit leaves room for few"), "{text}");
}

#[test]
fn a_name_is_that_of_data_of_one_size() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let refused = |made: Result<(), ObjectError>| made.unwrap_err().to_string();
    instance.mutex("m8", "t", || 7u8).unwrap();
    instance.mutex("m8", "t", || 7i8).unwrap();
    let as_u64 = refused(instance.mutex("m8", "t", || 7u64).map(drop));
    assert!(as_u64.starts_with("object `m8` has 1 bytes, expected 8: "), "{as_u64}");
    let as_none = refused(instance.mutex("m8", "t", || ()).map(drop));
    assert!(as_none.starts_with("object `m8` has 1 bytes, expected 0: "), "{as_none}");
    instance.mutex_bytes("100", "t", 100).unwrap();
    let as_101 = refused(instance.mutex_bytes("100", "t", 101).map(drop));
    assert!(as_101.starts_with("object `100` has 100 bytes, expected 101: "), "{as_101}");
    instance.mutex("100", "t", || [0u8; 100]).unwrap();
}

#[test]
fn a_name_is_that_of_data_of_one_place() {
    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    #[zerocopy(crate = "retrial::zerocopy")]
    #[repr(C, align(64))]
    struct Line([u8; 64]);
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    instance.mutex("line", "t", || Line([1; 64])).unwrap();
    instance.mutex("line", "t", || Line([2; 64])).unwrap();
    instance.mutex_bytes("bytes", "t", 64).unwrap();
    // As many bytes as either mutex has with those before its data.
    for refused in [
        instance.mutex_bytes("line", "t", 64).map(drop),
        instance.mutex_bytes("line", "t", 80).map(drop),
        instance.mutex("bytes", "t", || Line([0; 64])).map(drop),
    ] {
        assert!(matches!(refused, Err(ObjectError::Shape { .. } | ObjectError::Kind { .. })), "{refused:?}");
    }
}

#[test]
fn an_object_that_the_arena_cannot_hold_is_said_to_be_too_large() {
    let instance = Instance::anonymous(Capacity::default()).unwrap();
    let all = (1 << 20) - 48;
    let refused = |len, left| {
        let text = instance.mutex_bytes("m", "t", len).unwrap_err().to_string();
        let expected =
            format!("object `m` of {len} bytes is too large: the arena has room for {left} of its 1048576; ");
        assert!(text.starts_with(&expected), "{text}");
    };
    refused(usize::MAX, all);
    refused(all + 1, all);
    instance.mutex_bytes("half", "t", 1 << 19).unwrap();
    refused(1 << 19, (1 << 19) - 48 - 64);
    instance.mutex_bytes("most", "t", (1 << 19) - 48 - 64).unwrap();
    assert!(matches!(instance.mutex("m", "t", || 0u8), Err(ObjectError::TooLarge { left: 0, .. })));
}

#[test]
fn a_mutex_that_its_maker_holds_at_once_is_found_meanwhile() {
    use std::sync::mpsc::channel;
    let instance = &Instance::anonymous(Capacity::default()).unwrap();
    let ((begun, begins), (found, finds)) = (channel(), channel());
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let session = instance.session("", Class::Normal).unwrap();
            let mutex = instance.mutex("m", "t", || {
                begun.send(()).unwrap();
                // Long enough for the other thread to wait for the value.
                std::thread::sleep(Duration::from_millis(50));
                1u64
            });
            let held = mutex.unwrap().exclusive(&session, location!()).unwrap();
            assert_eq!(finds.recv_timeout(Duration::from_secs(10)), Ok(()), "the other thread waits for the release");
            assert_eq!(*held, 1);
        });
        begins.recv().unwrap();
        instance.mutex("m", "t", || 2u64).unwrap();
        found.send(()).unwrap();
    });
}

#[test]
fn a_value_that_asks_for_its_own_mutex_is_told_so() {
    let (told, hears) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let instance = Instance::anonymous(Capacity::default()).unwrap();
        let mut inner = None;
        let outer = instance.mutex("m", "t", || {
            inner = Some(instance.mutex("m", "t", || 1u64).map(drop));
            2u64
        });
        let session = instance.session("", Class::Normal).unwrap();
        let value = *outer.unwrap().exclusive(&session, location!()).unwrap();
        told.send((inner.unwrap(), value)).unwrap();
    });
    let (inner, value) = hears.recv_timeout(Duration::from_secs(10)).expect("it does not wait for itself");
    assert!(matches!(inner, Err(ObjectError::Deadlock(_))), "{inner:?}");
    assert_eq!(value, 2);
}
