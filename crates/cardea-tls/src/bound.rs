//! Binds sessions to the keys of the certificates that they began with.
//!
//! A key is replaced because it may have leaked, or because its certificate was revoked. A client that began a session
//! with it must then see the new certificate. So each session carries a mark of its host's keys and is resumed only
//! while these are unchanged, whether it is stored here or in a ticket.

use std::fmt;
use std::sync::Arc;

use rustls::server::{ProducesTickets, StoresServerSessions};
use zeroize::Zeroize;

use crate::names::{KEY_MARK_LEN, KeyMark, Names};

/// A session store or ticketer for hosts with these keys.
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

    /// The session followed by its mark; `None` if it can't be a session.
    fn marked(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mark = self.mark_of(session)?;
        // One allocation, because growing would leave a copy that is not wiped.
        let mut marked = Vec::with_capacity(session.len() + KEY_MARK_LEN);
        marked.extend_from_slice(session);
        marked.extend_from_slice(&mark);
        Some(marked)
    }

    /// The session, if its host still has the keys that it began with.
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

/// The server name of a session in the encoding of rustls: a flag, its length, its octets. `None` for another encoding.
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
