//! Short text in shared memory: fixed length, no pointers, torn at worst.

use crate::sys::{AtomicU64, Ordering};
use std::fmt::{self, Display, Formatter};

/// The last boundary of characters up to `len` bytes: `str::floor_char_boundary` for compilers before 1.91.
fn floor(text: &str, len: usize) -> usize {
    (0..=len.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// What `write` writes: `fmt::from_fn` for compilers before 1.93.
pub(crate) fn written(write: impl Fn(&mut Formatter<'_>) -> fmt::Result) -> impl Display {
    struct Written<F>(F);
    impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for Written<F> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }
    Written(write)
}

/// Up to `8 * N` bytes of UTF-8; what does not fit is cut off.
#[repr(C)]
pub(crate) struct Text<const N: usize>([AtomicU64; N]);

#[cfg(any(loom, shuttle))]
impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Text<N> {
    pub(crate) fn set(&self, text: &str) {
        let bytes = &text.as_bytes()[..floor(text, 8 * N)];
        for (i, word) in self.0.iter().enumerate() {
            let mut part = [0; 8];
            let rest = bytes.get(8 * i..).unwrap_or(&[]);
            let len = rest.len().min(8);
            part[..len].copy_from_slice(&rest[..len]);
            // Relaxed: readers take what they find; what must be seen whole is published after it.
            word.store(u64::from_le_bytes(part), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> String {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes it without allocating.
    pub(crate) fn write(&self, to: &mut impl std::fmt::Write) -> std::fmt::Result {
        let mut bytes = [[0; 8]; N];
        for (part, word) in bytes.iter_mut().zip(&self.0) {
            *part = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let bytes = bytes.as_flattened();
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        bytes[..len].utf8_chunks().try_for_each(|chunk| to.write_str(chunk.valid()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0[0].load(Ordering::Relaxed) == 0
    }
}

/// A line that is put together on the stack, for where nothing may be allocated: a session that waits for a
/// mutex may wait for the allocator's. What does not fit is cut off.
pub(crate) struct Line {
    bytes: [u8; 240],
    len: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 240], len: 0 }
    }

    pub(crate) fn as_str(&self) -> &str {
        // Whole strings cut at character boundaries were put in.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.len;
        let text = &text.as_bytes()[..floor(text, room)];
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
        Ok(())
    }
}

/// FNV-1a of a name; never 0 to 15, which tables use as marks.
pub(crate) const fn hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash | 16
}
