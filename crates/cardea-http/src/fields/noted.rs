//! The field lines of a head at an earlier moment.

use super::{Entry, Fields, REWRITTEN};

/// The lines that [`Fields`] had when they were noted. Changes append to the arena and overwrite nothing in it, so the
/// places of the lines are enough: 16 bytes each, whatever they say.
#[derive(Default)]
pub struct NotedFields {
    entries: Vec<Entry>,
    /// None where nothing was noted.
    present: Option<u128>,
}

impl NotedFields {
    /// The bytes of memory that are held, used or not.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Forgets what was noted and keeps the memory. To be called with [`Fields::clear`].
    pub fn clear(&mut self) {
        self.entries.clear();
        self.present = None;
    }
}

impl core::fmt::Debug for NotedFields {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NotedFields").field("lines", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Fields {
    /// Notes the lines as they are now, in place of what was noted before. Reuses the memory.
    pub fn note(&self, noted: &mut NotedFields) {
        noted.entries.clone_from(&self.entries);
        noted.present = Some(self.present);
    }

    /// Goes back to the lines that were noted of these fields, or of those that these were cloned from. False, and nothing has
    /// changed, where nothing was noted, or where the bytes of removed lines were given up because the fields had come to
    /// [`Fields::BYTES_MAX`].
    #[must_use]
    pub fn restore(&mut self, noted: &NotedFields) -> bool {
        let Some(present) = noted.present.filter(|_| self.present & REWRITTEN == 0) else { return false };
        self.entries.clone_from(&noted.entries);
        self.present = present;
        true
    }
}
