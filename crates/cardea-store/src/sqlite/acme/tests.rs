//! Certificates, challenges and the lease, used by two processes.

use std::time::Duration;

use super::*;

const NOW: Wall = Wall::from_unix_seconds(1_900_000_000);
const DIRECTORY: &str = "https://ca.test/directory";

fn record(host: &str) -> CertificateRecord {
    CertificateRecord {
        directory: DIRECTORY.into(),
        hosts: vec![host.into(), format!("www.{host}")],
        key_type: "ecdsa-p256".into(),
        issued: None,
        failures: 2,
        next_attempt_at: Some(NOW),
        renewal_window: None,
        ask_renewal_at: None,
        problem: Some(("unreachable".into(), "the authority can't be reached".into())),
    }
}

#[tokio::test]
async fn what_was_put_is_found_again_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cardea.db");
    let (one, other) = (SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap());
    assert_eq!(one.acme_version().await.unwrap(), 0);

    let mut certificate = record("a.test");
    one.put_acme_certificate(&certificate).await.unwrap();
    assert_eq!(other.acme_version().await.unwrap(), 1);
    assert_eq!(other.acme_certificates(DIRECTORY).await.unwrap(), [certificate.clone()]);
    assert_eq!(other.acme_certificates("https://other.test/").await.unwrap(), []);
    certificate.issued = Some(IssuedRecord {
        chain: "PEM".into(),
        sealed: vec![1, 2, 3],
        wrapping_key_id: "k".into(),
        issued_at: NOW,
        not_after: NOW.saturating_add(Duration::from_secs(60)),
    });
    (certificate.failures, certificate.problem) = (0, None);
    one.put_acme_certificate(&certificate).await.unwrap();
    assert_eq!(other.acme_certificates(DIRECTORY).await.unwrap(), [certificate.clone()]);

    // Renewal information doesn't overwrite a request that was made meanwhile.
    let mut renewal = CertificateRecord { next_attempt_at: None, failures: 9, ..certificate.clone() };
    renewal.renewal_window = Some((NOW, NOW.saturating_add(Duration::from_secs(30))));
    renewal.ask_renewal_at = Some(NOW.saturating_add(Duration::from_secs(10)));
    other.put_acme_renewal(&renewal).await.unwrap();
    (certificate.renewal_window, certificate.ask_renewal_at) =
        (renewal.renewal_window, renewal.ask_renewal_at);
    assert_eq!(one.acme_certificates(DIRECTORY).await.unwrap(), [certificate]);
    assert_eq!(one.acme_version().await.unwrap(), 3);

    let account = AccountRecord {
        directory: DIRECTORY.into(),
        url: "https://ca.test/account/1".into(),
        contacts: vec!["mailto:a@test".into()],
        sealed: vec![9],
        wrapping_key_id: "k".into(),
        created_at: NOW,
    };
    one.put_acme_account(&account).await.unwrap();
    assert_eq!(other.acme_account(DIRECTORY).await.unwrap(), Some(account));
    other.delete_acme_account(DIRECTORY).await.unwrap();
    assert_eq!(one.acme_account(DIRECTORY).await.unwrap(), None);
    for store in [one, other] {
        crate::Database::close(&store).await;
    }
}

#[tokio::test]
async fn challenges_are_replaced_as_a_whole_and_expire() {
    let store = SqliteStore::in_memory().await.unwrap();
    let challenge = |token: &str, seconds| ChallengeRecord {
        token: token.into(),
        kind: "http-01".into(),
        host: "a.test".into(),
        key_authorization: format!("{token}.thumb"),
        expires_at: NOW.saturating_add(Duration::from_secs(seconds)),
    };
    store.replace_acme_challenges(&[challenge("a", 10), challenge("b", 20)]).await.unwrap();
    let later = NOW.saturating_add(Duration::from_secs(10));
    assert_eq!(store.acme_challenges(NOW).await.unwrap().len(), 2);
    assert_eq!(store.acme_challenges(later).await.unwrap(), [challenge("b", 20)]);
    store.replace_acme_challenges(&[challenge("c", 20)]).await.unwrap();
    assert_eq!(store.acme_challenges(NOW).await.unwrap(), [challenge("c", 20)]);
    assert_eq!(store.acme_version().await.unwrap(), 2);
}

#[tokio::test]
async fn one_holds_the_lease_until_its_time_is_over_or_it_is_given_back() {
    let store = SqliteStore::in_memory().await.unwrap();
    let at = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    assert!(store.take_acme_lease("one", at(0), at(60)).await.unwrap());
    assert!(!store.take_acme_lease("two", at(59), at(119)).await.unwrap());
    assert!(store.take_acme_lease("one", at(59), at(119)).await.unwrap(), "held for longer");
    assert!(!store.take_acme_lease("two", at(60), at(120)).await.unwrap());
    store.release_acme_lease("two").await.unwrap();
    assert!(!store.take_acme_lease("two", at(60), at(120)).await.unwrap(), "nobody gives another's back");
    store.release_acme_lease("one").await.unwrap();
    assert!(store.take_acme_lease("two", at(60), at(120)).await.unwrap());
    assert!(store.take_acme_lease("one", at(120), at(180)).await.unwrap(), "the holder is gone");
}

#[tokio::test]
async fn old_certificates_and_attempts_are_forgotten() {
    let store = SqliteStore::in_memory().await.unwrap();
    store.put_acme_certificate(&record("a.test")).await.unwrap();
    store.forget_acme_certificates(NOW).await.unwrap();
    assert_eq!(store.acme_certificates(DIRECTORY).await.unwrap().len(), 1);
    store.forget_acme_certificates(NOW.saturating_add(Duration::from_secs(1))).await.unwrap();
    assert_eq!(store.acme_certificates(DIRECTORY).await.unwrap(), []);
}
