//! Which cache lines an operation touches, for tests that count them; elsewhere this is nothing.

/// What a line belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Memory {
    Index,
    /// The places of slots in the index.
    Places,
    Slots,
}

/// Notes that a line is touched, by its number; of places, by that of the slot.
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

    /// Places in a cache line, of four bytes each.
    const PLACES: u32 = 16;

    thread_local! {
        static TOUCHED: RefCell<Option<BTreeSet<(Memory, u32)>>> = const { RefCell::new(None) };
    }

    pub(super) fn note(memory: Memory, number: u32) {
        let line = if memory == Memory::Places { number / PLACES } else { number };
        TOUCHED.with_borrow_mut(|touched| {
            if let Some(touched) = touched {
                touched.insert((memory, line));
            }
        });
    }

    /// How many lines of index, places and slots an operation touches.
    pub(crate) fn count<R>(operation: impl FnOnce() -> R) -> [usize; 3] {
        TOUCHED.set(Some(BTreeSet::new()));
        operation();
        let touched = TOUCHED.take().unwrap_or_default();
        [Memory::Index, Memory::Places, Memory::Slots]
            .map(|memory| touched.iter().filter(|(of, _)| *of == memory).count())
    }
}
