//! The schedule and the state, with a manual clock, a database and no authority.

use std::{sync::Arc, time::Duration};

use cardea_clock::{ManualClock, Wall};
use cardea_issuer::WrappingKey;
use cardea_store::{AcmeStore, CertificateRecord, sqlite::SqliteStore};
use cardea_tls::authority::{Authority, Issued};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};

use super::state::Acme;
use crate::config::{self, Config};

const NOW: Wall = Wall::from_unix_seconds(1_900_000_000);
const DAY: Duration = Duration::from_secs(86_400);

const CONFIG: &str = r#"
[acme]
directory = "https://ca.test/directory"
terms_of_service_agreed = true
wrapping_key = { file = "wrapping.key" }

[[listener]]
name = "https"
address = "127.0.0.1:0"

[[listener.tls.certificate]]
acme = true
hosts = ["www.a.test", "a.test"]

[[listener.tls.certificate]]
acme = true
hosts = ["b.test"]
"#;

struct Bench {
    config: Config,
    store: Arc<dyn AcmeStore>,
    clock: ManualClock,
    authority: Authority,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cardea.toml"), CONFIG).unwrap();
        std::fs::write(folder.path().join("wrapping.key"), "ab".repeat(32)).unwrap();
        let config = config::load(&folder.path().join("cardea.toml"), &|_| None);
        Self {
            config: config.unwrap_or_else(|problems| panic!("{problems}")),
            store: Arc::new(SqliteStore::in_memory().await.unwrap()),
            clock: ManualClock::new(NOW),
            authority: Authority::new("test", NOW.saturating_sub(900 * DAY), NOW.saturating_add(900 * DAY))
                .unwrap(),
        }
    }

    /// A gateway; all share the database.
    fn acme(&self, key: u8) -> Arc<Acme> {
        let settings = self.config.acme.as_ref().unwrap();
        let key = WrappingKey::from_bytes(&[key; 32]);
        let acme = Acme::new(settings, self.store.clone(), key, self.clock.clock()).unwrap();
        acme.follow(&self.config);
        acme
    }

    fn issue(&self, hosts: &[&str], lifetime: Duration) -> Issued {
        self.authority.issue(hosts, NOW, NOW.saturating_add(lifetime)).unwrap()
    }

    /// Stores a certificate as an order does.
    async fn keep(&self, acme: &Acme, hosts: &[&str], lifetime: Duration) -> CertificateRecord {
        let issued = self.issue(hosts, lifetime);
        let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let until = NOW.saturating_add(lifetime);
        let mut record = acme.empty(&hosts);
        record.issued =
            Some(acme.seal(&hosts, issued.chain_pem.clone(), key.secret_der(), NOW, until).unwrap());
        self.store.put_acme_certificate(&record).await.unwrap();
        record
    }

    fn due(&self, acme: &Acme) -> Option<Vec<String>> {
        acme.due(self.clock.clock().precise().wall).map(|record| record.hosts)
    }
}

#[tokio::test]
async fn missing_certificates_are_due_at_once_and_others_at_their_renewal_time() {
    let bench = Bench::new().await;
    let acme = bench.acme(7);
    assert_eq!(bench.due(&acme).unwrap(), ["a.test", "www.a.test"]);
    bench.keep(&acme, &["a.test", "www.a.test"], 90 * DAY).await;
    assert!(acme.take_over(None).await.unwrap());
    assert!(!acme.take_over(None).await.unwrap(), "nothing has changed since");
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"]);
    bench.keep(&acme, &["b.test"], 30 * DAY).await;
    acme.take_over(None).await.unwrap();
    assert_eq!(bench.due(&acme), None);

    // 33 percent of 30 days, minus 2 percent at most for the spread.
    bench.clock.advance(19 * DAY);
    assert_eq!(bench.due(&acme), None);
    bench.clock.advance(DAY + DAY / 2);
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"]);
}

#[tokio::test]
async fn all_gateways_load_each_certificate_in_any_order_of_hosts() {
    let bench = Bench::new().await;
    let (one, other) = (bench.acme(7), bench.acme(7));
    bench.keep(&one, &["a.test", "www.a.test"], 90 * DAY).await;
    for acme in [&one, &other] {
        assert!(acme.take_over(None).await.unwrap());
        let place = acme.place(&["www.a.test".into(), "a.test".into()]);
        assert_eq!(place.validity().unwrap().not_after, NOW.saturating_add(90 * DAY));
        assert!(Arc::ptr_eq(&place, &acme.place(&["a.test".into(), "www.a.test".into()])));
    }
}

#[tokio::test]
async fn failed_attempts_are_retried_after_a_delay_also_after_a_restart() {
    let bench = Bench::new().await;
    let acme = bench.acme(7);
    for hosts in [&["a.test", "www.a.test"][..], &["b.test"]] {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut record = acme.empty(&hosts);
        (record.failures, record.next_attempt_at) = (3, Some(NOW.saturating_add(DAY)));
        record.problem = Some(("challenge".into(), "because".into()));
        bench.store.put_acme_certificate(&record).await.unwrap();
    }
    let restarted = bench.acme(7);
    for acme in [&acme, &restarted] {
        acme.take_over(None).await.unwrap();
        assert_eq!(bench.due(acme), None);
        assert_eq!(acme.status()[0].problem.as_deref(), Some("because"));
    }
    // The cause was corrected.
    assert!(!restarted.renew("c.test").await.unwrap());
    assert!(restarted.renew("B.test").await.unwrap());
    for acme in [&acme, &restarted] {
        acme.take_over(None).await.unwrap();
        assert_eq!(bench.due(acme).unwrap(), ["b.test"]);
    }
    bench.clock.advance(DAY);
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"], "what waits for longest comes first");
}

#[tokio::test]
async fn expired_certificates_are_due_and_unservable_ones_are_not_ordered_in_a_loop() {
    let bench = Bench::new().await;
    let acme = bench.acme(7);
    bench.keep(&acme, &["a.test", "www.a.test"], 2 * DAY).await;
    bench.clock.advance(3 * DAY);
    acme.take_over(None).await.unwrap();
    assert_eq!(acme.place(&["a.test".into(), "www.a.test".into()]).validity(), None);
    assert!(acme.due(bench.clock.clock().precise().wall).is_some());

    // The authority's clock is ahead: a certificate issued at NOW is valid an hour later.
    let bench = Bench::new().await;
    let acme = bench.acme(7);
    bench.keep(&acme, &["b.test"], 30 * DAY).await;
    bench.keep(&acme, &["a.test", "www.a.test"], 30 * DAY).await;
    bench.clock.step_wall_back(Duration::from_secs(600));
    acme.take_over(None).await.unwrap();
    assert_eq!(bench.due(&acme), None);
}

#[tokio::test]
async fn renewal_information_is_requested_on_time_and_applied() {
    let bench = Bench::new().await;
    let acme = bench.acme(7);
    let after = |time| NOW.saturating_add(time);
    let asked_about = |now| acme.to_ask(now).into_iter().map(|record| record.hosts).collect::<Vec<_>>();
    bench.keep(&acme, &["a.test", "www.a.test"], 90 * DAY).await;
    let mut record = bench.keep(&acme, &["b.test"], 90 * DAY).await;
    assert!(asked_about(NOW).is_empty(), "nothing is known yet");
    acme.take_over(None).await.unwrap();
    assert_eq!(asked_about(NOW), [vec!["a.test", "www.a.test"], vec!["b.test"]]);

    record.renewal_window = Some((after(10 * DAY), after(11 * DAY)));
    record.ask_renewal_at = Some(after(DAY));
    acme.heard(&record);
    assert_eq!(asked_about(NOW), [["a.test", "www.a.test"]], "also where it can't be kept");
    bench.store.put_acme_renewal(&record).await.unwrap();
    acme.take_over(None).await.unwrap();
    assert_eq!(asked_about(NOW), [["a.test", "www.a.test"]]);
    assert_eq!(asked_about(after(DAY)).len(), 2);
    bench.clock.advance(9 * DAY);
    assert_eq!(bench.due(&acme), None);
    bench.clock.advance(2 * DAY);
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"]);

    // A certificate to be revoked is replaced at once.
    let bench = Bench::new().await;
    let acme = bench.acme(7);
    bench.keep(&acme, &["a.test", "www.a.test"], 90 * DAY).await;
    let mut record = bench.keep(&acme, &["b.test"], 90 * DAY).await;
    record.renewal_window = Some((NOW.saturating_sub(2 * DAY), NOW.saturating_sub(DAY)));
    bench.store.put_acme_certificate(&record).await.unwrap();
    acme.take_over(None).await.unwrap();
    assert_eq!(bench.due(&acme), None, "it has just been issued");
    bench.clock.advance(Duration::from_secs(3_600));
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"]);
}

#[tokio::test]
async fn keys_of_another_wrapping_key_are_an_error() {
    let bench = Bench::new().await;
    bench.keep(&bench.acme(7), &["b.test"], 30 * DAY).await;
    let failed = bench.acme(8).take_over(None).await.unwrap_err().to_string();
    assert!(
        failed.contains("the certificate for b.test") && failed.contains("acme.wrapping_key"),
        "{failed}"
    );
}

#[tokio::test]
async fn removed_certificates_are_neither_ordered_nor_listed() {
    let mut bench = Bench::new().await;
    let acme = bench.acme(7);
    bench.config.listeners[0].tls.as_mut().unwrap().certificates.remove(0);
    acme.follow(&bench.config);
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"]);
    assert_eq!(acme.status().len(), 1);
}

#[tokio::test]
async fn unstored_certificates_are_served_and_not_ordered_again() {
    let bench = Bench::new().await;
    let (acme, other) = (bench.acme(7), bench.acme(7));
    let hosts = ["a.test".to_owned(), "www.a.test".to_owned()];
    // The result of an order whose database failed: this one has not stored it.
    let elsewhere = Bench { store: Arc::new(SqliteStore::in_memory().await.unwrap()), ..Bench::new().await };
    let record = elsewhere.keep(&acme, &["a.test", "www.a.test"], 90 * DAY).await;
    acme.keep_unstored(record, NOW).unwrap();
    assert!(acme.has_unstored());
    assert_eq!(acme.place(&hosts).validity().unwrap().not_after, NOW.saturating_add(90 * DAY));
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"]);
    // The database changes, with an earlier failed attempt.
    let mut old = acme.empty(&hosts);
    (old.failures, old.next_attempt_at) = (1, Some(NOW));
    bench.store.put_acme_certificate(&old).await.unwrap();
    acme.take_over(None).await.unwrap();
    assert_eq!(bench.due(&acme).unwrap(), ["b.test"], "what is issued is not due again");
    acme.store_unstored().await.unwrap();
    assert!(!acme.has_unstored());
    other.take_over(None).await.unwrap();
    assert_eq!(other.place(&hosts).validity().unwrap().not_after, NOW.saturating_add(90 * DAY));

    // After a failure too, the delay applies.
    let mut failed = acme.empty(&["b.test".to_owned()]);
    (failed.failures, failed.next_attempt_at) = (2, Some(NOW.saturating_add(DAY)));
    acme.keep_unstored(failed.clone(), NOW).unwrap();
    assert_eq!(bench.due(&acme), None);
    // A certificate that another gateway ordered meanwhile is newer.
    bench.keep(&other, &["b.test"], 30 * DAY).await;
    acme.take_over(None).await.unwrap();
    assert!(!acme.has_unstored() && acme.place(&["b.test".to_owned()]).validity().is_some());
}
