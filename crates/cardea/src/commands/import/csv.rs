//! Clients as comma-separated values (RFC 4180), one row per line.

use crate::admin::{ImportClient, protocol::Sensitive};

/// The supported columns.
const COLUMNS: [&str; 10] = [
    "client_id",
    "secret_hash",
    "name",
    "enabled",
    "scopes",
    "audiences",
    "access_token_lifetime_seconds",
    "secret_expires_in_seconds",
    "basic_encoding",
    "remember_secret",
];

/// The names of the columns in order.
pub(super) struct Header(Vec<String>);

impl Header {
    /// Parses the first line.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let names: Vec<String> = cells(line)?.iter().map(|name| name.trim().to_owned()).collect();
        for (index, name) in names.iter().enumerate() {
            if !COLUMNS.contains(&name.as_str()) {
                return Err(format!("unknown column {name:?}; the columns are: {}", COLUMNS.join(", ")));
            }
            if names.iter().take(index).any(|earlier| earlier == name) {
                return Err(format!("duplicate column {name:?}"));
            }
        }
        for required in ["client_id", "secret_hash"] {
            if !names.iter().any(|name| name == required) {
                return Err(format!("there is no column {required:?}; the first line names the columns"));
            }
        }
        Ok(Self(names))
    }

    /// Parses another line. An empty cell counts as absent.
    pub(super) fn client(&self, line: &str) -> Result<ImportClient, String> {
        let cells = cells(line)?;
        if cells.len() != self.0.len() {
            return Err(format!("{} cells, but the first line has {} columns", cells.len(), self.0.len()));
        }
        let cell = |name: &str| {
            let named = self.0.iter().zip(&cells).find(|(known, _)| *known == name);
            named.map(|(_, cell)| cell.as_str()).filter(|cell| !cell.is_empty())
        };
        let required = |name: &str| cell(name).ok_or_else(|| format!("{name} is empty"));
        let list = |name: &str| {
            cell(name).unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let seconds = |name: &str| {
            let parsed = cell(name).map(|text| text.parse::<u64>());
            parsed.transpose().map_err(|_| format!("{name}: expected a whole number of seconds"))
        };
        let switch = |name: &str| match cell(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(format!("{name}: expected true or false")),
        };
        Ok(ImportClient {
            client_id: required("client_id")?.to_owned(),
            secret_hash: Sensitive::new(required("secret_hash")?),
            name: cell("name").map(str::to_owned),
            enabled: switch("enabled")?,
            scopes: list("scopes"),
            audiences: list("audiences"),
            access_token_lifetime_seconds: seconds("access_token_lifetime_seconds")?,
            secret_expires_in_seconds: seconds("secret_expires_in_seconds")?,
            basic_encoding: cell("basic_encoding").map(str::to_owned),
            remember_secret: switch("remember_secret")?,
        })
    }
}

/// The cells of a line. A cell has quotes at both ends or none; a quote within a quoted cell is doubled.
pub(super) fn cells(line: &str) -> Result<Vec<String>, String> {
    let mut cells = Vec::new();
    let mut rest = line;
    loop {
        let (cell, after) = match rest.strip_prefix('"') {
            Some(quoted) => until_quote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (cell, after) = rest.split_at(end);
                if cell.contains('"') {
                    return Err("a quote within a cell that doesn't begin with one".to_owned());
                }
                (cell.to_owned(), after)
            }
        };
        cells.push(cell);
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.is_empty() => return Ok(cells),
            None => return Err("text between a closing quote and the next comma".to_owned()),
        };
    }
}

/// A quoted cell without its quotes, and the rest of the line.
fn until_quote(quoted: &str) -> Result<(String, &str), String> {
    let mut cell = String::new();
    let mut rest = quoted;
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err("a quote that isn't closed on its line".to_owned());
        };
        cell.push_str(part);
        match after.strip_prefix('"') {
            Some(next) => {
                cell.push('"');
                rest = next;
            }
            None => return Ok((cell, after)),
        }
    }
}
