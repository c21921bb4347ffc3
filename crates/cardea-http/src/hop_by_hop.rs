//! Fields that concern one connection only, and the only supported upgrade.

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

use crate::chars::{is_token, list_members};
use crate::h1::{Framing, request_framing};
use crate::names::fold_alike;
use crate::{Fields, Known, Method, RequestError, RequestHead, Version};

/// The fields that are never forwarded, named in `Connection` or not (RFC 9110 §7.6.1, RFC 7540 §3.2.1). `Trailer` is
/// not one of them.
const HOP_BY_HOP: u128 = Known::Connection.bit()
    | Known::KeepAlive.bit()
    | Known::ProxyConnection.bit()
    | Known::Te.bit()
    | Known::TransferEncoding.bit()
    | Known::Upgrade.bit()
    | Known::ProxyAuthenticate.bit()
    | Known::ProxyAuthorization.bit()
    | Known::ProxyAuthenticationInfo.bit()
    | Known::Http2Settings.bit();

/// The most options of `Connection`; each is compared with every field.
const OPTIONS_MAX: usize = 16;

/// The fields that `Connection` named besides those that are always hop-by-hop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionNames(Vec<SmallVec<[u8; 24]>>);

impl ConnectionNames {
    /// Whether it named a field of this name, or one that folds to it.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0.iter().any(|named| fold_alike(named, name))
    }

    /// Removes all names.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether the sender of a request takes trailers (`TE: trailers`, RFC 9110 §10.1.4).
#[must_use]
pub fn accepts_trailers(fields: &Fields) -> bool {
    fields.get_all(Known::Te).flat_map(list_members).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// Removes the hop-by-hop fields of a request, and those that `Connection` names, which it returns: they must not come
/// back as trailers. To be called before our own fields are added, or a client could have them removed.
///
/// # Errors
/// [`RequestError::ConnectionNamesEndToEnd`] if `Connection` names a known field that is not hop-by-hop (`Host`,
/// `Authorization`, `X-Forwarded-For` …), or `Transfer-Encoding`: nobody means that honestly.
/// [`RequestError::ConnectionInvalid`] for an option that is no token, or more than 16 options. The fields may then
/// be half done.
pub fn strip_hop_by_hop(fields: &mut Fields) -> Result<ConnectionNames, RequestError> {
    let mut named = ConnectionNames::default();
    if fields.known_set() & HOP_BY_HOP == 0 {
        return Ok(named);
    }
    for (index, option) in fields.get_all(Known::Connection).flat_map(list_members).enumerate() {
        if index >= OPTIONS_MAX || !is_token(option) {
            return Err(RequestError::ConnectionInvalid);
        }
        match Known::of(option) {
            Some(Known::TransferEncoding) => return Err(RequestError::ConnectionNamesEndToEnd),
            Some(known) if known.bit() & HOP_BY_HOP != 0 => {}
            Some(_) => return Err(RequestError::ConnectionNamesEndToEnd),
            None if is_plain_option(option) => {}
            None => named.0.push(SmallVec::from_slice(option)),
        }
    }
    strip(fields, &named);
    Ok(named)
}

/// As [`strip_hop_by_hop`], for responses: what `Connection` may not name is ignored, and so is every option after
/// the sixteenth.
pub fn strip_hop_by_hop_response(fields: &mut Fields) -> ConnectionNames {
    if fields.known_set() & HOP_BY_HOP == 0 {
        return ConnectionNames::default();
    }
    let named = fields
        .get_all(Known::Connection)
        .flat_map(list_members)
        .take(OPTIONS_MAX)
        .filter(|option| Known::of(option).is_none() && !is_plain_option(option))
        .map(SmallVec::from_slice)
        .collect();
    let named = ConnectionNames(named);
    strip(fields, &named);
    named
}

/// Whether this is a WebSocket request (RFC 6455 §4.1), the only upgrade that is tunnelled: GET in HTTP/1.1 without a
/// body, `Upgrade: websocket` alone, and `upgrade` among the options of `Connection`.
#[must_use]
pub fn upgrade_websocket(head: &RequestHead) -> bool {
    let fields = &head.fields;
    if !fields.contains(Known::Upgrade) || !fields.contains(Known::Connection) {
        return false;
    }
    let mut upgrades = fields.get_all(Known::Upgrade);
    head.method == Method::Get
        && head.version == Version::Http11
        && upgrades.next().is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
        && upgrades.next().is_none()
        && crate::h1::has_connection_option(fields, b"upgrade")
        && request_framing(head) == Ok(Framing::None)
}

/// Whether the fields of a `101` accept a WebSocket (RFC 6455 §4.1): `Upgrade: websocket` alone, and `upgrade` among the options
/// of `Connection`. The hash of the key is checked apart.
#[must_use]
pub fn accepts_websocket(fields: &Fields) -> bool {
    let mut upgrades = fields.get_all(Known::Upgrade);
    upgrades.next().is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
        && upgrades.next().is_none()
        && crate::h1::has_connection_option(fields, b"upgrade")
}

/// The options that name no field.
fn is_plain_option(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"close")
}

fn strip(fields: &mut Fields, ConnectionNames(named): &ConnectionNames) {
    fields.retain(|field| match field.known {
        Some(known) => known.bit() & HOP_BY_HOP == 0,
        None => !named.iter().any(|name| field.name.eq_ignore_ascii_case(name)),
    });
}
