//! Sessions end with the keys of the certificates that they began under.
//!
//! A key is replaced because it may have leaked, or its certificate because it was revoked. Whoever began a session with it
//! must not go on without seeing the new one. So each session is kept with a mark of the keys that its host was served
//! with, and is resumed only while these are the same; whether it is kept here or in a ticket.

use std::fmt;
use std::sync::Arc;

use rustls::server::{ProducesTickets, StoresServerSessions};
use zeroize::Zeroize;

use crate::names::{KEY_MARK_LEN, KeyMark, Names};

/// A store of sessions, or what makes tickets, for hosts with these keys.
pub(crate) struct Bound<T: ?Sized> {
    names: Arc<Names>,
    inner: Arc<T>,
}

impl<T: ?Sized> Bound<T> {
    pub(crate) fn new(names: &Arc<Names>, inner: Arc<T>) -> Arc<Self> {
        Arc::new(Self { names: Arc::clone(names), inner })
    }

    fn mark_of(&self, session: &[u8]) -> Option<KeyMark> {
        self.names.key_mark(server_name(session)?)
    }

    /// The session with its mark behind it; nothing where it can't be one.
    fn marked(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mark = self.mark_of(session)?;
        // One allocation: growing would leave a copy behind that nobody wipes.
        let mut marked = Vec::with_capacity(session.len() + KEY_MARK_LEN);
        marked.extend_from_slice(session);
        marked.extend_from_slice(&mark);
        Some(marked)
    }

    /// The session, if its host still has the keys that it began under.
    fn unmarked(&self, mut marked: Vec<u8>) -> Option<Vec<u8>> {
        let same =
            marked.split_last_chunk().is_some_and(|(session, mark)| self.mark_of(session) == Some(*mark));
        if !same {
            marked.zeroize();
            return None;
        }
        marked.truncate(marked.len() - KEY_MARK_LEN);
        Some(marked)
    }
}

impl<T: StoresServerSessions + ?Sized> StoresServerSessions for Bound<T> {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        let marked = self.marked(&value);
        value.zeroize();
        marked.is_some_and(|marked| self.inner.put(key, marked))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.unmarked(self.inner.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.unmarked(self.inner.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.inner.can_cache()
    }
}

impl<T: ProducesTickets + ?Sized> ProducesTickets for Bound<T> {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut marked = self.marked(plain)?;
        let ticket = self.inner.encrypt(&marked);
        marked.zeroize();
        ticket
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.unmarked(self.inner.decrypt(cipher)?)
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The server name of a session, as rustls writes it: a mark of whether there is one, its length, its octets. Nothing where
/// it is written otherwise.
fn server_name(session: &[u8]) -> Option<Option<&str>> {
    match session.split_first()? {
        (0, _) => Some(None),
        (1, rest) => {
            let (len, rest) = rest.split_first()?;
            std::str::from_utf8(rest.get(..usize::from(*len))?).ok().map(Some)
        }
        _ => None,
    }
}
