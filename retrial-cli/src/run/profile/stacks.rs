//! From registers and the copy of a stack to the places that its calls return to.

use crate::run::variables::Modules;
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder, UnwinderNative,
};
use object::{Object, ObjectSection};
use retrial::interposer::samples::{MAPS, STACK, Sample};
use retrial::sys::now_ns;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// In place of calls that are not known: those below the part of a stack that was copied, and those that
/// cannot be unwound.
const TRUNCATED: &str = "[truncated]";
const UNKNOWN: &str = "[unknown]";

/// More frames are as good as truncated.
const FRAMES: usize = 256;
/// A process whose modules did not have an address is not asked again within this time.
const ASKED_EVERY_NS: u64 = 100_000_000;
/// Older lists of modules are forgotten.
const LISTS: usize = 8;

/// A location, `MODULE+0xOFFSET`, or what stands for one, by its number in [`Locations`].
pub type Location = u32;

/// All locations met.
#[derive(Default)]
pub struct Locations {
    numbers: HashMap<String, Location>,
    names: Vec<String>,
}

impl Locations {
    fn number(&mut self, name: &str) -> Location {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as Location;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub fn name(&self, location: Location) -> &str {
        &self.names[location as usize]
    }
}

pub type Bytes = Arc<[u8]>;
pub type Native = UnwinderNative<Bytes, MayAllocateDuringUnwind>;

/// What a file has for unwinding.
#[derive(Clone)]
pub struct Tables {
    /// The file's own address of what is mapped first.
    base: u64,
    sections: ExplicitModuleSectionInfo<Bytes>,
}

impl Tables {
    pub fn read(path: &Path) -> Option<Self> {
        let data = fs::read(path).ok()?;
        let elf = object::File::parse(&*data).ok()?;
        let section = |name| elf.section_by_name(name);
        let range = |name| section(name).map(|section| section.address()..section.address() + section.size());
        let bytes = |name| section(name).and_then(|section| section.data().ok().map(Bytes::from));
        Some(Self {
            base: crate::run::symbols::base(&data),
            sections: ExplicitModuleSectionInfo {
                text_svma: range(".text"),
                got_svma: range(".got"),
                eh_frame_svma: range(".eh_frame"),
                eh_frame: bytes(".eh_frame"),
                eh_frame_hdr_svma: range(".eh_frame_hdr"),
                eh_frame_hdr: bytes(".eh_frame_hdr"),
                ..ExplicitModuleSectionInfo::default()
            },
        })
    }

    /// The same as a module that is mapped there.
    pub fn module(self, path: &str, start: u64, end: u64) -> Module<Bytes> {
        Module::new(path.to_owned(), start..end, start.wrapping_sub(self.base), self.sections)
    }
}

/// A program, from its `exec` on, with its forked children.
#[derive(Default)]
struct Image {
    /// Modules as they were found, the latest last: what was unloaded may still be on a stack.
    lists: Vec<Modules>,
    unwinder: Native,
    /// Locations by address.
    known: HashMap<u64, Option<Location>>,
    asked_ns: u64,
}

impl Image {
    fn learn(&mut self, maps: &str, files: &mut HashMap<PathBuf, Option<Tables>>) {
        let modules = Modules::parse(maps);
        if self.lists.last() == Some(&modules) {
            return;
        }
        for (path, start, end) in modules.code() {
            let is_known = self.lists.iter().any(|list| list.code().any(|known| known == (path, start, end)));
            let tables = files.entry(PathBuf::from(path)).or_insert_with(|| Tables::read(Path::new(path)));
            if let Some(tables) = tables.clone().filter(|_| !is_known) {
                self.unwinder.remove_module(start);
                self.unwinder.add_module(tables.module(path, start, end));
            }
        }
        self.lists.push(modules);
        if self.lists.len() > LISTS {
            self.lists.remove(0);
        }
        self.known.clear();
    }

    fn locate(&self, address: u64) -> Option<String> {
        self.lists.iter().rev().find_map(|modules| modules.locate(address))
    }
}

/// All programs, and what they have loaded.
pub struct Stacks {
    place: PathBuf,
    images: HashMap<u32, Image>,
    files: HashMap<PathBuf, Option<Tables>>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    pub locations: Locations,
}

impl Stacks {
    /// For programs that leave their mappings in this directory.
    pub fn new(place: &Path) -> Self {
        Self {
            place: place.to_owned(),
            images: HashMap::new(),
            files: HashMap::new(),
            cache: CacheNative::new(),
            locations: Locations::default(),
        }
    }

    fn image(&mut self, number: u32) -> &mut Image {
        self.images.entry(number).or_insert_with(|| {
            let mut image = Image::default();
            let maps = fs::read_to_string(self.place.join(format!("{MAPS}{number}"))).unwrap_or_default();
            image.learn(&maps, &mut self.files);
            image
        })
    }

    /// Asks a process for its modules anew, unless it was asked just now. Whether it was asked.
    fn ask(&mut self, sample: &Sample) -> bool {
        let now = now_ns();
        let image = self.image(sample.image);
        if now < image.asked_ns + ASKED_EVERY_NS {
            return false;
        }
        image.asked_ns = now;
        let maps = fs::read_to_string(format!("/proc/{}/maps", sample.pid)).unwrap_or_default();
        if let Some(image) = self.images.get_mut(&sample.image).filter(|_| !maps.is_empty()) {
            image.learn(&maps, &mut self.files);
        }
        true
    }

    /// The module and offset of a static variable; `None` for what is on the heap or on a stack.
    pub fn variable(&mut self, sample: &Sample) -> Option<Location> {
        let location = self.image(sample.image).locate(sample.address)?;
        Some(self.locations.number(&location))
    }

    /// Where the calls on a stack return to, innermost first, from the program's own call on.
    pub fn unwind(&mut self, sample: &Sample, stack: &[u8]) -> Vec<Location> {
        match self.try_unwind(sample, stack) {
            // A call through a module that was loaded since.
            (_, false) if self.ask(sample) => self.try_unwind(sample, stack).0,
            (frames, _) => frames,
        }
    }

    /// The same, and whether all of it was found.
    fn try_unwind(&mut self, sample: &Sample, stack: &[u8]) -> (Vec<Location>, bool) {
        self.image(sample.image);
        let Some(image) = self.images.get_mut(&sample.image) else { return (Vec::new(), false) };
        let registers = sample.registers;
        let mut beyond = false;
        let mut read = |address: u64| {
            let at = usize::try_from(address.wrapping_sub(registers.sp)).unwrap_or(usize::MAX);
            let bytes = at.checked_add(8).and_then(|end| stack.get(at..end));
            beyond |= bytes.is_none() && at < 2 * STACK;
            bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes).ok_or(())
        };
        let mut addresses = Vec::new();
        let mut iterator = image.unwinder.iter_frames(registers.ip, start(sample), &mut self.cache, &mut read);
        let ended = loop {
            match iterator.next() {
                Ok(Some(frame)) if addresses.len() < FRAMES => addresses.push(frame.address()),
                Ok(None) => break true,
                _ => break false,
            }
        };
        let own = image.locate(registers.ip);
        let own = own.as_deref().and_then(module);
        let mut frames = Vec::new();
        for address in addresses {
            let Image { lists, known, .. } = image;
            let location = *known.entry(address).or_insert_with(|| {
                let name = lists.iter().rev().find_map(|modules| modules.locate(address))?;
                Some(self.locations.number(&name))
            });
            let Some(location) = location else {
                frames.push(self.locations.number(UNKNOWN));
                return (frames, false);
            };
            if !frames.is_empty() || module(self.locations.name(location)) != own {
                frames.push(location);
            }
        }
        let is_cut = stack.len() == STACK && beyond || frames.len() + 1 >= FRAMES;
        match (ended, is_cut) {
            (true, _) => (frames, true),
            (false, true) => {
                frames.push(self.locations.number(TRUNCATED));
                (frames, true)
            }
            (false, false) => {
                frames.push(self.locations.number(UNKNOWN));
                (frames, false)
            }
        }
    }
}

/// The module of a location.
fn module(location: &str) -> Option<&str> {
    Some(location.rsplit_once("+0x")?.0)
}

#[cfg(target_arch = "x86_64")]
fn start(sample: &Sample) -> UnwindRegsNative {
    let registers = sample.registers;
    UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn start(sample: &Sample) -> UnwindRegsNative {
    let registers = sample.registers;
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}
