//! Tickets that carry their session themselves, which every node of a fleet can open.
//!
//! All nodes derive the same keys from a shared secret and the hour, without talking to each other. Each hour's secret is
//! made from the last one by a one-way function, and what is older than a session may live is wiped. So what leaks today
//! opens no ticket that was recorded before that. A ticket has a key of its own, made from its hour's secret, from what
//! the listener stands for, and from a salt: tickets of one listener mean nothing to another one, and no nonce can repeat.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::rand;
use cardea_clock::{Clock, Wall};
use rustls::server::ProducesTickets;

use crate::config::TicketSecretConfig;
use crate::error::{CertificateError, CertificateProblem};
use crate::files::{self, Stamp};

mod ratchet;
mod secret_file;

use ratchet::{Ring, SECRET_LEN, STEP, expand, step_at};

/// What makes the key of a ticket its own.
const SALT_LEN: usize = 32;
/// Before the sealed session: the number of the hour, then the salt.
const HEAD_LEN: usize = size_of::<u64>() + SALT_LEN;
/// RFC 8446 §4.6.1: no ticket is used for longer than 7 days.
const STEPS_MAX: u64 = 7 * 24 - 1;

/// The secrets of the hours that count now, by a file that all nodes of a fleet were given.
pub(crate) struct TicketSecrets {
    ring: RwLock<Ring>,
    clock: Clock,
    /// Hours for which a ticket is good, at least.
    kept: u64,
    file: PathBuf,
    watched: Mutex<Watched>,
}

struct Watched {
    stamp: Stamp,
    /// Whether it was said already that the file can't be written.
    is_reported: bool,
}

impl TicketSecrets {
    /// Reads the secret, and moves it on to what counts now.
    pub(crate) fn load(
        config: &TicketSecretConfig,
        lifetime: Duration,
        clock: &Clock,
    ) -> Result<Arc<Self>, CertificateError> {
        let kept = lifetime.as_secs().div_ceil(STEP.as_secs()).clamp(1, STEPS_MAX);
        let stamp = Stamp::of(&config.file);
        let ring = secret_file::read(&config.file)
            .and_then(|(begin, secret)| {
                Ring::new(begin, secret, step_at(clock.wall()), kept)
                    .map_err(CertificateProblem::TicketSecret)
            })
            .map_err(|problem| CertificateError { path: config.file.clone(), problem })?;
        if files::world_readable(&config.file) {
            tracing::warn!(path = %config.file.display(), "every user of this machine may read this ticket secret");
        }
        let watched = Mutex::new(Watched { stamp, is_reported: false });
        let secrets =
            Self { ring: RwLock::new(ring), clock: clock.clone(), kept, file: config.file.clone(), watched };
        secrets.forget(clock.wall());
        Ok(Arc::new(secrets))
    }

    /// Reads the file again if somebody has changed it, and moves it on, so that it opens no more than we do.
    pub(crate) fn tick(&self, now: Wall) -> Result<(), CertificateError> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.file);
        if stamp != watched.stamp {
            let problem = |problem| CertificateError { path: self.file.clone(), problem };
            let (begin, secret) = secret_file::read(&self.file).map_err(problem)?;
            let ring = Ring::new(begin, secret, step_at(now), self.kept)
                .map_err(|fault| problem(CertificateProblem::TicketSecret(fault)))?;
            *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
            watched.stamp = stamp;
        }
        drop(watched);
        self.forget(now);
        Ok(())
    }

    /// Replaces the secret in the file by that of the oldest hour that still counts. Where that can't be done, it is said
    /// once: the file is then worth as much as all tickets since it was written.
    fn forget(&self, now: Wall) {
        let first = self.at(now, |ring, _| ring.first());
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        match secret_file::move_on(&self.file, first) {
            Ok(false) => {}
            Ok(true) => watched.stamp = Stamp::of(&self.file),
            Err(error) if !watched.is_reported => {
                watched.is_reported = true;
                tracing::warn!(
                    file = %self.file.display(), %error,
                    "the ticket secret can't be moved on in its file, which still opens old tickets"
                );
            }
            Err(_) => {}
        }
    }

    /// Runs `read` on secrets that are up to date, with the current hour.
    fn at<R>(&self, now: Wall, read: impl FnOnce(&Ring, u64) -> R) -> R {
        let step = step_at(now);
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        if ring.is_current(step) {
            return read(&ring, step);
        }
        drop(ring);
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        ring.advance(step, self.kept);
        read(&ring, step)
    }
}

impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecrets").field("file", &self.file).finish_non_exhaustive()
    }
}

/// What seals and opens the tickets of one listener.
#[derive(Debug)]
pub(crate) struct Ticketer {
    secrets: Arc<TicketSecrets>,
    /// A digest of what the listener stands for: tickets are good only where it is the same.
    audience: [u8; digest::SHA256_OUTPUT_LEN],
}

impl Ticketer {
    /// For a listener of this name and with these hosts in these trust domains.
    pub(crate) fn new(secrets: &Arc<TicketSecrets>, context: &str, domains: &[u8]) -> Arc<Self> {
        let mut hash = digest::Context::new(&SHA256);
        hash.update(&(context.len() as u64).to_be_bytes());
        hash.update(context.as_bytes());
        hash.update(domains);
        let mut audience = [0; digest::SHA256_OUTPUT_LEN];
        audience.copy_from_slice(hash.finish().as_ref());
        Arc::new(Self { secrets: Arc::clone(secrets), audience })
    }

    fn seal(&self, plain: &[u8], now: Wall) -> Option<Vec<u8>> {
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

    fn open(&self, ticket: &[u8], now: Wall) -> Option<Vec<u8>> {
        let (head, sealed) = ticket.split_at_checked(HEAD_LEN)?;
        let (hour, salt) = head.split_at_checked(size_of::<u64>())?;
        let step = u64::from_be_bytes(hour.try_into().ok()?);
        let key = self.secrets.at(now, |ring, now| {
            // One hour ahead is what a node's clock may be.
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
        self.seal(plain, self.secrets.clock.wall())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, self.secrets.clock.wall())
    }
}

/// Always the same, since no two tickets share a key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests;
