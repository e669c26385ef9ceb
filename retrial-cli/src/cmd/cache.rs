//! `retrial cache`.

use crate::instances::{Which, attach_error, cache_error, create_error, session_error};
use crate::output::{Format, Table, column, counted, quoted};
use crate::{duration, signals};
use clap::Subcommand;
use miette::{Report, miette};
use retrial::{Capacity, Class, CreateError, Instance, Session};
use retrial_cache::{Cache, Hash, Key, Namespace, ObjectInfo, PinInfo, Shape};
use std::process::ExitCode;

mod suggest;
mod work;

/// Make, look at and check a cache of named objects in shared memory
#[derive(clap::Args)]
#[command(after_help = "Examples:
  retrial cache create objects --bytes 64M -i shop    makes the instance too where there is none
  retrial cache work library-cache --sessions 8       calls one procedure; see `retrial top` meanwhile
  retrial cache ls --by copies
  retrial cache mark-hot 'SCOTT.RAISE_SALARY' 4 --namespace procedure
  retrial cache suggest-hot --for 30s                 which objects to mark, and what that will come to
  retrial cache check                                 exit code 1 where something is wrong")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Create(Create),
    Ls(Ls),
    /// Show the size of the cache, what it holds, and its counters
    Show(One),
    /// List the pins: session, object, and how
    Pins(One),
    /// List the hot objects and their copies
    Hot(One),
    MarkHot(MarkHot),
    UnmarkHot(UnmarkHot),
    SuggestHot(suggest::Args),
    LimitCopies(LimitCopies),
    /// Throw away the objects that nobody uses
    Flush(One),
    Check(Check),
    Work(work::Args),
}

/// A cache of an instance.
#[derive(clap::Args)]
struct One {
    /// Name of the cache
    #[arg(short, long, value_name = "NAME", default_value = "objects")]
    cache: String,
    #[command(flatten)]
    which: Which,
}

/// Make a cache, and its instance where there is none
#[derive(clap::Args)]
struct Create {
    /// Name of the cache
    #[arg(default_value = "objects")]
    name: String,
    #[command(flatten)]
    which: Which,
    /// Memory for objects, with K, M or G
    #[arg(long, value_name = "BYTES", default_value = "16M")]
    bytes: String,
    /// Shards; sessions that create or evict objects of one shard wait for each other
    /// [default: one for each MB, at most 64]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Sessions of an instance that is made
    #[arg(long, value_name = "N", default_value_t = 256)]
    sessions: u32,
}

/// List the objects, those that take most memory first
#[derive(clap::Args)]
struct Ls {
    #[command(flatten)]
    one: One,
    /// Order: bytes, name or copies
    #[arg(long, value_enum, default_value = "bytes")]
    by: Order,
    /// Objects to list
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum Order {
    Bytes,
    Name,
    Copies,
}

/// Spread the sessions that execute an object over copies of it
#[derive(clap::Args)]
struct MarkHot {
    /// `SCHEMA.NAME`, or the full hash that `retrial cache ls` shows
    object: String,
    /// Copies, 2 to 255
    #[arg(value_parser = clap::value_parser!(u8).range(2..))]
    copies: u8,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    one: One,
}

/// Limit the copies that objects are given: Oracle's `kgl_hot_object_copies`
#[derive(clap::Args)]
struct LimitCopies {
    /// Most copies of an object, 1 to 255; 255 for no limit
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    copies: u8,
    #[command(flatten)]
    one: One,
}

/// Execute the object alone again
#[derive(clap::Args)]
struct UnmarkHot {
    /// `SCHEMA.NAME`, or the full hash that `retrial cache ls` shows
    object: String,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    one: One,
}

/// What kind of object a name is of.
#[derive(clap::Args)]
struct Kind {
    /// object, procedure, cursor or child; of a name
    #[arg(long, value_name = "KIND", default_value = "object")]
    namespace: String,
    /// Version; of a name
    #[arg(long, value_name = "N", default_value_t = 0)]
    version: u16,
}

/// Audit the cache: every byte belongs to one thing, every pin to a living session
#[derive(clap::Args)]
struct Check {
    #[command(flatten)]
    one: One,
    /// Put the lists of each shard in order from its objects, then audit
    #[arg(long)]
    repair: bool,
}

pub fn run(args: Args, format: Format) -> Result<ExitCode, Report> {
    match args.what {
        What::Create(args) => create(&args, format),
        What::Ls(args) => args.one.with(|cache, session| list(&args, cache, session, format)),
        What::Show(one) => one.with(|cache, session| show(cache, session, format)),
        What::Pins(one) => one.with(|cache, session| pins(cache, session, format)),
        What::Hot(one) => one.with(|cache, session| {
            let hot = |object: &ObjectInfo| object.copies > 1;
            objects(cache, session, format, hot, Order::Copies, usize::MAX)
        }),
        What::MarkHot(args) => mark(&args.one, &args.object, &args.kind, args.copies, format),
        What::UnmarkHot(args) => mark(&args.one, &args.object, &args.kind, 1, format),
        What::SuggestHot(args) => suggest::run(&args, format),
        What::LimitCopies(args) => args.one.with(|cache, _| {
            cache.set_copies_max(args.copies);
            format.say(&format!("Objects get {} copies at most from now on.", cache.copies_max()));
            Ok(ExitCode::SUCCESS)
        }),
        What::Flush(one) => one.with(|cache, session| {
            let thrown = cache.flush(session).map_err(cache_error)?;
            format.say(&format!("Threw {} away.", counted(thrown, "object", "objects")));
            if !format.is_text() {
                Table::one([("thrown_away", thrown.into())]).print(format);
            }
            Ok(ExitCode::SUCCESS)
        }),
        What::Check(args) => args.one.with(|cache, session| check(args.repair, &args.one, cache, session, format)),
        What::Work(args) => work::run(&args, format),
    }
}

impl One {
    /// The options as the user typed them, for the commands that are suggested next.
    fn flags(&self) -> String {
        let cache = if self.cache == "objects" { String::new() } else { format!(" --cache {}", quoted(&self.cache)) };
        cache + &self.which.flag()
    }

    /// Has something done with the cache, by a session of its own.
    fn with(
        &self,
        deed: impl FnOnce(&Cache<'_>, &Session<'_>) -> Result<ExitCode, Report>,
    ) -> Result<ExitCode, Report> {
        let instance = self.which.attach()?;
        let session = instance.session("retrial cache", Class::Normal).map_err(session_error)?;
        let cache = Cache::open(&instance, &self.cache).map_err(cache_error)?;
        deed(&cache, &session)
    }
}

fn create(args: &Create, format: Format) -> Result<ExitCode, Report> {
    let bytes = super::create::bytes("--bytes", &args.bytes)?;
    let shape = args.shards.map_or(Shape::of(bytes), |shards| Shape { bytes, shards });
    // Before there is an instance, with room for this cache and no other.
    let shape = shape.check().map_err(cache_error)?;
    let address = args.which.address()?;
    // The cache has its memory from the start; what is left of the arena is for the user's own mutexes.
    let arena = shape.arena(args.sessions) + (1 << 20);
    // Each object has a mutex of its own, and sessions count each by itself.
    let capacity = Capacity { sessions: args.sessions, arena, rows: 256, ..Capacity::default() };
    let (instance, is_new) = match Instance::create(&address, capacity, 0o600) {
        Err(CreateError::Exists(_)) => (Instance::attach(&address).map_err(attach_error)?, false),
        made => (made.map_err(create_error)?, true),
    };
    let cache = Cache::create(&instance, &args.name, shape).map_err(|error| {
        if is_new {
            // This command has made it, and nothing is in it.
            let _ = std::fs::remove_file(address.path());
        }
        cache_error(error)
    })?;
    let flag = args.which.flag();
    if format.is_text() {
        format.say(&format!("Cache {} has {}.", cache.name(), cache.shape()));
        format.say(&format!("Next: retrial cache work{flag} --cache {} --for 5s", quoted(&args.name)));
    } else {
        Table::one([("name", args.name.clone().into()), ("bytes", bytes.into()), ("shards", shape.shards.into())])
            .print(format);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &Ls, cache: &Cache<'_>, session: &Session<'_>, format: Format) -> Result<ExitCode, Report> {
    objects(cache, session, format, |_| true, args.by, args.limit)
}

fn objects(
    cache: &Cache<'_>,
    session: &Session<'_>,
    format: Format,
    is_asked: impl Fn(&ObjectInfo) -> bool,
    by: Order,
    limit: usize,
) -> Result<ExitCode, Report> {
    let mut objects = cache.objects(session).map_err(cache_error)?;
    objects.retain(is_asked);
    objects.sort_by(|a, b| {
        let order = match by {
            Order::Bytes => b.taken.cmp(&a.taken),
            Order::Copies => b.copies.cmp(&a.copies),
            Order::Name => std::cmp::Ordering::Equal,
        };
        order.then_with(|| a.name.cmp(&b.name))
    });
    let all = objects.len();
    let columns = [
        column("object", |object: &ObjectInfo| object.name.clone()),
        column("namespace", |object: &ObjectInfo| object.namespace.map_or("unknown", Namespace::name)),
        column("hash", |object: &ObjectInfo| object.hash.to_string()),
        column("shard", |object: &ObjectInfo| object.shard),
        column("bytes", |object: &ObjectInfo| object.bytes),
        column("taken_bytes", |object: &ObjectInfo| object.taken),
        column("copies", |object: &ObjectInfo| u32::from(object.copies)),
        column("state", |object: &ObjectInfo| state(object.building, object.private)),
    ];
    Table::of(&columns, objects.iter().take(limit)).print(format);
    if all > limit {
        format.say(&format!("{} more; -n {all} lists all.", all - limit));
    } else if all == 0 {
        format.say("No objects.");
    }
    Ok(ExitCode::SUCCESS)
}

/// What an object is at, for people.
pub const fn state(building: bool, private: bool) -> &'static str {
    match (building, private) {
        (true, _) => "being built",
        (_, true) => "read privately",
        (_, false) => "read by its mutex",
    }
}

fn show(cache: &Cache<'_>, session: &Session<'_>, format: Format) -> Result<ExitCode, Report> {
    let totals = cache.totals(session).map_err(cache_error)?;
    let shape = cache.shape();
    let cells = [
        ("cache", cache.name().to_owned().into()),
        ("bytes", shape.bytes.into()),
        ("shards", shape.shards.into()),
        ("objects", totals.objects.into()),
        ("value_bytes", totals.values.into()),
        ("taken_bytes", totals.taken.into()),
        ("free_bytes", totals.free.into()),
        ("created", totals.created.into()),
        ("evicted", totals.evicted.into()),
        ("invalidated", totals.invalidated.into()),
        ("rebuilt_shards", totals.rebuilt.into()),
        ("gets", totals.gets.into()),
        ("hits", totals.hits.into()),
        ("hits_by_mutex", totals.counted.into()),
        ("revocations", totals.revocations.into()),
        ("copies_max", u32::from(cache.copies_max()).into()),
    ];
    Table::one(cells).print(format);
    Ok(ExitCode::SUCCESS)
}

fn pins(cache: &Cache<'_>, session: &Session<'_>, format: Format) -> Result<ExitCode, Report> {
    let pins = cache.pins(session).map_err(cache_error)?;
    let columns = [
        column("sid", |pin: &PinInfo| pin.sid.number()),
        column("object", |pin: &PinInfo| pin.name.clone()),
        column("how", |pin: &PinInfo| pin.how),
    ];
    Table::of(&columns, &pins).print(format);
    if pins.is_empty() {
        format.say("Nothing is pinned.");
    }
    Ok(ExitCode::SUCCESS)
}

fn mark(one: &One, object: &str, kind: &Kind, copies: u8, format: Format) -> Result<ExitCode, Report> {
    one.with(|cache, session| {
        let client = cache.join(session).map_err(cache_error)?;
        if let Some(hash) = Hash::parse(object) {
            client.mark_hot_by_hash(hash, copies).map_err(cache_error)?;
        } else {
            let namespace = Namespace::parse(&kind.namespace).ok_or_else(|| {
                miette!(
                    code = "retrial::cache::namespace",
                    help = "--namespace procedure",
                    "namespace `{}`, expected one of {}",
                    kind.namespace,
                    Namespace::ALL.map(Namespace::name).join(", ")
                )
            })?;
            let (schema, name) = object.split_once('.').unwrap_or(("", object));
            let key = Key::new(namespace, schema, name).version(kind.version);
            client.mark_hot(&key, copies).map_err(cache_error)?;
        }
        let copies = match copies {
            1 => "the object alone".to_owned(),
            _ => format!("one of {copies} copies, by processor"),
        };
        format.say(&format!("Sessions that execute {object} take {copies}."));
        Ok(ExitCode::SUCCESS)
    })
}

fn check(
    repair: bool,
    one: &One,
    cache: &Cache<'_>,
    session: &Session<'_>,
    format: Format,
) -> Result<ExitCode, Report> {
    if repair {
        cache.repair(session).map_err(cache_error)?;
    }
    let audit = cache.check(session).map_err(cache_error)?;
    if format.is_text() {
        format.say(&format!(
            "{}, {} being built, {} thrown away and not free yet, {}, {}.",
            counted(audit.objects, "object", "objects"),
            audit.building,
            audit.gone,
            counted(audit.free, "free block", "free blocks"),
            counted(audit.pins, "pin", "pins"),
        ));
        for wrong in &audit.wrong {
            format.say(wrong);
        }
        match (audit.wrong.is_empty(), repair) {
            (true, _) => format.say("The cache is whole."),
            (false, false) => format.say(&format!("Next: retrial cache check --repair{}", one.flags())),
            (false, true) => format.say("Next: make the cache again; what is wrong is not in its lists."),
        }
    } else {
        let cells = [
            ("objects", audit.objects.into()),
            ("building", audit.building.into()),
            ("gone", audit.gone.into()),
            ("free_blocks", audit.free.into()),
            ("pins", audit.pins.into()),
            ("wrong", audit.wrong.join("; ").into()),
        ];
        Table::one(cells).print(format);
    }
    Ok(if audit.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
