//! Commands that manage clients and keys, look into tokens, tell what the gateway would do, hash secrets and measure
//! what that costs.

mod backend;
pub(crate) mod bench;
pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod explain;
pub(crate) mod hash;
mod import;
mod input;
pub(crate) mod key;
pub(crate) mod running;
mod text;
pub(crate) mod token;

use std::{io, path::Path};

use crate::{
    admin::protocol::{Code, Refusal},
    cli::{Exit, Output},
    config::{self, Config, KeyFiles},
};

/// Why a command did not do what it was asked for, and how the program ends for it.
struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failure, format!("{error:#}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Failure, format!("cannot write the result: {error}"))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let exit = match refusal.code {
            // Done as far as it can be, and the answer is no.
            Code::NotFound | Code::Exists | Code::Limit => Exit::Refused,
            Code::Invalid | Code::NoAuthorizationServer => Exit::Usage,
            Code::Malformed | Code::Forbidden | Code::Configuration | Code::Failed | Code::Other => {
                Exit::Failure
            }
        };
        Self::new(exit, refusal.message)
    }
}

/// Tells how a command ended.
fn end(result: Result<Exit, Failure>, output: &mut Output) -> Exit {
    result.unwrap_or_else(|failure| {
        output.error(&failure.message);
        failure.exit
    })
}

/// Loads the configuration with the process's environment.
fn load(path: &Path) -> Result<Config, Failure> {
    load_with(path, KeyFiles::Read)
}

/// The same, with or without files of certificates and keys.
fn load_with(path: &Path, key_files: KeyFiles) -> Result<Config, Failure> {
    config::load_with(path, &|name| std::env::var(name).ok(), key_files)
        .map_err(|problems| Failure::new(Exit::Usage, problems.to_string().trim_end()))
}

#[cfg(test)]
mod tests;
