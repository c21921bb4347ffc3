//! `cardea client import`: imports clients of another server, with the hashes of their secrets.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde_json::json;
use zeroize::Zeroizing;

use super::{Failure, backend::Backend, text::printable};
use crate::{
    admin::{IMPORT_BYTES_MAX, IMPORT_CLIENTS_MAX, ImportClient},
    cli::{ClientImportArgs, Exit, ImportFormat, Output},
};

mod csv;
#[cfg(test)]
mod fuzzing;
mod lines;

/// The most problems that are listed.
const PROBLEMS_MAX: usize = 20;

/// The clients of a file.
#[derive(Default)]
pub(super) struct Clients {
    /// The name of the file.
    origin: String,
    clients: Vec<ImportClient>,
    /// The line of each client, from 1.
    lines: Vec<usize>,
}

impl Clients {
    /// Reads a file, and reports every line that is invalid whatever the server contains.
    pub(super) fn read(arguments: &ClientImportArgs) -> Result<Self, Failure> {
        let path = &arguments.file;
        let is_input = path.as_os_str() == "-";
        let origin = if is_input { "standard input".to_owned() } else { path.display().to_string() };
        let format = arguments.format.or_else(|| format_of(path)).ok_or_else(|| {
            let message = format!("{origin}: unknown format; use --format json-lines or --format csv");
            Failure::new(Exit::Usage, message)
        })?;
        let mut content = Zeroizing::new(Vec::new());
        let limit = IMPORT_BYTES_MAX as u64 + 1;
        let read = if is_input {
            io::stdin().lock().take(limit).read_to_end(&mut content)
        } else {
            File::open(path).and_then(|file| file.take(limit).read_to_end(&mut content))
        };
        read.map_err(|error| Failure::new(Exit::Usage, format!("cannot read {origin}: {error}")))?;
        if content.len() > IMPORT_BYTES_MAX {
            let most = IMPORT_BYTES_MAX >> 20;
            return Err(Failure::new(Exit::Usage, format!("{origin}: longer than {most} MiB; split it")));
        }
        Self::parse(origin, &content, format)
    }

    fn parse(origin: String, content: &[u8], format: ImportFormat) -> Result<Self, Failure> {
        let mut this = Self { origin, ..Self::default() };
        let mut problems = Vec::new();
        let mut header = None;
        let mut seen = HashMap::new();
        // Spreadsheets write a byte order mark.
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let client = lines::text(line).and_then(|line| match format {
                ImportFormat::JsonLines => lines::from_json(line).map(Some),
                ImportFormat::Csv => match &header {
                    None => {
                        header = Some(csv::Header::parse(line)?);
                        Ok(None)
                    }
                    Some(header) => header.client(line).map(Some),
                },
            });
            match client {
                Ok(Some(client)) => {
                    match lines::check(&client).and_then(|()| first_of(&mut seen, &client, index + 1)) {
                        Ok(()) => {
                            this.clients.push(client);
                            this.lines.push(index + 1);
                        }
                        Err(problem) => problems.push((index + 1, problem)),
                    }
                }
                Ok(None) => {}
                Err(problem) => problems.push((index + 1, problem)),
            }
            // Without a header the other lines have no meaning.
            if format == ImportFormat::Csv && header.is_none() {
                break;
            }
        }
        if !problems.is_empty() {
            return Err(this.refused(&problems));
        }
        let wrong = match this.clients.len() {
            0 => "no clients".to_owned(),
            count if count > IMPORT_CLIENTS_MAX => {
                format!("more than {IMPORT_CLIENTS_MAX} clients; split it")
            }
            _ => return Ok(this),
        };
        Err(Failure::new(Exit::Usage, format!("{}: {wrong}", this.origin)))
    }

    /// Imports all of them or none.
    pub(super) fn import(
        self,
        backend: &mut Backend,
        json: bool,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let Self { origin, clients, lines } = self;
        let count = clients.len();
        if let Err(refusal) = backend.import(clients, output)? {
            let Some(line) = refusal.index.and_then(|index| lines.get(index)) else {
                return Err(refusal.into());
            };
            let this = Self { origin, ..Self::default() };
            let mut problems = vec![(*line, refusal.message)];
            for other in refusal.others {
                problems.extend(lines.get(other.index).map(|line| (*line, other.message)));
            }
            return Err(this.refused(&problems));
        }
        if json {
            output.json(&json!({ "imported": count }))?;
        } else {
            output.line(&format!("imported {count} client{}", if count == 1 { "" } else { "s" }))?;
        }
        Ok(())
    }

    fn refused(&self, problems: &[(usize, String)]) -> Failure {
        let mut message = String::new();
        for (line, problem) in problems.iter().take(PROBLEMS_MAX) {
            message.push_str(&format!("{}:{line}: {}\n", self.origin, printable(problem)));
        }
        if let Some(more) = problems.len().checked_sub(PROBLEMS_MAX).filter(|more| *more > 0) {
            message.push_str(&format!("{more} more lines with errors\n"));
        }
        message.push_str("nothing was imported");
        Failure::new(Exit::Refused, message)
    }
}

/// Records the line of a client, unless another one has its id.
fn first_of(seen: &mut HashMap<String, usize>, client: &ImportClient, line: usize) -> Result<(), String> {
    match seen.entry(client.client_id.clone()) {
        Entry::Vacant(entry) => {
            entry.insert(line);
            Ok(())
        }
        Entry::Occupied(entry) => {
            Err(format!("duplicate client {:?}; first in line {}", client.client_id, entry.get()))
        }
    }
}

fn format_of(path: &Path) -> Option<ImportFormat> {
    let extension = path.extension().and_then(OsStr::to_str)?.to_ascii_lowercase();
    match extension.as_str() {
        "jsonl" | "ndjson" => Some(ImportFormat::JsonLines),
        "csv" => Some(ImportFormat::Csv),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
