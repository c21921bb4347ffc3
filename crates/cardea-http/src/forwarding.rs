//! The forwarding fields of a request: `Via`, `X-Forwarded-*` and `Forwarded`, written and parsed.

#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use smallvec::SmallVec;

use crate::chars::{is_token, trim_ows};
use crate::names::folds_to;
use crate::{FieldError, Fields, Known, Scheme, Version};

/// The handling of received forwarding fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedPolicy {
    /// They are removed and ours are set: for the outermost proxy.
    #[default]
    Set,
    /// Our hop is appended to the list of addresses; scheme and host are ours. For a gateway behind other proxies,
    /// which [`client_address`] evaluates.
    Append,
    /// They are kept, and missing ones are set: only behind a proxy that sets all of them.
    Trust,
    /// They are removed, and not set.
    Off,
}

/// Which fields carry the hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The hop from the peer to the gateway.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// The address of the peer.
    pub client: IpAddr,
    /// The scheme of the connection.
    pub scheme: Scheme,
    /// The normalised authority of the request.
    pub host: &'a str,
}

/// The most hops that [`client_address`] walks.
const HOPS_MAX: usize = 32;

/// All fields that state the origin of a request. Fields that are not rewritten must not reach an origin that might
/// trust them.
const FORWARDING: [Known; 8] = [
    Known::Forwarded,
    Known::XForwardedFor,
    Known::XForwardedHost,
    Known::XForwardedProto,
    Known::XForwardedPort,
    Known::XForwardedPrefix,
    Known::XForwardedServer,
    Known::XRealIp,
];

/// Appends our member to `Via` (RFC 9110 §7.6.3): the version of the received message, and our pseudonym.
///
/// # Errors
/// [`FieldError`] if the pseudonym is no field value, or there is no room.
pub fn append_via(fields: &mut Fields, version: Version, pseudonym: &str) -> Result<(), FieldError> {
    let mut member = SmallVec::<[u8; 64]>::new();
    member.extend_from_slice(version.via().as_bytes());
    member.push(b' ');
    member.extend_from_slice(pseudonym.as_bytes());
    fields.append_known(Known::Via, &member)
}

/// Removes the received forwarding fields that [`set_forwarded`] would replace, so that no decision is based on fields
/// that no service gets.
pub fn strip_forwarded(fields: &mut Fields, policy: ForwardedPolicy, header: ForwardedHeader) {
    if policy != ForwardedPolicy::Trust {
        remove_all_but(fields, kept(policy, header));
    }
}

/// Writes the forwarding fields of a request. Fields of the other family than `header` are removed too, unless trusted.
/// [`crate::strip_lookalikes`] removes other spellings.
///
/// # Errors
/// [`FieldError`] if the host is no field value, or there is no room.
pub fn set_forwarded(
    fields: &mut Fields,
    policy: ForwardedPolicy,
    header: ForwardedHeader,
    hop: &Hop<'_>,
) -> Result<(), FieldError> {
    if policy == ForwardedPolicy::Trust {
        return set_missing(fields, header, hop);
    }
    remove_all_but(fields, kept(policy, header));
    match (policy, header) {
        (ForwardedPolicy::Off, _) => Ok(()),
        // A list may be spread over lines (RFC 9110 §5.3), but many readers see only one of them.
        (_, ForwardedHeader::XForwarded) => {
            append_member(fields, Known::XForwardedFor, &address(hop.client))?;
            fields.append_known(Known::XForwardedProto, hop.scheme.as_str().as_bytes())?;
            fields.append_known(Known::XForwardedHost, hop.host.as_bytes())
        }
        (_, ForwardedHeader::Forwarded) => append_member(fields, Known::Forwarded, &forwarded_element(hop)),
    }
}

/// The source address of a request: the rightmost untrusted one. `None` if trusted proxies do not tell it.
///
/// It begins with the connection's peer. As long as the address is trusted, it continues with the next one to the left.
/// If all are trusted, the result is the leftmost one. IPv4-mapped addresses are returned as IPv4.
///
/// A list whose next element is malformed, `unknown` or obfuscated (RFC 7239 §6), or that has more than 32 elements to
/// walk, comes from a client whose address is not known. No address stands for it, least of all the proxy's own.
pub fn client_address(
    fields: &Fields,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
    header: ForwardedHeader,
) -> Option<IpAddr> {
    let mut address = peer.to_canonical();
    let known = match header {
        ForwardedHeader::XForwarded => Known::XForwardedFor,
        ForwardedHeader::Forwarded => Known::Forwarded,
    };
    if !fields.contains(known) || !is_trusted(address) {
        return Some(address);
    }
    let mut hops = 0;
    for line in fields.get_all(known).rev() {
        let mut rest = Some(line);
        while let Some(list) = rest {
            // Only a scan from the left can tell whether a comma is quoted. No element that we accept has a quoted
            // comma, so a quoted one only ends the walk: the part after it has an odd quote.
            let (before, member) = split_last(list);
            rest = before;
            let member = trim_ows(member);
            if member.is_empty() {
                continue;
            }
            hops += 1;
            if hops > HOPS_MAX {
                return None;
            }
            address = match header {
                ForwardedHeader::XForwarded => parse_node(member),
                ForwardedHeader::Forwarded => forwarded_for(member),
            }?;
            if !is_trusted(address) {
                return Some(address);
            }
        }
    }
    Some(address)
}

fn set_missing(fields: &mut Fields, header: ForwardedHeader, hop: &Hop<'_>) -> Result<(), FieldError> {
    if header == ForwardedHeader::Forwarded {
        return if fields.contains(Known::Forwarded) {
            Ok(())
        } else {
            fields.append_known(Known::Forwarded, &forwarded_element(hop))
        };
    }
    if !fields.contains(Known::XForwardedFor) {
        fields.append_known(Known::XForwardedFor, &address(hop.client))?;
    }
    if !fields.contains(Known::XForwardedProto) {
        fields.append_known(Known::XForwardedProto, hop.scheme.as_str().as_bytes())?;
    }
    if !fields.contains(Known::XForwardedHost) {
        fields.append_known(Known::XForwardedHost, hop.host.as_bytes())?;
    }
    Ok(())
}

/// The field that a policy appends to instead of replacing it.
const fn kept(policy: ForwardedPolicy, header: ForwardedHeader) -> Option<Known> {
    match (policy, header) {
        (ForwardedPolicy::Append, ForwardedHeader::XForwarded) => Some(Known::XForwardedFor),
        (ForwardedPolicy::Append, ForwardedHeader::Forwarded) => Some(Known::Forwarded),
        _ => None,
    }
}

fn remove_all_but(fields: &mut Fields, kept: Option<Known>) {
    let set = FORWARDING.iter().fold(0, |set, known| set | known.bit()) & !kept.map_or(0, Known::bit);
    if fields.known_set() & set != 0 {
        fields.retain(|field| field.known.is_none_or(|known| known.bit() & set == 0));
    }
}

/// Merges the lines of a list into one, and appends a member.
fn append_member(fields: &mut Fields, known: Known, member: &[u8]) -> Result<(), FieldError> {
    if !fields.contains(known) {
        return fields.append_known(known, member);
    }
    let mut list = Vec::with_capacity(128);
    for line in fields.get_all(known).filter(|line| !line.is_empty()) {
        list.extend_from_slice(line);
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(member);
    fields.set_known(known, &list)
}

/// One element of `Forwarded` (RFC 7239 §4). IPv6 addresses and hosts with a port are quoted (§6).
fn forwarded_element(hop: &Hop<'_>) -> Vec<u8> {
    let mut element = Vec::with_capacity(64);
    let (open, close): (&[u8], &[u8]) =
        if hop.client.to_canonical().is_ipv6() { (b"\"[", b"]\"") } else { (b"", b"") };
    let quote: &[u8] = if is_token(hop.host.as_bytes()) { b"" } else { b"\"" };
    let parts: [&[u8]; 9] = [
        b"for=",
        open,
        &address(hop.client),
        close,
        b";host=",
        quote,
        hop.host.as_bytes(),
        quote,
        b";proto=",
    ];
    for part in parts {
        element.extend_from_slice(part);
    }
    element.extend_from_slice(hop.scheme.as_str().as_bytes());
    element
}

/// The address in its usual notation; an IPv4-mapped one as IPv4.
fn address(address: IpAddr) -> SmallVec<[u8; 40]> {
    match address.to_canonical() {
        // Written for every request; the formatting machinery takes several times as long.
        IpAddr::V4(address) => {
            let mut text = SmallVec::new();
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    text.push(b'.');
                }
                text.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
            text
        }
        IpAddr::V6(address) => SmallVec::from_slice(address.to_string().as_bytes()),
    }
}

/// The parts before and after the last comma.
fn split_last(list: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match list.iter().rposition(|&byte| byte == b',') {
        Some(comma) => (list.get(..comma), list.get(comma + 1..).unwrap_or_default()),
        None => (None, list),
    }
}

/// The `for` parameter of a `Forwarded` element (RFC 7239 §4). There must be exactly one, and no malformed pair.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in element.split(|&byte| byte == b';').map(trim_ows) {
        if pair.is_empty() {
            continue;
        }
        let equals = memchr::memchr(b'=', pair)?;
        let (name, value) = pair.split_at_checked(equals)?;
        let value = value.strip_prefix(b"=")?;
        let value = match value {
            // No valid value contains an escape.
            [b'"', inner @ .., b'"'] if !inner.iter().any(|byte| matches!(byte, b'"' | b'\\')) => inner,
            value if is_token(value) => value,
            _ => return None,
        };
        if !is_token(name) {
            return None;
        }
        if folds_to(name, b"for") && found.replace(parse_node(value)?).is_some() {
            return None;
        }
    }
    found
}

/// An address with or without a port. IPv6 may have brackets, and must have them with a port.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(node).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        // An address with a zone has no meaning here.
        return if text.contains('%') { None } else { Some(address.ip().to_canonical()) };
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(IpAddr::V6(inner.parse::<Ipv6Addr>().ok()?).to_canonical())
}
