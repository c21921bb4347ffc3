//! What holds for any bytes that are read as rows of an import.

use super::csv::{Header, cells};

/// Reads `data` as a first line and rows after it. A row that is taken is the same when each of its cells is quoted, and
/// has a client and a hash. Returns how many clients there are.
pub(crate) fn fuzz_rows(data: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(data) else { return 0 };
    let mut lines = text.split('\n');
    let Some(header) = lines.next().and_then(|first| Header::parse(first).ok()) else { return 0 };
    let mut clients = 0;
    for line in lines {
        if let Ok(row) = cells(line) {
            let quoted: Vec<String> =
                row.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
            assert_eq!(cells(&quoted.join(",")).as_ref(), Ok(&row), "{line:?}");
        }
        if let Ok(client) = header.client(line) {
            assert!(!client.client_id.is_empty() && !client.secret_hash.expose().is_empty(), "{line:?}");
            clients += 1;
        }
    }
    clients
}
