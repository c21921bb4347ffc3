//! `cardea init`: writes a commented starter configuration.

use std::{fs, io, io::Write};

use super::{Exit, InitArgs, Output};

/// The starter configuration; a test checks it as `cardea check` does.
pub(super) const STARTER: &str = include_str!("starter.toml");

/// Writes the starter configuration; an existing file is never overwritten.
pub(super) fn run(arguments: &InitArgs, output: &mut Output) -> Exit {
    let path = &arguments.path;
    let created = fs::File::create_new(path).and_then(|mut file| {
        file.write_all(STARTER.as_bytes())?;
        file.sync_all()
    });
    match created {
        Ok(()) => {
            let config = match path.to_str() {
                Some("cardea.toml") => String::new(),
                _ => format!(" --config {}", path.display()),
            };
            let text =
                format!("wrote {}\nnext: cardea check{config}, then cardea run{config}\n", path.display());
            match output.text(&text) {
                Ok(()) => Exit::Success,
                Err(_) => Exit::Failure,
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            output.error(&format!(
                "{} exists and is not overwritten; name another file: cardea init PATH",
                path.display()
            ));
            Exit::Failure
        }
        Err(error) => {
            output.error(&format!("cannot write {}: {error}", path.display()));
            Exit::Failure
        }
    }
}
