//! Everything that a program can do with the file of a segment, whatever is in it. Nothing here waits for
//! long: each get is a try or has a deadline. What is returned is looked at; what is refused is refused by a
//! typed error.

use super::{Case, Scratch};
use retrial::sys::Deadline;
use retrial::views::{COUNTERS, Figures, LocationId, Sid, Tables, TypeId};
use retrial::{
    AttachError, Class, GetError, Hold, Instance, Mode, MutexId, ObjectError, Observer, P, Patience, Session,
    SessionError, Shareable, interposer, location, remove,
};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::time::Duration;

/// What became of a case.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) observed: Result<(), AttachError>,
    pub(crate) attached: Result<(), AttachError>,
}

/// Takes what is written to it, so that every value is read to its end.
struct Sink(usize);

impl Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

fn look(value: impl fmt::Debug) {
    let mut sink = Sink(0);
    write!(sink, "{value:?}").expect("a sink takes everything");
    std::hint::black_box(sink.0);
}

/// An instance with bytes that nobody vouches for.
pub(crate) struct Scene<'a> {
    pub(crate) instance: &'a Instance,
    /// Whether the lock of the tables could not be had: each further try would take a second.
    stuck: Cell<bool>,
}

/// What is done to an instance. The position is the number in a case.
pub(crate) const OPERATIONS: [fn(&Scene<'_>); 8] =
    [settings, sessions, gets, objects, waits, registrations, marks, recoveries];

/// Does a case.
pub(crate) fn exercise(case: &Case, scratch: &Scratch) -> Outcome {
    std::fs::write(scratch.path(), case.bytes()).unwrap();
    let observed = Observer::open(&scratch.0).map(|observer| observe(observer.tables()));
    let attached = Instance::attach(&scratch.0).map(|instance| {
        let scene = Scene { instance: &instance, stuck: Cell::new(false) };
        hasten(&instance);
        if case.operations.is_empty() {
            for operation in OPERATIONS {
                operation(&scene);
            }
        }
        for number in &case.operations {
            OPERATIONS[usize::from(*number) % OPERATIONS.len()](&scene);
        }
        observe(instance.tables());
    });
    if attached.is_err() {
        let made = Instance::create_or_attach(&scratch.0, super::CAPACITY, 0o600);
        assert!(made.is_err(), "what is there is never replaced");
        look(made.map(drop));
    }
    for error in observed.as_ref().err().into_iter().chain(attached.as_ref().err()) {
        look(error.to_string());
    }
    match remove(&scratch.0) {
        Ok(()) => {}
        // What is no segment of ours is left as it is.
        Err(error) => assert!(matches!(error, AttachError::Magic { .. }), "{error}"),
    }
    Outcome { observed, attached }
}

/// A spin may last as long as the parameters allow, which is seconds: no hang, but nothing to try a million times.
fn hasten(instance: &Instance) {
    for p in [P::SpinCount, P::LatchSpinCount, P::HardSpinCount, P::OrbitSpinTime] {
        instance.set(p, None, 8);
        (0..64).for_each(|mutex_type| instance.set(p, Some(TypeId(mutex_type)), 8));
    }
}

fn brief() -> Patience {
    Patience::Until(Deadline::after(Duration::from_micros(10)))
}

/// Reads everything that there is to be read.
pub(crate) fn observe(tables: &Tables) {
    look((tables.capacity(), tables.address(), tables.len_bytes(), tables.created_ns(), tables.creator_pid()));
    look((tables.has_barrier(), tables.costs(), tables.recoveries(), tables.alerts_written(), tables.arena_used()));
    look((tables.last_mutex(), tables.session_gets(), tables.calls()));
    look((tables.types(), tables.locations(), tables.mutexes(), tables.sessions(), tables.history()));
    look((tables.alerts(0), tables.alerts(u64::MAX)));
    for mutex_type in (0..=64).map(TypeId).chain([TypeId(255)]) {
        look(tables.type_name(mutex_type));
        look(tables.params(Some(mutex_type)));
        look(tables.param_set(P::Scheme, Some(mutex_type)));
    }
    for p in P::ALL {
        look(tables.param_set(*p, None).map(|value| p.format(value)));
    }
    look(tables.params(None));
    for name in ["a", "b", "elsewhere", "new", "test", "Cursor Pin", "", "none"] {
        look((tables.type_named(name), tables.mutex_named(name)));
    }
    for location in [0, 1, 4, 5, u16::MAX] {
        look(tables.location_name(LocationId(location)));
    }
    let registered: Vec<MutexId> = tables.mutexes().into_iter().map(|info| info.id).collect();
    for id in registered.into_iter().chain([0, 1, 4, 5, 0x0100_0001, 0x00ff_ffff, u32::MAX].map(MutexId)) {
        look((tables.mutex_name(id), tables.mutex_info(id), tables.mutex_in_process(id), tables.death(id)));
        look((tables.mutex_state(id), tables.offset_of(id)));
        if let Some(state) = tables.mutex_state(id) {
            look(state.word.to_string());
        }
    }
    for sid in tables.sids().chain([Sid::NONE, Sid::new(1), Sid::new(3), Sid::new(u32::MAX)]) {
        let info = tables.session_info(sid);
        let (first, last) = info.as_ref().map_or((1, 1), |info| (info.first_run, info.last_run));
        let wait = info.as_ref().and_then(|info| info.wait);
        look(wait.map(|(key, _, blocker)| (key.event.name("test"), tables.location_name(key.location), blocker)));
        look(info);
        for number in (0..66).chain((0..4).map(|i| last.wrapping_sub(i))).chain([first, tables.last_run(sid), u64::MAX])
        {
            look(tables.event(sid, number).map(|event| (event, event.line(), event.event.name("Cursor Pin"))));
        }
    }
    let (mut sum, mut earlier) = (Figures::default(), Figures::default());
    for (_, key, figures) in tables.figures() {
        look((key, figures, figures.sleeps(), figures.since(&earlier)));
        look((key.event.name(&tables.type_name(TypeId(0))), tables.mutex_name(key.mutex)));
        sum.add(&figures);
        earlier = figures;
    }
    look((sum, COUNTERS));
    let len = tables.len_bytes() as u64;
    for (offset, count) in
        [(0, 64), (len - 8, 1), (len - 8, 2), (len, 0), (len, 1), (4, 1), (u64::MAX - 7, 1), (8, usize::MAX)]
    {
        let inside = offset % 8 == 0 && (count as u64) <= len / 8 && offset <= len - count as u64 * 8;
        // SAFETY: no guard is held.
        let words = unsafe { tables.peek(offset, count) };
        assert_eq!(words.is_some(), inside, "{count} words from {offset} of {len} bytes");
    }
}

impl<'a> Scene<'a> {
    fn session(&self, name: &str) -> Option<Session<'a>> {
        if self.stuck.get() {
            return None;
        }
        let session = self.instance.session(name, Class::Detect);
        session.map_err(|error| self.refused(error)).ok()
    }

    fn refused(&self, error: SessionError) {
        look(error.to_string());
        self.stuck.set(self.stuck.get() || error == SessionError::Stuck);
    }

    /// Ids of the registered mutexes, and some that nobody has.
    fn ids(&self) -> Vec<MutexId> {
        let registered = self.instance.tables().mutexes().into_iter().map(|info| info.id);
        registered.chain([MutexId(0), MutexId(1), MutexId(4), MutexId::OVERFLOW]).collect()
    }
}

fn settings(scene: &Scene<'_>) {
    let instance = scene.instance;
    for p in P::ALL.iter().copied().filter(|p| p.row().unit != "polls" && *p != P::OrbitSpinTime) {
        instance.set(p, Some(TypeId(9)), p.row().default);
        instance.set(p, Some(TypeId(255)), p.row().default);
        instance.unset(p, Some(TypeId(9)));
        look(instance.params(Some(TypeId(9))));
    }
}

fn sessions(scene: &Scene<'_>) {
    let all: Vec<Session<'_>> = (0..3).map_while(|_| scene.session("one of three")).collect();
    for session in &all {
        session.set_action("counts");
        interposer::count_get(session);
        (0..17).for_each(|kind| interposer::count_call(session, kind));
        look((session.sid(), session.pid(), session.is_forked(), session));
        look(scene.instance.tables().session_info(session.sid()));
    }
    interposer::count_call_of_guest(scene.instance, 3, true);
    interposer::count_call_of_guest(scene.instance, 99, false);
}

/// Gets each mutex in each mode, and turns each mode into the others.
fn gets(scene: &Scene<'_>) {
    let Some(session) = scene.session("gets") else { return };
    for id in scene.ids() {
        // SAFETY: sessions of this instance only.
        let Some(mutex) = (unsafe { scene.instance.mutex_in_arena(id) }) else { continue };
        for (mode, patience) in Mode::ALL.into_iter().flat_map(|mode| [(mode, Patience::None), (mode, brief())]) {
            // SAFETY: both are of the same instance.
            let got = unsafe { mutex.get(&session, mode, location!("gets"), patience) };
            with(got, |hold| {
                look(&hold);
                convert(hold);
            });
        }
    }
}

fn with<G>(got: Result<G, GetError<G>>, then: impl FnOnce(G)) {
    match got {
        Ok(guard) => then(guard),
        Err(GetError::OwnerDied(died)) => {
            look((&died, died.death));
            then(died.guard);
        }
        Err(error) => look(error),
    }
}

fn convert(mut hold: Hold<'_>) {
    hold.consistent();
    if hold.mode() == Mode::Shared {
        look(hold.examine(Patience::None));
    }
    if hold.mode() == Mode::Examine {
        look(hold.upgrade(brief()));
    }
    if hold.mode() != Mode::Shared {
        hold.share();
        look(hold.examine(brief()));
    }
    look((hold.mutex().load().to_string(), hold.mutex().gets(), hold.mutex().parked(), hold.mutex().mutex_type()));
}

fn objects(scene: &Scene<'_>) {
    object(scene, "a", 7u64);
    object(scene, "b", [7u64; 9]);
    object(scene, "a", [7u8; 200]);
    object(scene, "new", 7u32);
    object(scene, "newer", [7u64; 99]);
    look(scene.stuck.get() || scene.instance.mutex("", "test", || 0u8).is_err());
}

fn object<T: Shareable + fmt::Debug>(scene: &Scene<'_>, name: &str, value: T) {
    let refused = |error: ObjectError| {
        look(error.to_string());
        if let ObjectError::Session(error) = error {
            scene.refused(error);
        }
    };
    if scene.stuck.get() {
        return;
    }
    // SAFETY: sessions of this instance only.
    let record = unsafe { scene.instance.mutex_record::<T>(name, "test") };
    let Some(record) = record.map_err(refused).ok() else { return };
    // `Instance::mutex` waits for whoever is about to write the first value, for ever if a hostile word says so.
    let mut free = false;
    if let Some(session) = scene.session("looks") {
        // SAFETY: both are of the same instance.
        with(unsafe { record.get(&session, Mode::Exclusive, location!("tried"), brief()) }, |_| free = true);
    }
    if !free {
        return;
    }
    let Some(mutex) = scene.instance.mutex(name, "test", || value).map_err(refused).ok() else { return };
    look((mutex, mutex.id()));
    let Some(session) = scene.session("objects") else { return };
    for mode in Mode::ALL {
        with(mutex.get(&session, mode, location!("objects"), Patience::None), |mut guard| {
            look(*guard);
            if matches!(mode, Mode::Exclusive | Mode::LongExclusive) {
                *guard = value;
            }
        });
    }
}

/// One session waits for the other in every scheme.
fn waits(scene: &Scene<'_>) {
    let (Some(holder), Some(waiter)) = (scene.session("holds"), scene.session("waits")) else { return };
    for id in scene.ids() {
        // SAFETY: sessions of this instance only.
        let Some(mutex) = (unsafe { scene.instance.mutex_in_arena(id) }) else { continue };
        for scheme in 0..retrial::wait::NAMES.len() as u64 {
            scene.instance.set(P::Scheme, None, scheme);
            let modes =
                [(Mode::Exclusive, Mode::Shared), (Mode::Shared, Mode::LongExclusive), (Mode::Examine, Mode::Examine)];
            let (held, wanted) = modes[scheme as usize % modes.len()];
            // SAFETY: both are of the same instance.
            with(unsafe { mutex.get(&holder, held, location!("gets"), Patience::None) }, |_hold| {
                // SAFETY: both are of the same instance.
                with(unsafe { mutex.get(&waiter, wanted, location!("waits"), brief()) }, drop);
            });
        }
    }
}

fn registrations(scene: &Scene<'_>) {
    let instance = scene.instance;
    for name in ["test", "another", "a third"] {
        look(instance.register_type(name));
        look(instance.register_location(name));
    }
    for name in ["outside", ""] {
        if let Ok(id) = instance.register_mutex(TypeId(9), 8, name) {
            look(instance.tables().mutex_info(id));
            look(instance.tables().offset_of(id));
            // SAFETY: nobody holds it.
            unsafe { interposer::retire_mutex(instance, id, Some(u64::MAX)) };
            look((instance.tables().mutex_info(id), interposer::noted_gets(instance, id)));
            look(interposer::resume_mutex(instance, id, TypeId(9), 8));
            // SAFETY: nobody holds it.
            unsafe { instance.unregister_mutex(id) };
            look(instance.tables().mutex_info(id));
        }
    }
    for address in 0..70 {
        look(interposer::register_missed_mutex(instance, TypeId(9), address));
    }
}

fn marks(scene: &Scene<'_>) {
    let instance = scene.instance;
    instance.alert("an alert");
    instance.alert(&"a long alert ".repeat(40));
    let len = instance.tables().len_bytes() as u64;
    // SAFETY: anything may be anywhere in these segments, and here nobody trusts it.
    look([len - 8, len, 4, u64::MAX - 7].map(|at| unsafe { instance.poke(at, 1) }));
}

fn recoveries(scene: &Scene<'_>) {
    let instance = scene.instance;
    for sid in instance.tables().sids().chain([Sid::NONE, Sid::new(3), Sid::new(u32::MAX)]) {
        look(instance.recover(sid));
    }
    look(instance.recover_all());
    for id in instance.tables().mutexes().into_iter().map(|info| info.id).take(2) {
        // SAFETY: nobody holds it.
        unsafe { instance.unregister_mutex(id) };
    }
}
