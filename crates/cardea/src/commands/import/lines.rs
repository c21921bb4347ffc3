//! A line of an import: what may be one, a client in JSON, and what must hold of a client in either format.

use cardea_kdf::stored::StoredSecret;

use crate::admin::ImportClient;

/// The longest line in bytes: so much that it fits into a request to a running server even where each letter needs an
/// escape.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// The text of a line.
pub(super) fn text(line: &[u8]) -> Result<&str, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    if text.chars().any(|letter| letter.is_control() && letter != '\t') {
        return Err("a control character".to_owned());
    }
    Ok(text)
}

/// A client as a JSON object.
pub(super) fn from_json(line: &str) -> Result<ImportClient, String> {
    // Serde would take an array too, by the order of the fields.
    if !line.trim_start().starts_with('{') {
        return Err("not a JSON object; each line is one".to_owned());
    }
    serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        // It counts lines of its own, of which there is one.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        format!("{message} (column {})", error.column())
    })
}

/// What doesn't depend on the server: whether the hash is one that can be verified.
pub(super) fn check(client: &ImportClient) -> Result<(), String> {
    match StoredSecret::parse(client.secret_hash.expose()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("secret_hash: {error}")),
    }
}
