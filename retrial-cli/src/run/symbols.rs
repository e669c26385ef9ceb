//! From `MODULE+0xOFFSET`, as the interposer names locations, to function, file and line.

use addr2line::Loader;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a mutex was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the module's file.
    pub module: String,
    pub offset: u64,
    pub function: Option<String>,
    /// Bytes from the function's start.
    pub into: u64,
    /// File and line.
    pub line: Option<String>,
}

impl Place {
    /// `sortlines+0x4a (sort)`, `push (queue.c:12)`, `sort+0x1a2b`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match (&self.function, &self.line) {
            (Some(function), Some(line)) => text = format!("{function} ({line})"),
            (Some(function), None) => {
                let _ = write!(text, "{function}+{:#x} ({})", self.into, self.module);
            }
            (None, Some(line)) => text.clone_from(line),
            (None, None) => {
                let _ = write!(text, "{}+{:#x}", self.module, self.offset);
            }
        }
        text
    }
}

/// A name for the addresses from its start to before its end.
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

struct Module {
    /// What is to be added to an offset from where the file is mapped.
    base: u64,
    /// Where its last variable ends, by its own reckoning.
    end: u64,
    symbols: Vec<Symbol>,
    variables: Vec<Symbol>,
    lines: Option<Loader>,
}

/// Modules looked at so far.
#[derive(Default)]
pub struct Symbols {
    modules: HashMap<PathBuf, Option<Module>>,
}

impl Symbols {
    /// The place behind a location's name; `None` when it has not the form of an address.
    pub fn place(&mut self, location: &str) -> Option<Place> {
        let (path, offset) = location.rsplit_once("+0x")?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        let path = Path::new(path);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let module = self.modules.entry(path.to_owned()).or_insert_with(|| Module::open(path));
        let place = Place { module: name, offset, ..Place::default() };
        Some(module.as_ref().map_or(place.clone(), |module| module.fill(place)))
    }

    /// The place as text, the location's own name where it is no address.
    pub fn text(&mut self, location: &str) -> String {
        self.place(location).map_or_else(|| location.to_owned(), |place| place.text())
    }

    /// The functions at a location, innermost first: several where calls are inlined. Without symbols the
    /// offset, and of what is no address its own name.
    pub fn functions(&mut self, location: &str) -> Vec<String> {
        let Some(place) = self.place(location) else { return vec![location.to_owned()] };
        let module = location.rsplit_once("+0x").and_then(|(path, _)| self.modules.get(Path::new(path))?.as_ref());
        let inlined = module.map(|module| module.functions(&place)).unwrap_or_default();
        match (inlined.is_empty(), place.function) {
            (false, _) => inlined,
            (true, Some(function)) => vec![function],
            (true, None) => vec![format!("{}+{:#x}", place.module, place.offset)],
        }
    }

    /// The static variable at `MODULE+0xOFFSET`: `lock (memcached)`, `table+0x28 (sort)`; without symbols the
    /// offset. `None` beyond the module's end: other memory may follow it, which the kernel shows as one with
    /// the module's zeroed variables.
    pub fn variable(&mut self, location: &str) -> Option<String> {
        let Place { module, offset, .. } = self.place(location)?;
        let path = location.rsplit_once("+0x")?.0;
        let Some(known) = self.modules.get(Path::new(path))?.as_ref() else {
            return Some(format!("{module}+{offset:#x}"));
        };
        let address = offset + known.base;
        if address >= known.end {
            return None;
        }
        let symbol = known.variables.iter().find(|symbol| (symbol.start..symbol.end).contains(&address));
        Some(match symbol {
            Some(symbol) if symbol.start == address => format!("{} ({module})", demangled(&symbol.name)),
            Some(symbol) => format!("{}+{:#x} ({module})", demangled(&symbol.name), address - symbol.start),
            None => format!("{module}+{offset:#x}"),
        })
    }
}

impl Module {
    fn open(path: &Path) -> Option<Self> {
        let data = fs::read(path).ok()?;
        let elf = object::File::parse(&*data).ok()?;
        let debug = debug_file(&elf);
        let mut symbols = symbols_of(&elf, SymbolKind::Text);
        let mut variables = symbols_of(&elf, SymbolKind::Data);
        if let Some(data) = debug.as_ref().and_then(|path| fs::read(path).ok())
            && let Ok(elf) = object::File::parse(&*data)
        {
            symbols.extend(symbols_of(&elf, SymbolKind::Text));
            variables.extend(symbols_of(&elf, SymbolKind::Data));
        }
        symbols.sort_by_key(|symbol| symbol.start);
        let lines = Loader::new(debug.as_deref().unwrap_or(path)).ok();
        let (base, end) = extent(&data);
        Some(Self { base, end, symbols, variables, lines })
    }

    fn fill(&self, mut place: Place) -> Place {
        // The address is where the call returns to; the call is before it.
        let probe = (place.offset + self.base).saturating_sub(1);
        let after = self.symbols.partition_point(|symbol| symbol.start <= probe);
        // Symbols may lie within others: the nearest few before the address are asked whether they have it.
        if let Some(symbol) = self.symbols[..after].iter().rev().take(8).find(|symbol| probe < symbol.end) {
            place.function = Some(demangled(&symbol.name));
            place.into = probe + 1 - symbol.start;
        }
        if let Some((function, line)) = self.lines.as_ref().and_then(|lines| frame(lines, probe)) {
            place.line = line;
            if let Some(function) = function {
                place.function = Some(function);
            }
        }
        place
    }

    /// The functions at a place, innermost first, without those of headers; none where there is no debug
    /// information.
    fn functions(&self, place: &Place) -> Vec<String> {
        let probe = (place.offset + self.base).saturating_sub(1);
        let mut functions = Vec::new();
        let Some(Ok(mut frames)) = self.lines.as_ref().map(|lines| lines.find_frames(probe)) else { return functions };
        while let Ok(Some(frame)) = frames.next() {
            let path = frame.location.as_ref().and_then(|location| location.file).unwrap_or_default();
            let name = frame.function.and_then(|function| function.raw_name().ok().map(|name| demangled(&name)));
            functions.extend(name.filter(|_| !is_header(path)));
        }
        functions
    }
}

/// Whether a file is a library's header, whose functions are inlined between a program's and a lock's.
fn is_header(path: &str) -> bool {
    path.starts_with("/usr/include/") || path.contains("/include/c++/")
}

/// Function and line of an address: the innermost frame that is the program's own, for the calls of a mutex
/// are inlined from the headers of a library.
fn frame(lines: &Loader, probe: u64) -> Option<(Option<String>, Option<String>)> {
    let mut frames = lines.find_frames(probe).ok()?;
    let mut innermost = None;
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.and_then(|function| function.raw_name().ok().map(|name| demangled(&name)));
        let path = frame.location.as_ref().and_then(|location| location.file).unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        let line = frame.location.as_ref().and_then(|location| location.line);
        let line = line.filter(|_| !file.is_empty()).map(|line| format!("{file}:{line}"));
        if !is_header(path) {
            return Some((function, line));
        }
        innermost.get_or_insert((function, line));
    }
    innermost
}

fn symbols_of(elf: &object::File<'_>, kind: SymbolKind) -> Vec<Symbol> {
    let all = elf.symbols().chain(elf.dynamic_symbols());
    all.filter(|symbol| symbol.is_definition() && symbol.kind() == kind && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = symbol.name().ok()?.to_owned();
            Some(Symbol { start: symbol.address(), end: symbol.address() + symbol.size(), name })
        })
        .collect()
}

/// The separate file of debug information of the same build, where distributions put it.
fn debug_file(elf: &object::File<'_>) -> Option<PathBuf> {
    let id = elf.build_id().ok()??;
    let hex = id.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let path = format!("/usr/lib/debug/.build-id/{}/{}.debug", hex.get(..2)?, hex.get(2..)?);
    Some(PathBuf::from(path)).filter(|path| path.exists())
}

/// Address of the file's first loaded page, by its own reckoning: 0 but for programs at a fixed address.
pub(super) fn base(data: &[u8]) -> u64 {
    extent(data).0
}

/// That address, and where the last segment ends in memory.
fn extent(data: &[u8]) -> (u64, u64) {
    let Ok(header) = object::elf::FileHeader64::<object::Endianness>::parse(data) else { return (0, 0) };
    let Ok(endian) = header.endian() else { return (0, 0) };
    let Ok(segments) = header.program_headers(endian, data) else { return (0, 0) };
    let loaded = || segments.iter().filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD);
    let base = loaded().map(|segment| segment.p_vaddr(endian) & !4095).min();
    let end = loaded().map(|segment| segment.p_vaddr(endian).saturating_add(segment.p_memsz(endian))).max();
    (base.unwrap_or(0), end.unwrap_or(0))
}

fn demangled(name: &str) -> String {
    let bare = name.split('@').next().unwrap_or(name);
    // The demangler takes a name of one letter for a type of C++.
    if bare.starts_with('_') { short(&addr2line::demangle_auto(bare.into(), None)) } else { bare.to_owned() }
}

/// A C++ or Rust name without its parameters and hash, so that it fits a column.
fn short(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    let name = name.split('(').next().unwrap_or_default();
    let name = match name.rsplit_once("::h") {
        Some((rest, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest,
        _ => name,
    };
    if name.chars().count() > 60 { name.chars().take(59).chain(['…']).collect() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No call in it is inlined: the name would be that of the inlined function.
    #[inline(never)]
    fn known_function(number: u64) -> u64 {
        number * 7_001
    }

    #[test]
    fn an_address_in_this_test_has_its_function() {
        assert_eq!(known_function(2), 14_002);
        let executable = std::env::current_exe().unwrap();
        let address = known_function as *const () as u64;
        // The first mapping of our own file is where the loader put it.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with(executable.to_str().unwrap())).unwrap();
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let location = format!("{}+{:#x}", executable.display(), address - start + 1);
        let place = Symbols::default().place(&location).unwrap();
        assert!(place.function.as_deref().is_some_and(|f| f.contains("known_function")), "{place:?}");
    }

    #[test]
    fn what_cannot_be_opened_keeps_its_offset() {
        assert_eq!(Symbols::default().text("/no/such/lib.so+0x1a"), "lib.so+0x1a");
        assert_eq!(Symbols::default().text("unknown"), "unknown");
        assert_eq!(Symbols::default().variable("/no/such/file.mdb+0x1a").as_deref(), Some("file.mdb+0x1a"));
        assert_eq!((demangled("m"), demangled("_ZN2ns1fEv@V1")), ("m".to_owned(), "ns::f".to_owned()));
        assert_eq!(short("core::f::h0123456789abcdef"), "core::f");
        assert_eq!(short("ns::f(int, char)"), "ns::f");
    }
}
