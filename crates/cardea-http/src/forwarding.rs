//! Who forwarded a request: `Via`, `X-Forwarded-*` and `Forwarded`, written and read.

#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use smallvec::SmallVec;

use crate::chars::{is_token, trim_ows};
use crate::names::folds_to;
use crate::{FieldError, Fields, Known, Scheme, Version};

/// What becomes of the forwarding fields that a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedPolicy {
    /// They are removed and ours are set: for an edge.
    #[default]
    Set,
    /// Our hop is appended to the list of addresses; scheme and host are ours. For a gateway behind others that
    /// are told apart by [`client_address`].
    Append,
    /// They are kept as they are, and what is missing is set: only behind a proxy that sets them all.
    Trust,
    /// They are removed, and none are set.
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

/// What is known of the hop to us.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// The address that connected to us.
    pub client: IpAddr,
    /// The scheme that it used.
    pub scheme: Scheme,
    /// The authority that the request is for, normalised.
    pub host: &'a str,
}

/// The most hops that [`client_address`] walks.
const HOPS_MAX: usize = 32;

/// All that says where a request comes from. What is not rewritten must not reach an origin that might believe it.
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

/// Appends our member to `Via` (RFC 9110 §7.6.3): the version that the message came in, and our pseudonym.
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

/// Removes the forwarding fields that a request brought and that [`set_forwarded`] would replace, so that nobody reads
/// before what no service gets.
pub fn strip_forwarded(fields: &mut Fields, policy: ForwardedPolicy, header: ForwardedHeader) {
    if policy != ForwardedPolicy::Trust {
        remove_all_but(fields, kept(policy, header));
    }
}

/// Writes the forwarding fields of a request. Fields of the other family than `header` are removed too, unless
/// trusted. Their other spellings are for [`crate::strip_lookalikes`].
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

/// The address that a request really comes from: the rightmost one that is not trusted.
///
/// Begins with the connection's peer, and as long as the address at hand is trusted goes on to the one that it
/// vouches for, from right to left. Stops at the first that is malformed, `unknown` or obfuscated (RFC 7239 §6), and
/// after 32 hops. IPv4-mapped addresses come out as IPv4.
pub fn client_address(
    fields: &Fields,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
    header: ForwardedHeader,
) -> IpAddr {
    let mut address = peer.to_canonical();
    let known = match header {
        ForwardedHeader::XForwarded => Known::XForwardedFor,
        ForwardedHeader::Forwarded => Known::Forwarded,
    };
    if !fields.contains(known) || !is_trusted(address) {
        return address;
    }
    let mut hops = 0;
    for line in fields.get_all(known).rev() {
        let mut rest = Some(line);
        while let Some(list) = rest {
            // Whether a comma is quoted can only be told from the left. No element that we can read has a quoted
            // one, so it merely ends the walk: what follows it has an odd quote.
            let (before, member) = split_last(list);
            rest = before;
            let member = trim_ows(member);
            if member.is_empty() {
                continue;
            }
            let next = match header {
                ForwardedHeader::XForwarded => parse_node(member),
                ForwardedHeader::Forwarded => forwarded_for(member),
            };
            hops += 1;
            match next {
                Some(next) if hops <= HOPS_MAX => address = next,
                _ => return address,
            }
            if !is_trusted(address) {
                return address;
            }
        }
    }
    address
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

/// The field that a policy adds to in place of replacing it.
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

/// Makes the lines of a list one line, with one more member.
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

/// The address in its usual spelling, an IPv4-mapped one as IPv4.
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

/// What stands before the last comma, and what behind it.
fn split_last(list: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match list.iter().rposition(|&byte| byte == b',') {
        Some(comma) => (list.get(..comma), list.get(comma + 1..).unwrap_or_default()),
        None => (None, list),
    }
}

/// The `for` of an element of `Forwarded` (RFC 7239 §4): exactly one, and no other pair malformed.
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
            // No value that matters has an escape in it.
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

/// An address, with or without a port; IPv6 with or without brackets, but with them if there is a port.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(node).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        // With a zone it is no address that means anything to us.
        return if text.contains('%') { None } else { Some(address.ip().to_canonical()) };
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(IpAddr::V6(inner.parse::<Ipv6Addr>().ok()?).to_canonical())
}
