//! The claims of an authentic token: times, audience, type, sender constraint (RFC 7519 §4.1, RFC 9068 §4).

use std::sync::Arc;
use std::time::Duration;

use cardea_clock::{Timestamp, Wall};
use serde_json::{Map, Value};

use crate::check::{Observer, show};
use crate::config::{ClaimNames, ClaimPath};
use crate::entra;
use crate::error::TokenError;
use crate::issuer::{Issuer, Trusted};
use crate::jws::Header;
use crate::verdict::{Caller, Verdict};

/// The latest accepted time: the end of the year 9999.
const SECONDS_MAX: f64 = 253_402_300_799.0;

const NANOS_PER_SECOND: f64 = 1e9;

/// Checks the claims of a token whose signature is valid, and returns the verdict.
///
/// # Errors
/// The first claim that is not acceptable.
pub(crate) fn judge(
    observer: &mut impl Observer,
    trusted: &Trusted,
    header: &Header,
    claims: Map<String, Value>,
    epoch: u64,
    now: Timestamp,
) -> Result<Verdict, TokenError> {
    let issuer = &*trusted.issuer;
    let config = &issuer.config;
    let typ =
        if issuer.accepts_type(header.typ.as_deref()) { Ok(()) } else { Err(TokenError::TypeNotAccepted) };
    observer.observe("type", typ, || {
        (format!("typ one of {:?}", config.types), show(header.fields.get("typ")))
    })?;

    let audiences = audiences(&claims).and_then(|audiences| {
        let accepted = audiences.iter().any(|aud| config.audiences.contains(aud));
        accepted.then_some(audiences).ok_or(TokenError::AudienceNotAccepted)
    });
    let audiences = observer.observe("audience", audiences, || {
        (format!("aud with one of {:?}", config.audiences), show(claims.get("aud")))
    })?;

    let times = times(observer, issuer, &claims, now)?;

    // RFC 7800 §3.1: presenting such a token proves nothing without the key that `cnf` names.
    let unbound = if claims.contains_key("cnf") { Err(TokenError::SenderConstrained) } else { Ok(()) };
    observer.observe("sender", unbound, || ("no cnf".to_owned(), show(claims.get("cnf"))))?;

    if let (Some(preset), Some(tenant)) = (&config.preset, &trusted.tenant) {
        let belongs = preset.check(&claims, tenant);
        observer.observe("tenant", belongs, || {
            let found = format!("{}, {}", show(claims.get("tid")), show(claims.get("ver")));
            (format!("tid {tenant:?} and the issuer's ver"), found)
        })?;
    }

    let caller = caller(trusted, claims, audiences, times.issued_at);
    let caller = observer.observe("identity", caller, || {
        let expected = "sub, client id, scopes and roles of the right type".to_owned();
        (expected, "as claimed".to_owned())
    })?;
    Ok(Verdict {
        not_before: times.not_before,
        not_after: times.not_after,
        deadline: now.mono.saturating_add(times.not_after.saturating_since(now.wall)),
        epoch,
        caller,
    })
}

/// The time `now`, or the last moment before the token's `exp` if that is past.
pub(crate) fn until_expiry(claims: &Map<String, Value>, now: Wall) -> Wall {
    let last = |exp: Wall| exp.saturating_sub(Duration::from_nanos(1));
    numeric_date(claims, "exp").ok().flatten().map_or(now, |exp| now.min(last(exp)))
}

struct Times {
    not_before: Wall,
    not_after: Wall,
    issued_at: Option<Wall>,
}

fn times(
    observer: &mut impl Observer,
    issuer: &Issuer,
    claims: &Map<String, Value>,
    now: Timestamp,
) -> Result<Times, TokenError> {
    let skew = issuer.config.clock_skew;
    let at = |name| {
        let now = now.wall.unix_seconds();
        (now, show(claims.get(name)))
    };

    let expires = numeric_date(claims, "exp").and_then(|exp| {
        let exp = exp.ok_or(TokenError::ClaimMissing("exp"))?;
        let not_after = exp.saturating_add(skew);
        if now.wall < not_after { Ok((exp, not_after)) } else { Err(TokenError::Expired) }
    });
    let (exp, not_after) = observer.observe("expires", expires, || {
        let (now, found) = at("exp");
        (format!("exp after {now} (now) less {} s of skew", skew.as_secs()), found)
    })?;

    let starts = numeric_date(claims, "nbf").and_then(|nbf| {
        let not_before = nbf.map_or(Wall::MIN, |nbf| nbf.saturating_sub(skew));
        if not_before <= now.wall { Ok(not_before) } else { Err(TokenError::NotYetValid) }
    });
    let not_before = observer.observe("not before", starts, || {
        let (now, found) = at("nbf");
        (format!("nbf absent or up to {now} (now) plus {} s of skew", skew.as_secs()), found)
    })?;

    let issued = numeric_date(claims, "iat").and_then(|iat| match iat {
        Some(iat) if iat.saturating_sub(skew) > now.wall => Err(TokenError::IssuedInFuture),
        Some(iat) if iat > exp => Err(TokenError::ClaimInvalid("iat")),
        iat => Ok(iat),
    });
    let issued_at = observer.observe("issued at", issued, || {
        let (now, found) = at("iat");
        (format!("iat absent, or before exp and up to {now} (now) plus {} s of skew", skew.as_secs()), found)
    })?;

    if let Some(max) = issuer.config.lifetime_max {
        let lifetime = match issued_at {
            None => Err(TokenError::ClaimMissing("iat")),
            Some(iat) if exp.saturating_since(iat) > max => Err(TokenError::LifetimeTooLong),
            Some(_) => Ok(()),
        };
        observer.observe("lifetime", lifetime, || {
            let found = issued_at.map_or(Duration::ZERO, |iat| exp.saturating_since(iat));
            (format!("exp − iat of at most {} s", max.as_secs()), format!("{} s", found.as_secs()))
        })?;
    }
    // If the clock is set back to before one of them, a cached verdict is judged as the token itself would be.
    let not_before = issued_at.map_or(not_before, |iat| not_before.max(iat.saturating_sub(skew)));
    Ok(Times { not_before, not_after, issued_at })
}

/// A `NumericDate` (RFC 7519 §2): a JSON number, fractions allowed, from 1970 to 9999.
///
/// Fractions are kept to the precision of a double, some hundred nanoseconds.
fn numeric_date(claims: &Map<String, Value>, name: &'static str) -> Result<Option<Wall>, TokenError> {
    const INVALID: fn(&'static str) -> TokenError = TokenError::ClaimInvalid;
    let number = match claims.get(name) {
        None => return Ok(None),
        Some(Value::Number(number)) => number,
        Some(_) => return Err(INVALID(name)),
    };
    if let Some(seconds) = number.as_i64() {
        #[expect(clippy::cast_possible_truncation, reason = "the limit is a whole number far below i64::MAX")]
        let in_range = (0..=SECONDS_MAX as i64).contains(&seconds);
        return in_range.then(|| Some(Wall::from_unix_seconds(seconds))).ok_or(INVALID(name));
    }
    let seconds = number.as_f64().ok_or(INVALID(name))?;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(INVALID(name));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range is checked; what exceeds i64 saturates, as Wall does"
    )]
    let nanos = (seconds * NANOS_PER_SECOND) as i64;
    Ok(Some(Wall::from_unix_nanos(nanos)))
}

/// `aud`: a string or an array of strings (RFC 7519 §4.1.3); required, never empty.
fn audiences(claims: &Map<String, Value>) -> Result<Vec<String>, TokenError> {
    const INVALID: TokenError = TokenError::ClaimInvalid("aud");
    match claims.get("aud") {
        None => Err(TokenError::ClaimMissing("aud")),
        Some(Value::Array(values)) if values.is_empty() => Err(INVALID),
        Some(value) => strings(value).ok_or(INVALID),
    }
}

fn caller(
    trusted: &Trusted,
    claims: Map<String, Value>,
    audiences: Vec<String>,
    issued_at: Option<Wall>,
) -> Result<Caller, TokenError> {
    let issuer = &*trusted.issuer;
    let preset = issuer.config.preset.as_ref();
    let client_id = match preset {
        Some(preset) => text(&claims, preset.client_id_claim())?,
        None => match text(&claims, "client_id")? {
            Some(client_id) => Some(client_id),
            None => text(&claims, "azp")?,
        },
    };
    let overage = preset.is_some() && entra::groups_overage(&claims);
    Ok(Caller {
        issuer_name: Arc::clone(&issuer.name),
        issuer: Arc::clone(&trusted.iss),
        subject: text(&claims, "sub")?,
        client_id,
        audiences,
        scopes: scopes(&claims, &issuer.config.claims)?,
        roles: roles(&claims, &issuer.config.claims, overage)?,
        token_id: text(&claims, "jti")?,
        issued_at,
        kind: preset.map(|_| entra::caller_kind(&claims)).unwrap_or_default(),
        client_authentication: preset.and_then(|preset| preset.client_authentication(&claims)),
        groups_overage: overage,
        claims,
    })
}

/// An optional claim that must be a string, not empty and without control characters.
fn text(claims: &Map<String, Value>, name: &'static str) -> Result<Option<String>, TokenError> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if is_plain(text) => Ok(Some(text.clone())),
        Some(_) => Err(TokenError::ClaimInvalid(name)),
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

fn scopes(claims: &Map<String, Value>, names: &ClaimNames) -> Result<Vec<String>, TokenError> {
    const INVALID: TokenError = TokenError::ClaimInvalid("scope");
    let Some(value) = names.scopes.iter().find_map(|path| lookup(claims, path)) else {
        return Ok(Vec::new());
    };
    let scopes = match value {
        // RFC 6749 §3.3: separated by single spaces. Repeated spaces make empty parts, which are ignored.
        Value::String(list) => list.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect(),
        other => strings(other).ok_or(INVALID)?,
    };
    // A scope from an array that contains a space would read as two in a header.
    let sound = |scope: &String| is_plain(scope) && !scope.contains(' ');
    scopes.iter().all(sound).then_some(scopes).ok_or(INVALID)
}

/// The roles from all configured claims. If groups were omitted, a partial list of groups is ignored.
fn roles(claims: &Map<String, Value>, names: &ClaimNames, overage: bool) -> Result<Vec<String>, TokenError> {
    const INVALID: TokenError = TokenError::ClaimInvalid("roles");
    let mut roles = Vec::new();
    for path in &names.roles {
        if overage && path.parts().first().is_some_and(|part| part == "groups") {
            continue;
        }
        if let Some(value) = lookup(claims, path) {
            roles.extend(strings(value).ok_or(INVALID)?);
        }
    }
    roles.iter().all(|role| is_plain(role)).then_some(roles).ok_or(INVALID)
}

fn lookup<'a>(claims: &'a Map<String, Value>, path: &ClaimPath) -> Option<&'a Value> {
    let (first, rest) = path.parts().split_first()?;
    rest.iter().try_fold(claims.get(first)?, |value, part| value.as_object()?.get(part))
}

/// A string, or an array of strings only.
fn strings(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(values) => values.iter().map(|value| value.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}
