//! ACME renewal information (RFC 9773): the authority suggests when to renew a certificate, early if it must be
//! revoked, otherwise to spread its load.

use std::time::Duration;

use cardea_clock::Wall;
use cardea_store::CertificateRecord;
use instant_acme::{Account, CertificateIdentifier, Error};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{
    http::{Client, Said},
    order::Failed,
    schedule::{FailureReason, next_question},
    state::Acme,
};

/// The logged length of an explanation URL.
const EXPLANATION_LEN_MAX: usize = 300;

/// The authority's suggestion.
struct Suggestion {
    window: (Wall, Wall),
    /// The URL of a page with the reason.
    explanation: Option<String>,
    /// When the authority wants to be asked again.
    wait: Duration,
}

impl Acme {
    /// Requests and stores the suggestion for each certificate. If that fails, the previous suggestion applies, else
    /// the lifetime decides.
    pub(super) async fn ask_renewals(&self, records: Vec<CertificateRecord>) -> Result<(), Failed> {
        let client = Client::new(self.ca_file(), self.clock.clone(), Said::default()).await?;
        let mut account = match self.known_account(&client).await {
            Ok(account) => account,
            Err(failed) => {
                tracing::warn!(problem = %failed, "renewal information can't be requested from the authority");
                None
            }
        };
        for mut record in records {
            let suggestion = match (&account, &record.issued) {
                (Some(account), Some(issued)) => suggestion(account, &issued.chain).await,
                _ => Ok(None),
            };
            let wait = match suggestion {
                Ok(Some(suggestion)) => {
                    let (from, until) = suggestion.window;
                    if record.renewal_window.replace(suggestion.window) != Some(suggestion.window) {
                        tracing::info!(
                            hosts = ?record.hosts,
                            from_unix_seconds = from.unix_seconds(),
                            until_unix_seconds = until.unix_seconds(),
                            explanation = suggestion.explanation,
                            "the authority suggests a renewal time"
                        );
                    }
                    Some(suggestion.wait)
                }
                Ok(None) => None,
                Err(failed) => {
                    tracing::warn!(hosts = ?record.hosts, problem = %failed, "the authority's renewal information \
                         can't be used");
                    if failed.reason == FailureReason::Unreachable {
                        // Each of the other requests would wait as long.
                        account = None;
                    }
                    None
                }
            };
            record.ask_renewal_at = Some(next_question(wait, self.clock.precise().wall));
            self.heard(&record);
            self.store.put_acme_renewal(&record).await?;
        }
        Ok(())
    }
}

/// The authority's suggestion for the first certificate of a chain. `None` if the authority offers none, or the
/// certificate can't be identified.
async fn suggestion(account: &Account, chain: &str) -> Result<Option<Suggestion>, Failed> {
    let Some(certificate) = identifier(chain) else { return Ok(None) };
    let (info, wait) = match account.renewal_info(&certificate).await {
        Err(Error::Unsupported(_)) => return Ok(None),
        answer => answer?,
    };
    let window = info.suggested_window;
    if window.end <= window.start {
        return Err(Failed::new(
            FailureReason::BadAnswer,
            "the suggested window ends before it begins (RFC 9773 §4.2)",
        ));
    }
    let at = Wall::from_unix_seconds;
    let window = (at(window.start.unix_timestamp()), at(window.end.unix_timestamp()));
    let explanation = info.explanation_url.map(|url| url.chars().take(EXPLANATION_LEN_MAX).collect());
    Ok(Some(Suggestion { window, explanation, wait }))
}

/// The identifier of the first certificate of a chain (RFC 9773 §4.1), if it contains an authority key identifier.
pub(super) fn identifier(chain: &str) -> Option<CertificateIdentifier<'static>> {
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).ok()?;
    CertificateIdentifier::try_from(&leaf).ok()
}
