//! Lines of an import: their limits, clients in JSON, and checks for both formats.

use cardea_kdf::stored::StoredSecret;

use crate::admin::ImportClient;

/// The longest line in bytes. It fits into a request to a running server even if each character needs an escape.
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

/// Parses a client from a JSON object.
pub(super) fn from_json(line: &str) -> Result<ImportClient, String> {
    // Serde would accept an array too, in the order of the fields.
    if !line.trim_start().starts_with('{') {
        return Err("not a JSON object; each line is one".to_owned());
    }
    serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        // Its own line number is always 1.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        format!("{message} (column {})", error.column())
    })
}

/// The checks that don't depend on the server: whether the hash can be verified.
pub(super) fn check(client: &ImportClient) -> Result<(), String> {
    match StoredSecret::parse(client.secret_hash.expose()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("secret_hash: {error}")),
    }
}
