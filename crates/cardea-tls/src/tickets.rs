//! Tickets that contain their encrypted session.
//!
//! Their keys are derived from a secret, of this process or shared by a fleet, and the hour: the nodes of a fleet
//! derive the same keys without communication, and each opens the tickets of the others. Each hour's secret is derived
//! from the previous one by a one-way function, and secrets that no valid ticket needs are wiped. So a leaked secret
//! opens no older ticket. Each ticket has its own key, derived from its hour's secret, the listener's audience, and a
//! salt: tickets of one listener are invalid at another one, and no nonce can repeat.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::rand;
use cardea_clock::{Clock, ConfirmedWall, Mono, Timestamp, Wall};
use rustls::ProtocolVersion;
use rustls::server::ProducesTickets;

use crate::config::{StatelessTickets, TicketKeys};
use crate::error::{CertificateError, CertificateProblem, TlsError};
use crate::files::{self, Stamp};

mod ratchet;
mod secret_file;

use ratchet::{Ring, SECRET_LEN, STEP, Secret, expand, step_at};

/// The salt, which makes the key of a ticket unique.
const SALT_LEN: usize = 32;
/// The bytes before the encrypted session: the number of the hour, then the salt.
const HEAD_LEN: usize = size_of::<u64>() + SALT_LEN;
/// RFC 8446 §4.6.1: no ticket is used for longer than 7 days.
const STEPS_MAX: u64 = 7 * 24 - 1;

/// The secrets of the current and recent hours.
pub(crate) struct TicketSecrets {
    rings: RwLock<Rings>,
    clock: Clock,
    /// The number of hours for which a ticket is valid at least.
    kept: u64,
    /// `None` if this process generated the secret.
    file: Option<SecretFile>,
}

/// What can't be undone, in memory or in the file, follows the confirmed time.
struct Rings {
    /// Secrets up to the confirmed time. Earlier ones were wiped.
    ring: Ring,
    /// A copy that is advanced to the time of a clock that is ahead of the confirmed time.
    ahead: Option<Ring>,
    clock: ConfirmedWall,
}

impl Rings {
    fn new(ring: Ring, now: Timestamp) -> Self {
        Self { ring, ahead: None, clock: ConfirmedWall::new(now, STEP, STEP) }
    }

    /// The last confirmed hour.
    fn confirmed(&self, now: Mono) -> u64 {
        self.clock.latest(now).map_or(0, step_at)
    }

    /// The secrets for the present hour, unless some must be derived or wiped first.
    fn current(&self, now: Timestamp) -> Option<&Ring> {
        let step = step_at(now.wall);
        if step <= self.confirmed(now.mono) {
            return Some(&self.ring).filter(|ring| ring.is_current(step));
        }
        self.ahead.as_ref().filter(|ahead| ahead.is_current(step) && ahead.secret(step).is_some())
    }

    fn advance(&mut self, now: Timestamp, kept: u64) -> &Ring {
        self.clock.observe(now);
        let step = step_at(now.wall);
        if step <= self.confirmed(now.mono) {
            if !self.ring.is_current(step) {
                self.ring.advance(step, kept);
            }
            self.ahead = None;
            return &self.ring;
        }
        let mut ahead = self.ring.clone();
        ahead.advance(step, kept);
        self.ahead.insert(ahead)
    }
}

/// The file of a fleet's secret.
struct SecretFile {
    path: PathBuf,
    watched: Mutex<Watched>,
}

struct Watched {
    stamp: Stamp,
    /// Whether a failure to write the file was reported.
    is_reported: bool,
}

impl TicketSecrets {
    /// Generates the secret, or reads it and advances it to the present.
    pub(crate) fn load(keys: &TicketKeys, lifetime: Duration, clock: &Clock) -> Result<Arc<Self>, TlsError> {
        let kept = lifetime.as_secs().div_ceil(STEP.as_secs()).clamp(1, STEPS_MAX);
        let now = clock.now();
        let (ring, file) = match keys {
            TicketKeys::Process => (made(now.wall, kept).ok_or(rustls::Error::FailedToGetRandomBytes)?, None),
            TicketKeys::Fleet(config) => {
                let stamp = Stamp::of(&config.file);
                let ring = read(&config.file, now.wall, 0, kept)
                    .map_err(|error| TlsError::Certificates(vec![error]))?;
                if files::world_readable(&config.file) {
                    tracing::warn!(path = %config.file.display(), "every user of this machine can read this ticket secret");
                }
                let watched = Mutex::new(Watched { stamp, is_reported: false });
                (ring, Some(SecretFile { path: config.file.clone(), watched }))
            }
        };
        Ok(Arc::new(Self { rings: RwLock::new(Rings::new(ring, now)), clock: clock.clone(), kept, file }))
    }

    /// Reloads the file if it was changed, and advances it, so that it opens no more tickets than this process does.
    pub(crate) fn tick(&self, now: Wall) -> Result<(), CertificateError> {
        let now = Timestamp { wall: now, mono: self.clock.mono() };
        let mut rings = self.rings.write().unwrap_or_else(PoisonError::into_inner);
        rings.advance(now, self.kept);
        let confirmed = rings.confirmed(now.mono);
        drop(rings);
        let Some(file) = &self.file else {
            self.make_again(now);
            return Ok(());
        };
        let mut watched = file.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&file.path);
        if stamp != watched.stamp {
            let ring = read(&file.path, now.wall, confirmed, self.kept)?;
            let mut rings = self.rings.write().unwrap_or_else(PoisonError::into_inner);
            (rings.ring, rings.ahead) = (ring, None);
            drop(rings);
            watched.stamp = stamp;
        }
        drop(watched);
        self.forget(file);
        Ok(())
    }

    /// Generates a new secret if there is none for this time, because the clock was corrected by more than the lifetime
    /// of a session.
    fn make_again(&self, now: Timestamp) {
        let is_lost = self.at(now, |ring, step| ring.secret(step).is_none());
        if is_lost && let Some(ring) = made(now.wall, self.kept) {
            let mut rings = self.rings.write().unwrap_or_else(PoisonError::into_inner);
            (rings.ring, rings.ahead) = (ring, None);
        }
    }

    /// Replaces the secret in the file by that of the oldest kept hour. A failure is reported once: then the file opens
    /// all tickets since it was written.
    fn forget(&self, file: &SecretFile) {
        let first = self.rings.read().unwrap_or_else(PoisonError::into_inner).ring.first();
        let mut watched = file.watched.lock().unwrap_or_else(PoisonError::into_inner);
        match secret_file::move_on(&file.path, first) {
            Ok(false) => {}
            Ok(true) => watched.stamp = Stamp::of(&file.path),
            Err(error) if !watched.is_reported => {
                watched.is_reported = true;
                tracing::warn!(
                    file = %file.path.display(), %error,
                    "the ticket secret can't be updated in its file, which still decrypts old tickets"
                );
            }
            Err(_) => {}
        }
    }

    /// Runs `read` on up-to-date secrets, with the current hour.
    fn at<R>(&self, now: Timestamp, read: impl FnOnce(&Ring, u64) -> R) -> R {
        let step = step_at(now.wall);
        let rings = self.rings.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = rings.current(now) {
            return read(ring, step);
        }
        drop(rings);
        let mut rings = self.rings.write().unwrap_or_else(PoisonError::into_inner);
        read(rings.advance(now, self.kept), step)
    }
}

impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map(|file| &file.path);
        f.debug_struct("TicketSecrets").field("file", &file).finish_non_exhaustive()
    }
}

/// The secrets derived from the file, up to the hour `confirmed`.
fn read(path: &Path, now: Wall, confirmed: u64, kept: u64) -> Result<Ring, CertificateError> {
    secret_file::read(path)
        .and_then(|(begin, secret)| {
            Ring::new(begin, secret, step_at(now), confirmed, kept).map_err(CertificateProblem::TicketSecret)
        })
        .map_err(|problem| CertificateError { path: path.to_owned(), problem })
}

/// Random secrets; `None` if the operating system provides no randomness. They begin in the past, so that a clock that
/// is set back a little still has some.
fn made(now: Wall, kept: u64) -> Option<Ring> {
    let mut secret = Secret::default();
    rand::fill(&mut *secret).ok()?;
    let now = step_at(now);
    Ring::new(now.saturating_sub(kept), secret, now, now, kept).ok()
}

/// Encrypts and decrypts the tickets of one listener.
#[derive(Debug)]
pub(crate) struct Ticketer {
    secrets: Arc<TicketSecrets>,
    /// A digest of the listener's properties: tickets are valid only with the same digest.
    audience: [u8; digest::SHA256_OUTPUT_LEN],
    /// Whether TLS 1.2 sessions are put into tickets too.
    tls12: bool,
}

impl Ticketer {
    /// For a listener with these hosts in these trust domains.
    pub(crate) fn new(secrets: &Arc<TicketSecrets>, config: &StatelessTickets, domains: &[u8]) -> Arc<Self> {
        let context = match &config.keys {
            // Each listener has its own secret.
            TicketKeys::Process => "",
            TicketKeys::Fleet(fleet) => &fleet.context,
        };
        let mut hash = digest::Context::new(&SHA256);
        hash.update(&(context.len() as u64).to_be_bytes());
        hash.update(context.as_bytes());
        hash.update(domains);
        let mut audience = [0; digest::SHA256_OUTPUT_LEN];
        audience.copy_from_slice(hash.finish().as_ref());
        Arc::new(Self { secrets: Arc::clone(secrets), audience, tls12: config.tls12 })
    }

    /// Whether a session may be put into a ticket.
    fn takes(&self, session: &[u8]) -> bool {
        self.tls12 || is_tls13(session)
    }

    fn seal(&self, plain: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        let mut ticket = vec![0; HEAD_LEN];
        ticket.reserve_exact(plain.len() + AES_256_GCM.tag_len());
        let (hour, salt) = ticket.split_at_mut(size_of::<u64>());
        rand::fill(salt).ok()?;
        let key = self.secrets.at(now, |ring, step| {
            hour.copy_from_slice(&step.to_be_bytes());
            self.key(ring.secret(step)?, hour, salt)
        })?;
        ticket.extend_from_slice(plain);
        let (head, sealed) = ticket.split_at_mut(HEAD_LEN);
        let tag = key.seal_in_place_separate_tag(nonce(), Aad::from(&*head), sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        let (head, sealed) = ticket.split_at_checked(HEAD_LEN)?;
        let (hour, salt) = head.split_at_checked(size_of::<u64>())?;
        let step = u64::from_be_bytes(hour.try_into().ok()?);
        let key = self.secrets.at(now, |ring, now| {
            // A node's clock may be one hour ahead.
            let counts = step <= now + 1 && now <= step.saturating_add(self.secrets.kept);
            self.key(ring.secret(step).filter(|_| counts)?, hour, salt)
        })?;
        let mut plain = sealed.to_vec();
        let len = key.open_in_place(nonce(), Aad::from(head), &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }

    /// The key of one ticket.
    fn key(&self, secret: &[u8; SECRET_LEN], hour: &[u8], salt: &[u8]) -> Option<LessSafeKey> {
        let key = expand(secret, &[b"cardea ticket", &self.audience, hour, salt])?;
        UnboundKey::new(&AES_256_GCM, &*key).ok().map(LessSafeKey::new)
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.secrets.kept * STEP.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        // Without a ticket, TLS 1.2 sends an empty one, which means that (RFC 5077 §3.3).
        self.takes(plain).then(|| self.seal(plain, self.secrets.clock.now()))?
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        // Another node may have created it with another configuration.
        self.open(cipher, self.secrets.clock.now()).filter(|plain| self.takes(plain))
    }
}

/// Whether a session is one of TLS 1.3. rustls uses one ticketer for both versions, and writes the server name before
/// the version: a flag, its length, its octets. A session in another encoding is put into no ticket.
fn is_tls13(session: &[u8]) -> bool {
    let version = match session.split_first() {
        Some((0, rest)) => Some(rest),
        Some((1, rest)) => rest.split_first().and_then(|(len, rest)| rest.get(usize::from(*len)..)),
        _ => None,
    };
    version.is_some_and(|rest| rest.starts_with(&u16::from(ProtocolVersion::TLSv1_3).to_be_bytes()))
}

/// Always the same, because no two tickets share a key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests;
