//! The access requirement of a route, which is compared with the verdict on every request.

use thiserror::Error;

use crate::config::IssuerConfig;
use crate::error::IdentityError;
use crate::verdict::Verdict;

/// Alternatives, of which a caller must meet one. Without alternatives no caller passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRequirement {
    /// Tried in order.
    pub alternatives: Vec<Alternative>,
}

/// The requirement for the tokens of one issuer. Audience, scopes and roles belong to the issuer: a scope from another
/// issuer has no meaning here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alternative {
    /// The issuer's name in the configuration.
    pub issuer: String,
    /// The token's `aud` must contain one of these. If empty, no token passes, until [`AccessRequirement::resolve`]
    /// inserts the issuer's first audience.
    pub audiences: Vec<String>,
    /// The token must have all of these.
    pub scopes: Vec<String>,
    /// The token must have one of these; empty: no role is required.
    pub roles: Vec<String>,
}

/// Why a verdict does not meet a requirement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AccessRequirementError {
    /// The route does not trust this issuer: 401 `invalid_token` (RFC 6750 §3.1).
    #[error("the token's issuer is not accepted here")]
    Issuer,
    /// The token is for another audience than the route requires: 401 `invalid_token`.
    #[error("the token is for another audience")]
    Audience,
    /// A scope is missing: 403 `insufficient_scope`.
    #[error("the token lacks a scope")]
    Scope {
        /// All scopes that the route requires, separated by spaces, for the challenge's `scope`.
        needed: String,
    },
    /// A role is missing: 403, as `insufficient_scope` without `scope`, because roles are no scopes.
    #[error("the caller lacks a role")]
    Role {
        /// The roles of which one is needed, for the log.
        needed: Vec<String>,
    },
    /// A role is missing, but the token omits groups, so it can't be known: 403.
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

    /// Whether the token can't be used on this route (401 `invalid_token`) rather than its caller not being allowed
    /// (403 `insufficient_scope`), RFC 6750 §3.1.
    #[must_use]
    pub const fn is_invalid_token(&self) -> bool {
        matches!(self, Self::Issuer | Self::Audience)
    }

    /// How many checks of an alternative passed. The error of the one with the most is reported.
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
    /// Checks the alternatives against the configured issuers, and inserts the issuer's first audience where there is
    /// none.
    ///
    /// # Errors
    /// An unknown issuer, or an audience that the issuer never accepts, with which no token could pass.
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

    /// Compares a verdict with the requirement. If all alternatives fail, the error is that of the one with the most
    /// passed checks.
    ///
    /// # Errors
    /// [`AccessRequirementError`]. Its variants name the response.
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
