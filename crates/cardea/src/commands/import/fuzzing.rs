//! Properties that hold for any bytes that are read as an import: as rows, and as JSON lines.

use super::{
    csv::{Header, cells},
    lines::{self, LINE_BYTES_MAX, check, from_json},
};
use crate::admin::ImportClient;

/// Reads `data` as a header and rows. An accepted row is equal to the same row with all cells quoted, and has a client
/// and a hash. Returns the number of clients.
pub(crate) fn fuzz_rows(data: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(data) else { return 0 };
    let mut rows = text.split('\n');
    let Some(header) = rows.next().and_then(|first| Header::parse(first).ok()) else { return 0 };
    let mut clients = 0;
    for line in rows {
        if let Ok(row) = cells(line) {
            let quoted: Vec<String> =
                row.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
            assert_eq!(cells(&quoted.join(",")).as_ref(), Ok(&row), "{line:?}");
        }
        if let Ok(client) = header.client(line) {
            assert!(!client.client_id.is_empty() && !client.secret_hash.expose().is_empty(), "{line:?}");
            if lines::text(line.as_bytes()).is_ok() {
                holds_on_its_way(&client, line);
            }
            clients += 1;
        }
    }
    clients
}

/// Reads `data` as JSON lines. An accepted client has a hash that can be verified and is unchanged by the admin socket;
/// errors don't repeat the hash. Returns the number of clients.
pub(crate) fn fuzz_json_lines(data: &[u8]) -> usize {
    let mut clients = 0;
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(line) = lines::text(line) else { continue };
        match from_json(line).and_then(|client| check(&client).map(|()| client)) {
            Ok(client) => {
                holds_on_its_way(&client, line);
                clients += 1;
            }
            Err(problem) => {
                if let Some(hash) = hash_of(line) {
                    assert!(!problem.contains(&hash), "{line:?}: {problem:?}");
                }
            }
        }
    }
    clients
}

/// The server reads what the command line sends, and it is small enough for a request.
fn holds_on_its_way(client: &ImportClient, line: &str) {
    let sent = serde_json::to_string(client).expect("strings and numbers can be written");
    assert_eq!(from_json(&sent).as_ref(), Ok(client), "{line:?}");
    // A character may need an escape, a row has no column names, and numbers in Keycloak's object may grow. A request
    // may have four times as much.
    assert!(sent.len() <= 2 * line.len() + LINE_BYTES_MAX, "{} from {}", sent.len(), line.len());
}

/// The hash of a line, if it is long enough to be distinguishable from other output, and occurs only once.
fn hash_of(line: &str) -> Option<String> {
    let document: serde_json::Value = serde_json::from_str(line).ok()?;
    let hash = document.get("secret_hash")?.as_str()?;
    (hash.len() >= 24 && line.matches(hash).count() == 1).then(|| hash.to_owned())
}
