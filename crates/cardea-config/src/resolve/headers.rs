//! Header fields: names that the configuration may use, the caller's identity, and what is forwarded.

use std::collections::{BTreeMap, btree_map};

use cardea_gateway::{
    client_certificate::own_headers,
    hints::{hints, is_hint},
    model::{Forwarding, IdentityField, IdentityHeaders},
};
use cardea_http::HeaderNameSet;

use super::{
    super::{
        document::Cursor, raw::RawIdentityHeaders, sections::ForwardingText, source::Location, text::is_token,
    },
    Resolver,
};

/// Fields of the protocol itself, or with credentials: no configuration may set them.
const RESERVED_FIELDS: &[&str] = &[
    "authorization",
    "client-cert",
    "client-cert-chain",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

impl Resolver<'_> {
    pub(super) fn identity_headers(&mut self, raw: RawIdentityHeaders, at: Cursor<'_>) -> IdentityHeaders {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut field = |this: &mut Self, key: Cursor<'_>, location: Location, label: &str, name: String| {
            let name = this.settable_field_name(location, key.shown(&name).to_owned(), name);
            // Origins that map fields to variables treat all punctuation alike, so the two are one name.
            match seen.entry(folded(&name)) {
                btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(label.to_owned());
                }
                btree_map::Entry::Occupied(first) => this.problems.add(
                    location,
                    format!("{name:?} already carries the {}", first.get()),
                    "give each its own field",
                ),
            }
            name
        };
        let mut fields = Vec::with_capacity(5 + raw.extra.len());
        for (key, name, carried) in [
            ("issuer", raw.issuer, IdentityField::Issuer),
            ("subject", raw.subject, IdentityField::Subject),
            ("client_id", raw.client_id, IdentityField::ClientId),
            ("scopes", raw.scopes, IdentityField::Scopes),
            ("roles", raw.roles, IdentityField::Roles),
        ] {
            let location = at.key(key).location();
            fields.push((field(self, at.key(key), location, key, name), carried));
        }
        for (name, claim) in raw.extra {
            let entry = at.key("extra").key(&name);
            if claim.is_empty() {
                self.error(entry, format!("{name:?} names no claim"), "write the claim that it carries");
            }
            let label = format!("claim {claim}");
            let name = field(self, Cursor::nowhere(entry.key_location()), entry.key_location(), &label, name);
            fields.push((name, IdentityField::Claim(claim.split('.').map(str::to_owned).collect())));
        }
        // Invalid field names were reported.
        let names = own_headers(fields.iter().map(|(name, _)| name.as_str())).unwrap_or_default();
        IdentityHeaders { names, fields }
    }

    /// Client fields may be kept although they are hints. Listing any other field is a mistake.
    pub(super) fn forwarding(
        &mut self,
        forwarding: ForwardingText,
        identity: &IdentityHeaders,
        at: Cursor<'_>,
    ) -> Forwarding {
        for (index, name) in forwarding.keep_client_headers.iter().enumerate() {
            let at = at.key("keep_client_headers").index(index);
            if !is_token(name) || !is_hint(name) {
                self.error(
                    at,
                    format!("{:?} is not one of the fields that are removed", at.shown(name)),
                    "leave it out; docs/headers.md lists the fields that are removed",
                );
            } else if carries_identity(identity, name) {
                self.error(
                    at,
                    format!("{name} carries the caller's identity, which only the gateway sets"),
                    "leave it out, or change [identity_headers]",
                );
            }
        }
        let removed = hints(&forwarding.keep_client_headers).unwrap_or_else(|_| HeaderNameSet::default());
        Forwarding {
            via: forwarding.via,
            policy: forwarding.forwarded,
            header: forwarding.header,
            strangers: identity.names.clone().and(&removed),
        }
    }

    /// A field name that the gateway may set or remove, in lower case.
    pub(super) fn settable_field_name(&mut self, location: Location, shown: String, name: String) -> String {
        let name = name.to_ascii_lowercase();
        if !is_token(&name) {
            self.problems.add(
                location,
                format!("{shown:?} is not a field name"),
                "use letters, digits and -, as in \"x-request-id\" (RFC 9110 §5.1)",
            );
        } else if RESERVED_FIELDS.contains(&folded(&name).as_str()) {
            self.problems.add(
                location,
                format!("{name:?} belongs to the protocol, and the gateway takes care of it"),
                "choose another field",
            );
        }
        name
    }
}

/// Whether only the gateway may set a field. Origins may treat all punctuation alike, and so the two names as one.
pub(super) fn carries_identity(identity: &IdentityHeaders, name: &str) -> bool {
    identity.fields.iter().any(|(field, _)| folded(field) == folded(name))
}

/// A field name as seen by services that map it to a variable: in lower case, with all punctuation as `-`.
pub(super) fn folded(name: &str) -> String {
    let fold = |byte: char| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { '-' };
    name.chars().map(fold).collect()
}
