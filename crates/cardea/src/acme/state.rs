//! The gateway's state of the certificates from the authority.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::{Context as _, Result};
use aws_lc_rs::{digest, rand};
use cardea_clock::{Clock, Wall};
use cardea_gateway::{challenge::ChallengeAnswers, gateway::Gateway};
use cardea_issuer::WrappingKey;
use cardea_store::{
    AcmeStore, CertificateRecord, IssuedRecord, StoreError, WriteHealth, sqlite::SqliteStore,
};
use cardea_tls::{
    ManagedCertificate,
    acme::{RequestedKey, challenge_config},
};
use instant_acme::ExternalAccountKey;
use tokio::sync::Notify;
use zeroize::Zeroizing;

use super::{
    order::Failed,
    schedule::{self, FailureReason},
};
use crate::config::{self, CertificateSource, ChallengeKind, Config};

/// The prefix of such certificates in messages, before their hosts.
pub(crate) const SOURCE_PREFIX: &str = "acme:";

/// The settings that are constant while the process runs.
pub(super) struct Settings {
    pub(super) directory: String,
    pub(super) contacts: Vec<String>,
    pub(super) challenges: Vec<ChallengeKind>,
    external_account: Option<(String, Zeroizing<Vec<u8>>)>,
    pub(super) key_type: RequestedKey,
    renew_before_percent: u32,
}

impl Settings {
    pub(super) fn external_account(&self) -> Option<ExternalAccountKey> {
        let (id, key) = self.external_account.as_ref()?;
        Some(ExternalAccountKey::new(id.clone(), key))
    }

    pub(super) fn contacts(&self) -> Vec<&str> {
        self.contacts.iter().map(String::as_str).collect()
    }
}

/// The certificates from the authority.
pub(crate) struct Acme {
    pub(super) settings: Settings,
    /// The CA file that is trusted for the directory, in addition to the system's.
    ca_file: Mutex<Option<PathBuf>>,
    pub(super) store: Arc<dyn AcmeStore>,
    pub(super) key: WrappingKey,
    pub(super) clock: Clock,
    /// The name of this gateway as a holder of the lease.
    pub(super) holder: String,
    /// Notified when there may be work before the next second.
    pub(super) wake: Notify,
    /// By their sorted hosts.
    known: Mutex<BTreeMap<Vec<String>, Known>>,
    /// Results of attempts that the database could not store, by hosts. The attempts must not be repeated for that
    /// reason.
    unstored: Mutex<BTreeMap<Vec<String>, CertificateRecord>>,
    /// The version of the database that was last read.
    seen: Mutex<Option<u64>>,
    issued: AtomicU64,
    failed: [AtomicU64; FailureReason::ALL.len()],
}

/// The state of one certificate.
struct Known {
    place: Arc<ManagedCertificate>,
    /// Whether the current configuration contains it.
    wanted: bool,
    record: Option<CertificateRecord>,
}

/// The status of a certificate from the authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// The sorted hosts.
    pub(crate) hosts: Vec<String>,
    /// When the served certificate expires.
    pub(crate) not_after: Option<Wall>,
    /// When it was issued.
    pub(crate) issued_at: Option<Wall>,
    /// When the next attempt is made.
    pub(crate) next_attempt_at: Wall,
    /// Failed attempts since the last success.
    pub(crate) failures: u32,
    /// Why the last attempt failed.
    pub(crate) problem: Option<String>,
}

impl Acme {
    /// Opens the database, and reads the certificates.
    pub(crate) async fn open(config: &config::Acme, clock: Clock) -> Result<Arc<Self>> {
        let key = WrappingKey::parse(config.wrapping_key.expose())
            .with_context(|| format!("acme.wrapping_key, from {}", config.wrapping_key.origin()))?;
        let store = SqliteStore::open(&config.database)
            .await
            .with_context(|| format!("acme.database {}", config.database.display()))?;
        let this = Self::new(config, Arc::new(store), key, clock)?;
        // A key that can't be decrypted is reported at the start, not when the certificate is needed.
        this.take_over(None).await.map_err(|failed| anyhow::anyhow!("{failed}"))?;
        Ok(this)
    }

    /// The state of writes to the database.
    pub(crate) fn write_health(&self) -> WriteHealth {
        self.store.write_health()
    }

    pub(super) fn new(
        config: &config::Acme,
        store: Arc<dyn AcmeStore>,
        key: WrappingKey,
        clock: Clock,
    ) -> Result<Arc<Self>> {
        let mut holder = [0; 16];
        rand::fill(&mut holder).context("the system has no randomness")?;
        let external = config.external_account.as_ref();
        Ok(Arc::new(Self {
            settings: Settings {
                directory: config.directory.as_str().to_owned(),
                contacts: config.contacts.clone(),
                challenges: config.challenges.clone(),
                external_account: external.map(|account| {
                    (account.key_id.clone(), Zeroizing::new(account.hmac_key.expose().to_vec()))
                }),
                key_type: config.key_type,
                renew_before_percent: config.renew_before_percent,
            },
            ca_file: Mutex::new(config.ca_file.clone()),
            store,
            key,
            clock,
            holder: holder.iter().map(|byte| format!("{byte:02x}")).collect(),
            wake: Notify::new(),
            known: Mutex::default(),
            unstored: Mutex::default(),
            seen: Mutex::default(),
            issued: AtomicU64::new(0),
            failed: Default::default(),
        }))
    }

    /// The slot of the certificate for these hosts, filled or not.
    pub(crate) fn place(&self, hosts: &[String]) -> Arc<ManagedCertificate> {
        let hosts = sorted(hosts);
        let mut known = self.known();
        let entry = known.entry(hosts).or_insert_with_key(|hosts| Known::new(hosts, None));
        Arc::clone(&entry.place)
    }

    /// Takes over another configuration.
    pub(crate) fn follow(&self, config: &Config) {
        if let Some(settings) = &config.acme {
            self.lock_ca_file().clone_from(&settings.ca_file);
        }
        let wanted = wanted(config);
        let mut known = self.known();
        for (hosts, entry) in known.iter_mut() {
            entry.wanted = wanted.contains(hosts);
        }
        for hosts in wanted {
            known.entry(hosts).or_insert_with_key(|hosts| Known::new(hosts, None)).wanted = true;
        }
        known.retain(|_, entry| entry.wanted || entry.record.is_some());
        drop(known);
        self.wake.notify_one();
    }

    /// The status of each configured certificate.
    pub(crate) fn status(&self) -> Vec<Status> {
        let known = self.known();
        let wanted = known.iter().filter(|(_, entry)| entry.wanted);
        let status = |(hosts, entry): (&Vec<String>, &Known)| {
            let record = entry.record.as_ref();
            Status {
                hosts: hosts.clone(),
                not_after: entry.place.validity().map(|validity| validity.not_after),
                issued_at: record.and_then(|record| record.issued.as_ref()).map(|issued| issued.issued_at),
                next_attempt_at: self.due_at(entry),
                failures: record.map_or(0, |record| record.failures),
                problem: record
                    .and_then(|record| record.problem.as_ref())
                    .map(|(_, problem)| problem.clone()),
            }
        };
        wanted.map(status).collect()
    }

    /// The number of certificates that this process ordered.
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Relaxed)
    }

    /// The failed attempts of this process, by reason.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FailureReason::ALL
            .iter()
            .zip(&self.failed)
            .map(|(reason, count)| (reason.as_str(), count.load(Relaxed)))
    }

    pub(super) fn count_issued(&self) {
        self.issued.fetch_add(1, Relaxed);
    }

    pub(super) fn count_failed(&self, reason: FailureReason) {
        if let Some((_, count)) = FailureReason::ALL.iter().zip(&self.failed).find(|(one, _)| **one == reason)
        {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Makes the certificate of `host` due at once, whatever failed before. Returns whether there is one.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn renew(&self, host: &str) -> Result<bool, StoreError> {
        let found = {
            let known = self.known();
            let of_host = |(hosts, entry): &(&Vec<String>, &Known)| {
                entry.wanted && hosts.iter().any(|one| one.eq_ignore_ascii_case(host))
            };
            known.iter().find(of_host).map(|(hosts, entry)| (hosts.clone(), entry.record.clone()))
        };
        let Some((hosts, record)) = found else { return Ok(false) };
        let mut record = record.unwrap_or_else(|| self.empty(&hosts));
        // Earlier than any other time: due, and ordered with the others.
        (record.failures, record.next_attempt_at) = (0, Some(Wall::from_unix_seconds(0)));
        self.store.put_acme_certificate(&record).await?;
        self.lock_unstored().remove(&hosts);
        self.wake.notify_one();
        Ok(true)
    }

    pub(super) fn empty(&self, hosts: &[String]) -> CertificateRecord {
        CertificateRecord {
            directory: self.settings.directory.clone(),
            hosts: hosts.to_vec(),
            key_type: self.settings.key_type.as_str().to_owned(),
            issued: None,
            failures: 0,
            next_attempt_at: None,
            renewal_window: None,
            ask_renewal_at: None,
            problem: None,
        }
    }

    /// The certificate that is due, the longest overdue first.
    pub(super) fn due(&self, now: Wall) -> Option<CertificateRecord> {
        let known = self.known();
        let due = known.iter().filter(|(_, entry)| entry.wanted);
        let due = due.map(|(hosts, entry)| (self.due_at(entry), hosts, entry));
        let (_, hosts, entry) = due.filter(|(at, ..)| *at <= now).min_by_key(|(at, ..)| *at)?;
        Some(entry.record.clone().unwrap_or_else(|| self.empty(hosts)))
    }

    /// The served certificates whose renewal information must be requested.
    pub(super) fn to_ask(&self, now: Wall) -> Vec<CertificateRecord> {
        let known = self.known();
        let served = known.values().filter(|entry| entry.wanted && entry.place.validity().is_some());
        let records =
            served.filter_map(|entry| entry.record.clone().filter(|record| record.issued.is_some()));
        records.filter(|record| record.ask_renewal_at.is_none_or(|at| at <= now)).collect()
    }

    /// Takes over the renewal information of a certificate at once, so that it is not requested in a loop while the
    /// database can't store it.
    pub(super) fn heard(&self, record: &CertificateRecord) {
        let mut known = self.known();
        if let Some(known) = known.get_mut(&record.hosts).and_then(|entry| entry.record.as_mut()) {
            known.renewal_window = record.renewal_window;
            known.ask_renewal_at = record.ask_renewal_at;
        }
    }

    /// When an attempt is due: after the delay of the last failure, else at the renewal time, else now.
    fn due_at(&self, entry: &Known) -> Wall {
        let record = entry.record.as_ref();
        if let Some(next) = record.and_then(|record| record.next_attempt_at) {
            return next;
        }
        match (record.and_then(|record| record.issued.as_ref()), entry.place.validity()) {
            (Some(issued), Some(validity)) => {
                let chance = chance(&issued.chain);
                if let Some(window) = record.and_then(|record| record.renewal_window) {
                    return schedule::suggested(window, validity.not_after, issued.issued_at, chance);
                }
                let validity = (validity.not_before, validity.not_after);
                schedule::renewal(validity, issued.issued_at, self.settings.renew_before_percent, chance)
            }
            (Some(issued), None) => schedule::replacement(issued.issued_at),
            (None, _) => Wall::from_unix_seconds(0),
        }
    }

    /// Takes over the changes of the database since the last call. Returns whether a certificate changed.
    pub(super) async fn take_over(&self, gateway: Option<&Gateway>) -> Result<bool, Failed> {
        let version = self.store.acme_version().await?;
        if *self.seen() == Some(version) {
            return Ok(false);
        }
        let now = self.clock.precise().wall;
        let records = self.store.acme_certificates(&self.settings.directory).await?;
        let mut changed = false;
        for record in records {
            if record.key_type == self.settings.key_type.as_str() {
                changed |= self.take_over_certificate(record, now)?;
            }
        }
        if let Some(gateway) = gateway {
            gateway.challenges.set(self.answers(now).await?);
        }
        *self.seen() = Some(version);
        Ok(changed)
    }

    /// Keeps and uses a record that the database could not store.
    pub(super) fn keep_unstored(&self, record: CertificateRecord, now: Wall) -> Result<(), Failed> {
        self.lock_unstored().insert(sorted(&record.hosts), record.clone());
        self.take_over_certificate(record, now).map(drop)
    }

    /// Whether there are records that the database could not store.
    pub(super) fn has_unstored(&self) -> bool {
        !self.lock_unstored().is_empty()
    }

    /// Retries to store the records that the database could not store.
    pub(super) async fn store_unstored(&self) -> Result<(), Failed> {
        loop {
            let next =
                self.lock_unstored().first_key_value().map(|(hosts, record)| (hosts.clone(), record.clone()));
            let Some((hosts, record)) = next else { return Ok(()) };
            self.store.put_acme_certificate(&record).await?;
            self.lock_unstored().remove(&hosts);
        }
    }

    fn lock_unstored(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, CertificateRecord>> {
        self.unstored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newer of the database's record and the unstored one.
    fn newest(&self, hosts: &[String], record: CertificateRecord) -> CertificateRecord {
        let issued_at = |record: &CertificateRecord| record.issued.as_ref().map(|issued| issued.issued_at);
        let mut unstored = self.lock_unstored();
        match unstored.get(hosts) {
            Some(own) if issued_at(own) >= issued_at(&record) => own.clone(),
            Some(_) => {
                // Another gateway ordered one meanwhile.
                unstored.remove(hosts);
                record
            }
            None => record,
        }
    }

    fn take_over_certificate(&self, record: CertificateRecord, now: Wall) -> Result<bool, Failed> {
        let hosts = sorted(&record.hosts);
        let record = self.newest(&hosts, record);
        let issued = {
            let mut known = self.known();
            let entry = known.entry(hosts).or_insert_with_key(|hosts| Known::new(hosts, None));
            let old = entry.record.as_ref().and_then(|record| record.issued.as_ref());
            let fresh = record.issued.clone().filter(|issued| old != Some(issued));
            let place = Arc::clone(&entry.place);
            entry.record = Some(record);
            fresh.map(|issued| (issued, place))
        };
        let Some((issued, place)) = issued else { return Ok(false) };
        if issued.not_after <= now {
            return Ok(false);
        }
        let key = self.key.open(&context(place.hosts()), &issued.wrapping_key_id, &issued.sealed)?;
        match place.put(issued.chain.as_bytes(), &key, now) {
            Ok(_) => Ok(true),
            Err(error) => {
                // It was validated before it was stored, but the clock may have been set back.
                tracing::warn!(hosts = ?place.hosts(), %error, "a stored certificate can't be used");
                Ok(false)
            }
        }
    }

    async fn answers(&self, now: Wall) -> Result<ChallengeAnswers, Failed> {
        let mut answers = ChallengeAnswers::default();
        for challenge in self.store.acme_challenges(now).await? {
            if challenge.kind == ChallengeKind::Http01.as_str() {
                answers.http.insert(challenge.token, (challenge.host, challenge.key_authorization));
            } else if challenge.kind == ChallengeKind::TlsAlpn01.as_str() {
                let config = challenge_config(&challenge.host, &challenge.key_authorization)
                    .map_err(|error| Failed::new(FailureReason::Internal, error.to_string()))?;
                answers.tls.insert(challenge.host, config);
            }
        }
        Ok(answers)
    }

    /// A certificate in its stored form.
    pub(super) fn seal(
        &self,
        hosts: &[String],
        chain: String,
        key: &[u8],
        now: Wall,
        not_after: Wall,
    ) -> Result<IssuedRecord, Failed> {
        let sealed = self.key.seal(&context(hosts), key);
        let sealed = sealed.map_err(|error| Failed::new(FailureReason::Internal, error.to_string()))?;
        let wrapping_key_id = self.key.id().to_owned();
        Ok(IssuedRecord { chain, sealed, wrapping_key_id, issued_at: now, not_after })
    }

    /// Finishes running operations, and closes the database.
    pub(crate) async fn close(&self) {
        self.store.close().await;
    }

    /// The CA file that is trusted for the directory, in addition to the system's.
    pub(super) fn ca_file(&self) -> Option<PathBuf> {
        self.lock_ca_file().clone()
    }

    fn lock_ca_file(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.ca_file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Option<u64>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn new(hosts: &[String], record: Option<CertificateRecord>) -> Self {
        let name = format!("{SOURCE_PREFIX}{}", hosts.join(","));
        Self { place: ManagedCertificate::new(name, hosts.to_vec()), wanted: false, record }
    }
}

/// The hosts of each certificate that a configuration has from the authority.
fn wanted(config: &Config) -> Vec<Vec<String>> {
    let tls = config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let certificates = tls.flat_map(|tls| &tls.certificates);
    let from_authority = certificates.filter(|certificate| certificate.source == CertificateSource::Acme);
    from_authority.map(|certificate| sorted(&certificate.hosts)).collect()
}

fn sorted(hosts: &[String]) -> Vec<String> {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts
}

/// The context of the encrypted key.
fn context(hosts: &[String]) -> String {
    format!("the certificate for {}", hosts.join(" "))
}

/// A value that is constant for a certificate, and different between certificates.
fn chance(chain: &str) -> u32 {
    let digest = digest::digest(&digest::SHA256, chain.as_bytes());
    digest.as_ref().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
