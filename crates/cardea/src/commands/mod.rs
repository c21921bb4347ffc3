//! Commands that manage clients and keys, inspect tokens, explain requests, hash secrets and measure the cost of
//! hashes.

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
pub(crate) mod tarpit;
mod text;
pub(crate) mod token;
pub(crate) mod upstream;

use std::{
    io,
    path::{self, Path, PathBuf},
};

use crate::{
    admin::{
        Connection,
        protocol::{AdminError, Answer, Code, Reply, Request},
    },
    cli::{Exit, Output},
    config::{self, Config, KeyFiles},
};

/// Why a command failed, and the exit code.
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

impl From<AdminError> for Failure {
    fn from(refusal: AdminError) -> Self {
        let exit = match refusal.code {
            // The request was carried out, and the answer is no.
            Code::NotFound | Code::Exists | Code::Limit => Exit::Refused,
            Code::Invalid | Code::NoAuthorizationServer => Exit::Usage,
            Code::Malformed | Code::Forbidden | Code::Configuration | Code::Failed | Code::Other => {
                Exit::Failure
            }
        };
        Self::new(exit, refusal.message)
    }
}

/// Connects to the gateway that runs with the configuration at `path`; `None` if its admin socket doesn't answer.
///
/// # Errors
/// A gateway with another configuration answers, to which the request must not be applied.
fn gateway_of(path: &Path, socket: &Path) -> Result<Option<Connection>, Failure> {
    let Some(mut connection) = Connection::open(socket)? else { return Ok(None) };
    let status = match connection.call(&Request::Status)? {
        Reply::Ok(Answer::Status(status)) => status,
        Reply::Error(refusal) => return Err(refusal.into()),
        _ => return Err(backend::unexpected()),
    };
    if is_same_file(path, Path::new(&status.configuration)) {
        return Ok(Some(connection));
    }
    let message = format!(
        "the gateway at {} runs with {}, not with {}: name its configuration with --config, or configure a separate \
         admin.socket for each gateway",
        socket.display(),
        text::printable(&status.configuration),
        path::absolute(path).unwrap_or_else(|_| path.to_owned()).display()
    );
    Err(Failure::new(Exit::Usage, message))
}

/// Whether two paths name the same file, directly or through links.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let same = |(one, other): (io::Result<PathBuf>, io::Result<PathBuf>)| {
        one.is_ok_and(|one| other.is_ok_and(|other| one == other))
    };
    same((path::absolute(one), path::absolute(other))) || same((one.canonicalize(), other.canonicalize()))
}

/// Reports the result of a command.
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

/// The same, with or without certificate and key files.
fn load_with(path: &Path, key_files: KeyFiles) -> Result<Config, Failure> {
    config::load_with(path, &|name| std::env::var(name).ok(), key_files)
        .map_err(|problems| Failure::new(Exit::Usage, problems.to_string().trim_end()))
}

#[cfg(test)]
mod tests;
