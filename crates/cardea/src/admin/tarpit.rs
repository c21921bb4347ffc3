//! Offenders of the tarpit, as the protocol of the admin socket names them.

use std::{net::IpAddr, sync::Arc};

use cardea_clock::Mono;
use cardea_guard::{AddressPrefix, HeldOffender, Identity, Offender};

use super::protocol::{AdminError, Code, Held};

/// The offender that is named; all where none is.
///
/// # Errors
/// A name that is incomplete, or no address.
pub(super) fn offender(
    address: Option<&str>,
    issuer: Option<String>,
    subject: Option<String>,
) -> Result<Option<Offender>, AdminError> {
    let invalid = |message: String| Err(AdminError::new(Code::Invalid, message));
    match (address, issuer, subject) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => {
            // As the list shows it.
            let address = text.strip_suffix("/64").unwrap_or(text);
            match address.parse::<IpAddr>() {
                Ok(address) => Ok(Some(Offender::Prefix(AddressPrefix::of(address)))),
                Err(_) => invalid(format!(
                    "{text:?} is no address; write one as \"192.0.2.1\" or \"2001:db8::/64\""
                )),
            }
        }
        (None, Some(issuer), Some(subject)) => {
            let identity = Identity { issuer: issuer.into(), subject: subject.into() };
            Ok(Some(Offender::Identity(Arc::new(identity))))
        }
        _ => invalid("an offender is an address, or an issuer with a subject".to_owned()),
    }
}

/// What is held of an offender.
pub(crate) fn shown(held: HeldOffender, now: Mono) -> Held {
    let milliseconds =
        |from: Mono, to: Mono| u64::try_from(to.saturating_since(from).as_millis()).unwrap_or(u64::MAX);
    let mut shown = Held {
        requests: held.held,
        held_milliseconds: milliseconds(held.since, now),
        left_milliseconds: milliseconds(now, held.until),
        ..Held::default()
    };
    match held.offender {
        Offender::Prefix(prefix) => shown.address = Some(prefix.to_string()),
        Offender::Identity(identity) => {
            shown.issuer = Some(identity.issuer.to_string());
            shown.subject = Some(identity.subject.to_string());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offender_is_named_as_it_is_shown() {
        let offenders = ["192.0.2.1", "2001:db8::7"]
            .map(|address| Offender::Prefix(AddressPrefix::of(address.parse().unwrap())));
        let identity = Identity { issuer: "https://a.example".into(), subject: "alice".into() };
        for named in offenders.into_iter().chain([Offender::Identity(Arc::new(identity))]) {
            let now = Mono::from_nanos(0);
            let held = HeldOffender { offender: named.clone(), held: 1, since: now, until: now };
            let Held { address, issuer, subject, .. } = shown(held, now);
            assert_eq!(offender(address.as_deref(), issuer, subject).unwrap(), Some(named));
        }
        assert_eq!(offender(None, None, None).unwrap(), None);
        let some = || Some("a".to_owned());
        for (address, issuer, subject) in [
            (Some("a"), None, None),
            (Some("192.0.2.1"), some(), some()),
            (None, some(), None),
            (None, None, some()),
        ] {
            assert_eq!(offender(address, issuer, subject).unwrap_err().code, Code::Invalid);
        }
    }
}
