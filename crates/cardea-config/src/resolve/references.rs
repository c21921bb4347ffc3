//! References to named tables: services, issuers, listeners and so on.

use super::{
    super::{document::Cursor, suggest},
    Resolver,
};

impl Resolver<'_> {
    /// Reports the names in a list that do not exist.
    pub(super) fn known_names<'n>(
        &mut self,
        what: &str,
        written: &[String],
        known: impl Iterator<Item = &'n str> + Clone,
        at: Cursor<'_>,
    ) {
        for (index, name) in written.iter().enumerate() {
            if !known.clone().any(|known| known == name) {
                self.unknown(what, name, known.clone(), at.index(index));
            }
        }
    }

    /// Reports a text that is in a list twice.
    pub(super) fn no_repetition(&mut self, written: &[String], at: Cursor<'_>) {
        for (index, name) in written.iter().enumerate() {
            if written.iter().take(index).any(|earlier| earlier == name) {
                let at = at.index(index);
                self.error(at, format!("{:?} is there twice", at.shown(name)), "remove one of them");
            }
        }
    }

    /// Reports a reference to something that does not exist.
    pub(super) fn unknown<'n>(
        &mut self,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'n str>,
        at: Cursor<'_>,
    ) {
        if self.dropped.any(what) {
            return;
        }
        let mut known: Vec<&str> = known.collect();
        known.sort_unstable();
        let near = match self.suggestions_left.checked_sub(1) {
            Some(left) => {
                self.suggestions_left = left;
                suggest::nearest(name, known.iter().copied())
            }
            None => None,
        };
        let remedy = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None if (1..=8).contains(&known.len()) => format!("there are: {}", known.join(", ")),
            None => format!("add a table [[{what}]] with this name"),
        };
        self.error(at, format!("there is no {what} called {:?}", at.shown(name)), remedy);
    }
}
