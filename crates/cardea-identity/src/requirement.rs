//! What a route asks of a caller; compared with the verdict on every request.

use thiserror::Error;

use crate::config::IssuerConfig;
use crate::error::IdentityError;
use crate::verdict::Verdict;

/// The alternatives of which a caller must meet one. Without alternatives nobody passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRequirement {
    /// Tried in order.
    pub alternatives: Vec<Alternative>,
}

/// What a route asks of the tokens of one issuer. Audience, scopes and roles are bound to it: a
/// scope from another issuer means nothing here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alternative {
    /// The issuer's name in the configuration.
    pub issuer: String,
    /// The token's `aud` must have one of these. Empty: nothing passes, until [`AccessRequirement::resolve`]
    /// fills in the issuer's first audience.
    pub audiences: Vec<String>,
    /// The token must have all of these.
    pub scopes: Vec<String>,
    /// The token must have one of these; empty: no role is asked for.
    pub roles: Vec<String>,
}

/// Why a verdict does not meet a demand.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AccessRequirementError {
    /// The route does not trust this issuer: 401 `invalid_token` (RFC 6750 §3.1).
    #[error("the token's issuer is not accepted here")]
    Issuer,
    /// The token is for another audience than the route's: 401 `invalid_token`.
    #[error("the token is for another audience")]
    Audience,
    /// A scope is missing: 403 `insufficient_scope`.
    #[error("the token lacks a scope")]
    Scope {
        /// All scopes that the route asks for, parted by spaces, for the challenge's `scope`.
        needed: String,
    },
    /// No role fits: 403, as `insufficient_scope` without `scope`; roles are no scopes.
    #[error("the caller lacks a role")]
    Role {
        /// The roles of which one is needed, for the log.
        needed: Vec<String>,
    },
    /// No role fits, but the issuer left groups out of the token, so it can't be known: 403.
    #[error("the caller's groups are not in the token")]
    GroupsOverage,
}

impl AccessRequirementError {
    /// The stable reason code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Issuer => "issuer_not_accepted",
            Self::Audience => "audience_mismatch",
            Self::Scope { .. } => "scope_missing",
            Self::Role { .. } => "role_missing",
            Self::GroupsOverage => "groups_overage",
        }
    }

    /// Whether the token is of no use on this route (401 `invalid_token`) rather than its caller not
    /// allowed (403 `insufficient_scope`), RFC 6750 §3.1.
    #[must_use]
    pub const fn is_invalid_token(&self) -> bool {
        matches!(self, Self::Issuer | Self::Audience)
    }

    /// How far an alternative was met: the furthest one explains best.
    const fn progress(&self) -> u8 {
        match self {
            Self::Issuer => 0,
            Self::Audience => 1,
            Self::Scope { .. } => 2,
            Self::Role { .. } | Self::GroupsOverage => 3,
        }
    }
}

impl AccessRequirement {
    /// Checks the alternatives against the configured issuers and gives those without audiences
    /// their issuer's first one.
    ///
    /// # Errors
    /// An unknown issuer, or an audience that the issuer never accepts and that could thus never pass.
    pub fn resolve(
        mut alternatives: Vec<Alternative>,
        issuers: &[IssuerConfig],
    ) -> Result<Self, IdentityError> {
        if alternatives.is_empty() {
            return Err(IdentityError::AccessRequirement("it has no alternative".to_owned()));
        }
        for alternative in &mut alternatives {
            let name = &alternative.issuer;
            let Some(issuer) = issuers.iter().find(|issuer| issuer.name == *name) else {
                return Err(IdentityError::AccessRequirement(format!("unknown issuer {name:?}")));
            };
            let unknown = |audience: &&String| !issuer.audiences.contains(audience);
            if let Some(audience) = alternative.audiences.iter().find(unknown) {
                return Err(IdentityError::AccessRequirement(format!(
                    "issuer {name:?} does not accept the audience {audience:?}; it accepts {:?}",
                    issuer.audiences
                )));
            }
            if alternative.audiences.is_empty() {
                alternative.audiences.extend(issuer.audiences.first().cloned());
            }
        }
        Ok(Self { alternatives })
    }

    /// Compares a verdict with the demand. Of several failures the one that came furthest is told.
    ///
    /// # Errors
    /// [`AccessRequirementError`]; see its variants for the answer that each calls for.
    pub fn check(&self, verdict: &Verdict) -> Result<(), AccessRequirementError> {
        let mut failure = AccessRequirementError::Issuer;
        for alternative in &self.alternatives {
            match alternative.check(verdict) {
                Ok(()) => return Ok(()),
                Err(error) if error.progress() > failure.progress() => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }
}

impl Alternative {
    fn check(&self, verdict: &Verdict) -> Result<(), AccessRequirementError> {
        let caller = &verdict.caller;
        if *caller.issuer_name != *self.issuer {
            return Err(AccessRequirementError::Issuer);
        }
        if !self.audiences.iter().any(|audience| caller.audiences.contains(audience)) {
            return Err(AccessRequirementError::Audience);
        }
        if !self.scopes.iter().all(|scope| caller.scopes.contains(scope)) {
            return Err(AccessRequirementError::Scope { needed: self.scopes.join(" ") });
        }
        if self.roles.is_empty() || self.roles.iter().any(|role| caller.roles.contains(role)) {
            return Ok(());
        }
        if caller.groups_overage {
            return Err(AccessRequirementError::GroupsOverage);
        }
        Err(AccessRequirementError::Role { needed: self.roles.clone() })
    }
}

#[cfg(test)]
mod tests;
