//! The content of a verified token, and its validity.

use std::fmt;
use std::sync::Arc;

use cardea_clock::{Mono, Timestamp, Wall};
use serde_json::{Map, Value};

/// A verified token: authentic, from a trusted issuer, for one of its accepted audiences.
///
/// It is independent of routes: those have an [`AccessRequirement`](crate::AccessRequirement).
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The start of validity: the later of `nbf` and `iat`, minus the skew; [`Wall::MIN`] without either.
    pub not_before: Wall,
    /// The end of validity: `exp` plus the skew.
    pub not_after: Wall,
    /// The same end on the monotonic clock, so that stepping the wall clock back extends nothing.
    pub deadline: Mono,
    /// The issuer's epoch. It changes when a key is removed or changed, and with the issuer's configuration. Unique in
    /// the process; 0 is never current.
    pub epoch: u64,
    /// The identity and the claims.
    pub caller: Caller,
}

impl Verdict {
    /// Whether `now` is within the window: from `not_before` on, and before `not_after` and the deadline (RFC 7519 §4.1.4,
    /// §4.1.5). The window includes the skew.
    ///
    /// This checks times only: [`Authenticator::is_current`](crate::Authenticator::is_current) also checks keys,
    /// configuration and revocations.
    #[must_use]
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now.wall && now.wall < self.not_after && now.mono < self.deadline
    }

    /// A verdict that is never valid. Failures yield it, so that a bug fails closed.
    #[must_use]
    pub fn inverted() -> Self {
        Self {
            not_before: Wall::MAX,
            not_after: Wall::MIN,
            deadline: Mono::MIN,
            epoch: 0,
            caller: Caller::default(),
        }
    }
}

/// Why a verdict is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// Its window has ended.
    Expired,
    /// Its subject was revoked or disabled.
    Revoked,
    /// Its issuer or the issuer's configuration changed, or its key was removed.
    IssuerChanged,
}

/// The caller, as the issuer states it. An identity is issuer *and* subject.
///
/// No string here contains a control character.
#[derive(Clone, Default)]
pub struct Caller {
    /// The issuer's name in the configuration.
    pub issuer_name: Arc<str>,
    /// The token's `iss`; with a tenant template that of the tenant.
    pub issuer: Arc<str>,
    /// `sub`; missing in tokens of some issuers, never empty.
    pub subject: Option<String>,
    /// `client_id` (RFC 9068 §2.2), else `azp`; for Entra ID `appid` or `azp`.
    pub client_id: Option<String>,
    /// All values of `aud`, accepted or not.
    pub audiences: Vec<String>,
    /// The scopes, in the token's order.
    pub scopes: Vec<String>,
    /// The roles, in the token's order.
    pub roles: Vec<String>,
    /// `jti`.
    pub token_id: Option<String>,
    /// `iat`.
    pub issued_at: Option<Wall>,
    /// Application or user, if the issuer states it.
    pub kind: CallerKind,
    /// How the client authenticated to the issuer, if the issuer states it.
    pub client_authentication: Option<ClientAuthentication>,
    /// Whether the token omits groups, so that roles from groups are unknown. A requirement for a missing role then
    /// fails with its own reason.
    pub groups_overage: bool,
    /// All claims of the token.
    pub claims: Map<String, Value>,
}

/// Whether an application calls for itself or for a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallerKind {
    /// The issuer doesn't state it.
    #[default]
    Unknown,
    /// An application for itself.
    Application,
    /// A user, through an application.
    User,
}

/// How a client authenticated to its issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// A public client, without authentication.
    None,
    /// By a secret.
    Secret,
    /// By a certificate or a signed assertion.
    Certificate,
}

/// Claims are personal data: only their number is shown.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("issuer_name", &self.issuer_name)
            .field("issuer", &self.issuer)
            .field("subject", &self.subject)
            .field("client_id", &self.client_id)
            .field("audiences", &self.audiences)
            .field("scopes", &self.scopes)
            .field("roles", &self.roles)
            .field("claims", &format_args!("[{} redacted]", self.claims.len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cardea_clock::ManualClock;

    use super::*;

    #[test]
    fn the_window_is_closed_at_its_start_and_open_at_its_end() {
        let at = |wall, mono| Timestamp { wall: Wall::from_unix_nanos(wall), mono: Mono::from_nanos(mono) };
        let verdict = Verdict {
            not_before: Wall::from_unix_nanos(100),
            not_after: Wall::from_unix_nanos(200),
            deadline: Mono::from_nanos(1000),
            ..Verdict::inverted()
        };
        for (now, valid) in [
            (at(99, 0), false),
            (at(100, 0), true),
            (at(199, 999), true),
            (at(200, 999), false),
            (at(199, 1000), false),
        ] {
            assert_eq!(verdict.is_valid_at(now), valid, "{now:?}");
        }
    }

    #[test]
    fn an_inverted_verdict_is_valid_at_no_time() {
        for wall in [Wall::MIN, Wall::from_unix_seconds(0), Wall::MAX] {
            for mono in [Mono::MIN, Mono::MAX] {
                assert!(!Verdict::inverted().is_valid_at(Timestamp { wall, mono }));
            }
        }
    }

    #[test]
    fn stepping_the_wall_clock_back_extends_nothing() {
        let manual = ManualClock::new(Wall::from_unix_seconds(1000));
        let clock = manual.clock();
        let now = clock.now();
        let verdict = Verdict {
            not_before: Wall::MIN,
            not_after: now.wall.saturating_add(Duration::from_secs(60)),
            deadline: now.mono.saturating_add(Duration::from_secs(60)),
            ..Verdict::inverted()
        };
        manual.advance(Duration::from_secs(59));
        assert!(verdict.is_valid_at(clock.now()));
        manual.step_wall_back(Duration::from_secs(3600));
        assert!(verdict.is_valid_at(clock.now()));
        manual.advance(Duration::from_secs(1));
        assert!(!verdict.is_valid_at(clock.now()));
    }

    #[test]
    fn debug_output_redacts_claims() {
        let mut verdict = Verdict::inverted();
        verdict.caller.claims.insert("email".into(), "secret@x".into());
        assert!(!format!("{verdict:?}").contains("secret"));
    }
}
