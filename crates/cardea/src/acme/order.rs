//! An order: from the account to a certificate chain (RFC 8555 §7).

use std::time::Duration;

use cardea_issuer::WrappingKeyError;
use cardea_store::{ChallengeRecord, StoreError};
use cardea_tls::TlsError;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use zeroize::Zeroizing;

use super::{http, schedule::FailureReason};
use cardea_tls::acme::RequestedKey;

use crate::config::ChallengeKind;

/// How long the authority may take to validate the challenges, and to issue.
const PATIENCE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// The longest accepted token. Tokens have at least 22 characters (RFC 8555 §8.1).
const TOKEN_LEN_MAX: usize = 256;

/// The stored length of an authority's message.
const MESSAGE_LEN_MAX: usize = 1_000;

/// Why no certificate was issued. The text is for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failed {
    pub(super) reason: FailureReason,
    pub(super) message: String,
    /// Whether the authority does not know the account, so that a new one may be registered.
    pub(super) account_is_gone: bool,
}

impl Failed {
    pub(super) fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_LEN_MAX) {
            message.truncate(end);
        }
        Self { reason, message, account_is_gone: false }
    }

    /// Whether an order that replaces nothing may succeed.
    fn may_be_of_replacement(&self) -> bool {
        !self.account_is_gone
            && !matches!(self.reason, FailureReason::Unreachable | FailureReason::RateLimited)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) => refused(&problem),
            Error::Timeout(_) => Self::new(
                FailureReason::AuthorityFailed,
                "the authority did not finish in time; the order is retried",
            ),
            Error::Other(error) if http::is_unreachable(&*error) => Self::new(
                FailureReason::Unreachable,
                format!(
                    "the authority can't be reached: {error}; check the network, acme.directory and acme.ca_file"
                ),
            ),
            Error::Json(_) => Self::new(
                FailureReason::BadAnswer,
                "the response is not that of an ACME server; check that acme.directory is the URL of a directory",
            ),
            error => {
                Self::new(FailureReason::BadAnswer, format!("the authority's response is invalid: {error}"))
            }
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::new(FailureReason::Internal, format!("acme.database: {error}"))
    }
}

impl From<TlsError> for Failed {
    fn from(error: TlsError) -> Self {
        Self::new(FailureReason::Internal, format!("acme.ca_file: {error}"))
    }
}

impl From<WrappingKeyError> for Failed {
    fn from(error: WrappingKeyError) -> Self {
        let message = match error {
            WrappingKeyError::Mismatch { kid, stored, configured } => format!(
                "the key of {kid} was encrypted under wrapping key {stored}, but acme.wrapping_key is {configured}; \
                 configure the previous key, or configure another acme.database to start anew"
            ),
            error => format!("acme.database: {error}"),
        };
        Self::new(FailureReason::Internal, message)
    }
}

/// The error for a problem document of the authority (RFC 8555 §6.7).
fn refused(problem: &Problem) -> Failed {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let (reason, remedy) = match kind {
        "rateLimited" => {
            (FailureReason::RateLimited, "see the authority's rate limits; the order is retried later")
        }
        "accountDoesNotExist" => (FailureReason::Account, "a new account is registered"),
        "externalAccountRequired" => {
            (FailureReason::Account, "get a key from the authority, and configure acme.external_account")
        }
        "invalidContact" | "unsupportedContact" => (FailureReason::Account, "correct acme.contacts"),
        "userActionRequired" => (FailureReason::Account, "follow the instructions at that address"),
        "badPublicKey" | "badCSR" => (FailureReason::Refused, "choose another acme.key_type"),
        "caa" => (FailureReason::Refused, "add this authority to the host's CAA record"),
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            (FailureReason::Refused, "remove the host, or use another authority for it")
        }
        "connection" | "dns" | "incorrectResponse" | "tls" => (
            FailureReason::Challenge,
            "check that the host's name resolves to this gateway and that port 80 (http-01) or 443 (tls-alpn-01) is \
             reachable",
        ),
        "unauthorized" => (
            FailureReason::Account,
            "if the account was deactivated, configure another acme.database to register a new one",
        ),
        // The library has tried three times (RFC 8555 §6.5); a later attempt may succeed.
        "badNonce" | "serverInternal" => (FailureReason::AuthorityFailed, "the order is retried later"),
        _ if problem.status.is_some_and(|status| status == 429) => {
            (FailureReason::RateLimited, "see the authority's rate limits; the order is retried later")
        }
        _ if problem.status.is_some_and(|status| status >= 500) => {
            (FailureReason::AuthorityFailed, "the order is retried later")
        }
        _ => (FailureReason::Refused, "see the authority's documentation"),
    };
    let detail = problem.detail.as_deref().unwrap_or("no details");
    let mut message = format!("the authority says: {detail} ({kind})");
    for subproblem in &problem.subproblems {
        message = format!("{message}; {subproblem}");
    }
    let failed = Failed::new(reason, format!("{message}; {remedy}"));
    Failed { account_is_gone: kind == "accountDoesNotExist", ..failed }
}

/// A chain in PEM, and the key of its leaf in PKCS #8.
pub(super) struct Ordered {
    pub(super) chain: String,
    pub(super) key: Zeroizing<Vec<u8>>,
}

/// An order with known challenges, whose validation was not requested yet.
pub(super) struct PendingOrder {
    order: Order,
    chosen: Vec<(String, ChallengeKind)>,
    /// The answers to its challenges.
    pub(super) answers: Vec<Answer>,
}

/// A challenge of the authority, with the expected answer.
pub(super) struct Answer {
    pub(super) token: String,
    pub(super) kind: ChallengeKind,
    pub(super) host: String,
    pub(super) key_authorization: String,
}

impl Answer {
    pub(super) fn record(&self, expires_at: cardea_clock::Wall) -> ChallengeRecord {
        ChallengeRecord {
            token: self.token.clone(),
            kind: self.kind.as_str().to_owned(),
            host: self.host.clone(),
            key_authorization: self.key_authorization.clone(),
            expires_at,
        }
    }
}

/// Orders a certificate for `hosts` that replaces `replaces`, and gets its challenges: the first of `kinds` that is
/// offered.
pub(super) async fn place(
    account: &Account,
    hosts: &[String],
    kinds: &[ChallengeKind],
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<PendingOrder, Failed> {
    let mut order = new_order(account, hosts, replaces).await?;
    let (mut chosen, mut answers) = (Vec::new(), Vec::new());
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let host = authorization.identifier().to_string();
        if !hosts.contains(&host) {
            return Err(Failed::new(
                FailureReason::BadAnswer,
                format!("the authority sent an authorization for {host:?}, which was not ordered"),
            ));
        }
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                let message =
                    format!("the authorization for {host} has the status {status:?} from the start");
                return Err(Failed::new(FailureReason::Challenge, message));
            }
        }
        let offered: Vec<String> =
            authorization.challenges.iter().map(|challenge| format!("{:?}", challenge.r#type)).collect();
        let kind = kinds.iter().copied().find(|kind| {
            authorization.challenges.iter().any(|challenge| challenge.r#type == challenge_type(*kind))
        });
        let Some(kind) = kind else {
            let message = format!(
                "for {host} the authority offers only {}; add one of these to acme.challenges",
                offered.join(", ")
            );
            return Err(Failed::new(FailureReason::Refused, message));
        };
        if let Some(challenge) = authorization.challenge(challenge_type(kind)) {
            answers.push(answer(&challenge, kind, &host)?);
            chosen.push((host, kind));
        }
    }
    Ok(PendingOrder { order, chosen, answers })
}

/// An authority may refuse an order as a replacement: the certificate was replaced already by an order whose result was
/// lost, or it does not know the certificate any more (RFC 9773 §5). Then the order is repeated without the reference.
async fn new_order(
    account: &Account,
    hosts: &[String],
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<Order, Failed> {
    let identifiers: Vec<Identifier> = hosts.iter().cloned().map(Identifier::Dns).collect();
    if let Some(replaced) = replaces {
        match account.new_order(&NewOrder::new(&identifiers).replaces(replaced)).await.map_err(Failed::from) {
            Err(failed) if failed.may_be_of_replacement() => {
                tracing::debug!(?hosts, problem = %failed, "the authority does not accept the order as a replacement");
            }
            order => return order,
        }
    }
    Ok(account.new_order(&NewOrder::new(&identifiers)).await?)
}

fn answer(challenge: &ChallengeHandle<'_>, kind: ChallengeKind, host: &str) -> Result<Answer, Failed> {
    let token = challenge.token.clone();
    // RFC 8555 §8.3: base64url, and so a single path segment.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if token.is_empty() || token.len() > TOKEN_LEN_MAX || !token.bytes().all(fits) {
        return Err(Failed::new(
            FailureReason::BadAnswer,
            "the authority's challenge token is invalid (RFC 8555 §8.1)",
        ));
    }
    let key_authorization = challenge.key_authorization().as_str().to_owned();
    Ok(Answer { token, kind, host: host.to_owned(), key_authorization })
}

impl PendingOrder {
    /// Requests the validation, and gets the certificate. The answers must be available.
    pub(super) async fn finish(mut self, hosts: &[String], key: RequestedKey) -> Result<Ordered, Failed> {
        let mut objection = None;
        let mut authorizations = self.order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            let host = authorization.identifier().to_string();
            let Some((_, kind)) = self.chosen.iter().find(|(chosen, _)| *chosen == host) else { continue };
            if let Some(mut challenge) = authorization.challenge(challenge_type(*kind)) {
                match challenge.set_ready().await {
                    Ok(()) => {}
                    // It may have validated the challenge already.
                    Err(Error::Api(problem)) => objection = Some(problem),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if let Some(problem) = objection {
            return Err(self.why_invalid(Some(&problem)).await);
        }
        match self.order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Invalid) => return Err(self.why_invalid(None).await),
            Ok(_) => {}
            // The order's error summarises those of its challenges.
            Err(Error::Api(problem)) => return Err(self.why_invalid(Some(&problem)).await),
            Err(error) => return Err(error.into()),
        }
        // Generating an RSA key takes a while.
        let names = hosts.to_vec();
        let made = tokio::task::spawn_blocking(move || cardea_tls::acme::request(&names, key)).await;
        let made = made
            .map_err(|error| error.to_string())
            .and_then(|made| made.map_err(|error| error.to_string()))
            .map_err(|message| Failed::new(FailureReason::Internal, message))?;
        self.order.finalize_csr(&made.request).await?;
        let chain = self.order.poll_certificate(&PATIENCE).await?;
        Ok(Ordered { chain, key: made.key })
    }

    /// The authority's errors for the challenges that failed.
    async fn why_invalid(&mut self, problem: Option<&Problem>) -> Failed {
        let mut authorizations = self.order.authorizations();
        let mut said = Vec::new();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                continue;
            }
            let host = authorization.identifier().to_string();
            for challenge in &authorization.challenges {
                if let Some(error) = &challenge.error {
                    let detail = error.detail.as_deref().unwrap_or("no details");
                    said.push(format!("{host} by {:?}: {detail}", challenge.r#type));
                }
            }
        }
        if let (true, Some(problem)) = (said.is_empty(), problem) {
            return refused(problem);
        }
        let message = format!(
            "the authority could not validate the hosts: {}; check that their names resolve to this gateway and that \
             it can reach port 80 (http-01) or 443 (tls-alpn-01)",
            if said.is_empty() { "it gives no reason".to_owned() } else { said.join("; ") }
        );
        Failed::new(FailureReason::Challenge, message)
    }
}

fn challenge_type(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Http01 => ChallengeType::Http01,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Failed {
        Failed::from(Error::Api(serde_json::from_str(text).unwrap()))
    }

    #[test]
    fn problems_are_distinguished_and_have_a_remedy() {
        for (kind, status, reason, text) in [
            ("rateLimited", 429, FailureReason::RateLimited, "limits"),
            ("accountDoesNotExist", 400, FailureReason::Account, "new account"),
            ("unauthorized", 403, FailureReason::Account, "acme.database"),
            ("externalAccountRequired", 403, FailureReason::Account, "acme.external_account"),
            ("caa", 403, FailureReason::Refused, "CAA"),
            ("rejectedIdentifier", 400, FailureReason::Refused, "another authority"),
            ("connection", 400, FailureReason::Challenge, "port 80"),
            ("badNonce", 400, FailureReason::AuthorityFailed, "later"),
            ("serverInternal", 500, FailureReason::AuthorityFailed, "later"),
            ("somethingNew", 503, FailureReason::AuthorityFailed, "later"),
            ("somethingNew", 429, FailureReason::RateLimited, "later"),
            ("somethingNew", 400, FailureReason::Refused, "documentation"),
        ] {
            let failed = problem(&format!(
                r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"because","status":{status}}}"#
            ));
            assert_eq!(failed.reason, reason, "{kind}");
            assert!(
                failed.message.contains(text) && failed.message.contains("because"),
                "{}",
                failed.message
            );
            assert_eq!(failed.account_is_gone, kind == "accountDoesNotExist");
        }
    }

    #[test]
    fn messages_of_an_authority_are_bounded() {
        let failed = problem(&format!(r#"{{"detail":"{}"}}"#, "é".repeat(100_000)));
        assert_eq!(failed.message.chars().count(), MESSAGE_LEN_MAX);
    }
}
