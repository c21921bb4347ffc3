//! Records the cache lines that an operation touches, for tests; a no-op otherwise.

/// The structure that a line belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Memory {
    Index,
    /// The positions of slots in the index.
    Places,
    Slots,
    /// The links of the wheel.
    Links,
}

/// Records a touched line by its number, or that of the position or link in it.
#[inline(always)]
pub(crate) fn touch(memory: Memory, number: u32) {
    #[cfg(test)]
    tests::note(memory, number);
    #[cfg(not(test))]
    let _ = (memory, number);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::Memory;

    /// A cache line.
    pub(crate) type Line = (Memory, u32);

    thread_local! {
        static TOUCHED: RefCell<Option<BTreeSet<Line>>> = const { RefCell::new(None) };
    }

    /// The line that contains this number.
    pub(crate) fn line(memory: Memory, number: u32) -> Line {
        let in_line = match memory {
            Memory::Index | Memory::Slots => 1,
            Memory::Places => 16,
            Memory::Links => 8,
        };
        (memory, number / in_line)
    }

    pub(super) fn note(memory: Memory, number: u32) {
        TOUCHED.with_borrow_mut(|touched| {
            if let Some(touched) = touched {
                touched.insert(line(memory, number));
            }
        });
    }

    /// The lines that an operation touches.
    pub(crate) fn by<R>(operation: impl FnOnce() -> R) -> BTreeSet<Line> {
        TOUCHED.set(Some(BTreeSet::new()));
        operation();
        TOUCHED.take().unwrap_or_default()
    }
}
