//! The ACME task: checks the database every second, and orders certificates.

use std::{sync::Arc, time::Duration};

use cardea_clock::Wall;
use cardea_gateway::{gateway::Gateway, workers};
use cardea_store::{AccountRecord, CertificateRecord, IssuedRecord};
use cardea_tls::ManagedCertificate;
use instant_acme::{Account, NewAccount};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use zeroize::Zeroizing;

use super::{
    http::{Client, Said},
    order::{self, Failed},
    renewal,
    schedule::{self, FailureReason},
    state::Acme,
};

/// The interval of database checks. After it, a challenge is known to all gateways.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the other gateways have to read challenges before the authority may request them.
const SPREAD: Duration = Duration::from_millis(2_500);

/// The duration of the lease, and the interval of its extension.
const LEASE: Duration = Duration::from_secs(60);
const LEASE_EVERY: Duration = Duration::from_secs(15);

/// The longest time of an order.
const ORDER_MAX: Duration = Duration::from_secs(600);

/// How long expired certificates are kept.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Starts the task. It ends when the gateway stops, after it has released the lease.
pub(crate) fn start(acme: &Arc<Acme>, gateway: &Arc<Gateway>) -> JoinHandle<()> {
    let (acme, gateway) = (Arc::clone(acme), Arc::clone(gateway));
    workers::spawn(async move {
        let run = run(&acme, &gateway);
        tokio::select! {
            () = run => {}
            () = gateway.stopping() => acme.give_back().await,
        }
    })
}

async fn run(acme: &Acme, gateway: &Gateway) {
    for status in acme.status().iter().filter(|status| status.not_after.is_none()) {
        tracing::warn!(hosts = ?status.hosts, "there is no certificate yet; handshakes for these hosts fail until it is issued");
    }
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = acme.wake.notified() => {}
        }
        let failed = acme.step(gateway).await.err().map(|failed| failed.message);
        if failed != told {
            if let Some(message) = &failed {
                tracing::error!(message, "certificates can't be maintained");
            }
            told = failed;
        }
    }
}

impl Acme {
    /// Takes over changes, and makes one attempt that is due.
    async fn step(&self, gateway: &Gateway) -> Result<(), Failed> {
        self.show(gateway).await?;
        let now = self.clock.precise().wall;
        let idle = self.due(now).is_none() && self.to_ask(now).is_empty() && !self.has_unstored();
        if idle || !self.lease(now).await? {
            return Ok(());
        }
        let done = self.work(gateway, now).await;
        self.store.release_acme_lease(&self.holder).await?;
        done
    }

    /// Does the work that is due; the lease is held.
    async fn work(&self, gateway: &Gateway, now: Wall) -> Result<(), Failed> {
        // Another gateway may just have done it.
        self.show(gateway).await?;
        // Before any order whose result could not be stored either.
        self.store_unstored().await?;
        let asked_about = self.to_ask(now);
        if !asked_about.is_empty() {
            tokio::select! {
                asked = timeout(ORDER_MAX, self.ask_renewals(asked_about)) => asked.unwrap_or(Ok(()))?,
                lost = self.hold() => return Err(lost),
            }
            self.show(gateway).await?;
        }
        match self.due(now) {
            Some(record) => self.attempt(gateway, record).await,
            None => Ok(()),
        }
    }

    /// Takes over changes, and lets the listeners serve them.
    async fn show(&self, gateway: &Gateway) -> Result<(), Failed> {
        if self.take_over(Some(gateway)).await? {
            let now = self.clock.precise().wall;
            for listener in gateway.model().listeners.values() {
                let Some(tls) = listener.tls.clone() else { continue };
                let reloaded = tokio::task::spawn_blocking(move || tls.reload_if_changed(now)).await;
                if let Ok(Err(error)) = reloaded {
                    tracing::error!(listener = %listener.name, %error, "changed certificates can't be loaded; the \
                         previous ones are served");
                }
            }
        }
        Ok(())
    }

    async fn lease(&self, now: Wall) -> Result<bool, Failed> {
        Ok(self.store.take_acme_lease(&self.holder, now, now.saturating_add(LEASE)).await?)
    }

    /// Extends the lease while it is held; returns when it is lost.
    async fn hold(&self) -> Failed {
        let mut missed = 0;
        loop {
            sleep(LEASE_EVERY).await;
            missed = match self.lease(self.clock.precise().wall).await {
                Ok(true) => 0,
                Ok(false) => missed + 3,
                // The database may be busy for a moment; the lease lasts longer than that.
                Err(_) => missed + 1,
            };
            if missed >= 3 {
                return Failed::new(
                    FailureReason::Internal,
                    "the lease was lost; another gateway orders certificates",
                );
            }
        }
    }

    /// Makes one attempt, and stores its result.
    async fn attempt(&self, gateway: &Gateway, mut record: CertificateRecord) -> Result<(), Failed> {
        let said = Said::default();
        let begun = self.clock.precise().wall;
        let late = |_| Err(Failed::new(FailureReason::AuthorityFailed, "the order was not finished in time"));
        let ordered = tokio::select! {
            ordered = timeout(ORDER_MAX, self.order(gateway, &record, &said)) => ordered.unwrap_or_else(late),
            // The database now belongs to another holder.
            lost = self.hold() => return Err(lost),
        };
        // A database error is reported after the result is stored.
        let cleared = self.store.replace_acme_challenges(&[]).await;
        let now = self.clock.precise().wall;
        match ordered {
            Ok(issued) => {
                self.count_issued();
                tracing::info!(
                    hosts = ?record.hosts,
                    not_after_unix_seconds = issued.not_after.unix_seconds(),
                    seconds = now.saturating_since(begun).as_secs(),
                    "a certificate was issued"
                );
                record.issued = Some(issued);
                (record.failures, record.next_attempt_at, record.problem) = (0, None, None);
                (record.renewal_window, record.ask_renewal_at) = (None, None);
            }
            Err(failed) => {
                self.count_failed(failed.reason);
                record.failures = record.failures.saturating_add(1);
                let asked = said.take_retry_after();
                let next = schedule::next_attempt(failed.reason, record.failures, asked, random(), now);
                tracing::warn!(
                    hosts = ?record.hosts,
                    reason = failed.reason.as_str(),
                    problem = %failed,
                    failures = record.failures,
                    next_attempt_unix_seconds = next.unix_seconds(),
                    is_served = record.issued.as_ref().is_some_and(|issued| issued.not_after > now),
                    "no certificate was issued"
                );
                record.next_attempt_at = Some(next);
                record.problem = Some((failed.reason.as_str().to_owned(), failed.message));
            }
        }
        if let Err(error) = self.store.put_acme_certificate(&record).await {
            // It must not be ordered again because of that: authorities have rate limits.
            self.keep_unstored(record, now)?;
            return Err(error.into());
        }
        cleared?;
        self.store.forget_acme_certificates(now.saturating_sub(KEPT)).await?;
        self.show(gateway).await
    }

    async fn order(
        &self,
        gateway: &Gateway,
        record: &CertificateRecord,
        said: &Said,
    ) -> Result<IssuedRecord, Failed> {
        let client = Client::new(self.ca_file(), self.clock.clone(), said.clone()).await?;
        // After a failure of one kind, the next attempt begins with the next one.
        let mut kinds = self.settings.challenges.clone();
        let turn = usize::try_from(record.failures).unwrap_or(0) % kinds.len().max(1);
        kinds.rotate_left(turn);
        let account = self.account(&client).await?;
        // An authority that gave renewal information supports the reference.
        let replaced = record.issued.as_ref().filter(|_| record.renewal_window.is_some());
        let replaces = replaced.and_then(|issued| renewal::identifier(&issued.chain));
        let placed = match order::place(&account, &record.hosts, &kinds, replaces).await {
            Err(failed) if failed.account_is_gone => {
                tracing::warn!("the authority no longer knows the account; a new one is registered");
                self.store.delete_acme_account(&self.settings.directory).await?;
                order::place(&self.account(&client).await?, &record.hosts, &kinds, None).await?
            }
            placed => placed?,
        };
        if !placed.answers.is_empty() {
            let expires_at = self.clock.precise().wall.saturating_add(ORDER_MAX);
            let answers: Vec<_> = placed.answers.iter().map(|answer| answer.record(expires_at)).collect();
            self.store.replace_acme_challenges(&answers).await?;
            self.show(gateway).await?;
            sleep(SPREAD).await;
        }
        let ordered = placed.finish(&record.hosts, self.settings.key_type).await?;
        let now = self.clock.precise().wall;
        // In a separate slot: an unusable certificate must not replace a usable one.
        let checked = ManagedCertificate::new("the authority's certificate", record.hosts.clone())
            .put(ordered.chain.as_bytes(), &ordered.key, now)
            .map_err(|error| Failed::new(FailureReason::BadAnswer, error.to_string()))?;
        self.seal(&record.hosts, ordered.chain, &ordered.key, now, checked.not_after)
    }

    /// The existing account.
    pub(super) async fn known_account(&self, client: &Client) -> Result<Option<Account>, Failed> {
        let directory = &self.settings.directory;
        let Some(mut record) = self.store.acme_account(directory).await? else { return Ok(None) };
        let key = self.key.open(&context(directory), &record.wrapping_key_id, &record.sealed)?;
        let key = PrivatePkcs8KeyDer::from(key.as_slice());
        let builder = Account::builder_with_http(Box::new(client.clone()));
        let account = builder.from_parts(record.url.clone(), key, directory.clone()).await?;
        if record.contacts != self.settings.contacts {
            account.update_contacts(&self.settings.contacts()).await?;
            record.contacts.clone_from(&self.settings.contacts);
            self.store.put_acme_account(&record).await?;
        }
        Ok(Some(account))
    }

    /// The existing account, else a new one.
    async fn account(&self, client: &Client) -> Result<Account, Failed> {
        if let Some(account) = self.known_account(client).await? {
            return Ok(account);
        }
        let settings = &self.settings;
        let directory = &settings.directory;
        let contacts = settings.contacts();
        let builder = Account::builder_with_http(Box::new(client.clone()));
        let new =
            NewAccount { contact: &contacts, terms_of_service_agreed: true, only_return_existing: false };
        let external = settings.external_account();
        let (account, credentials) = builder.create(&new, directory.clone(), external.as_ref()).await?;
        let key = Zeroizing::new(credentials.private_key().secret_pkcs8_der().to_vec());
        let sealed = self.key.seal(&context(directory), &key);
        let record = AccountRecord {
            directory: directory.clone(),
            url: account.id().to_owned(),
            contacts: settings.contacts.clone(),
            sealed: sealed.map_err(|error| Failed::new(FailureReason::Internal, error.to_string()))?,
            wrapping_key_id: self.key.id().to_owned(),
            created_at: self.clock.precise().wall,
        };
        self.store.put_acme_account(&record).await?;
        tracing::info!(directory, account = account.id(), "an account was registered with the authority");
        Ok(account)
    }

    /// Releases the lease, so that another gateway can continue at once.
    async fn give_back(&self) {
        // Another holder has its own challenges, which must stay.
        if self.lease(self.clock.precise().wall).await.is_ok_and(|held| held) {
            let _ = self.store.replace_acme_challenges(&[]).await;
            let _ = self.store.release_acme_lease(&self.holder).await;
        }
    }
}

/// The context of the encrypted key.
fn context(directory: &str) -> String {
    format!("the account at {directory}")
}

/// A random number below 2^32.
fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without it, gateways only retry at the same time.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u32::from_be_bytes(bytes)
}
