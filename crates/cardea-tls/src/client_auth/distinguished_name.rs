//! Distinguished names as text (RFC 4514), escaped so that parts can't be confused.

use std::fmt::Write as _;

use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The short names that RFC 4514 §3 requires, and email addresses. Other types are shown by their object identifiers.
const SHORT_NAMES: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The name with its last part first.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut out = String::new();
    for (index, part) in parts.iter().rev().enumerate() {
        if index > 0 {
            out.push(',');
        }
        for (index, attribute) in part.iter().enumerate() {
            if index > 0 {
                out.push('+');
            }
            write_attribute(attribute, &mut out);
        }
    }
    out
}

fn write_attribute(attribute: &AttributeTypeAndValue<'_>, out: &mut String) {
    let number = attribute.attr_type().to_id_string();
    let short = SHORT_NAMES.iter().find(|(known, _)| *known == number).map(|(_, short)| *short);
    out.push_str(short.unwrap_or(&number));
    out.push('=');
    match attribute.as_str() {
        Ok(value) if short.is_some() => escape(value, out),
        // A type without a short name, or text in an obsolete encoding: its octets (§2.4).
        _ => {
            out.push('#');
            for byte in attribute.attr_value().data {
                let _ = write!(out, "{byte:02x}");
            }
        }
    }
}

/// Escapes a value (RFC 4514 §2.4). Control characters and non-ASCII characters become octets, so that the text fits
/// into a header.
fn escape(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (index, letter) in value.chars().enumerate() {
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => out.extend(['\\', letter]),
            '#' | ' ' if index == 0 => out.extend(['\\', letter]),
            ' ' if index == last => out.push_str("\\ "),
            ' '..='~' => out.push(letter),
            other => {
                for byte in other.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "\\{byte:02x}");
                }
            }
        }
    }
}
