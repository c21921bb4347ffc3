//! `cardea hash`: prints the stored form of a secret.

use std::io;

use cardea_kdf::stored::{SECRET_BYTES_MAX, Target};

use super::{Failure, end, input};
use crate::cli::{Exit, HashArgs, Output};

/// Runs `cardea hash`.
pub(crate) fn run(arguments: &HashArgs, output: &mut Output) -> Exit {
    let result = hash(arguments, output);
    end(result, output)
}

fn hash(arguments: &HashArgs, output: &mut Output) -> Result<Exit, Failure> {
    let target = arguments.iterations.map_or_else(default_target, Ok)?;
    let secret = input::secret(io::stdin().lock(), SECRET_BYTES_MAX)?;
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt)
        .map_err(|_| Failure::new(Exit::Failure, "the system has no randomness"))?;
    let stored = target.hash(&secret, &salt).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    output.line(&stored)?;
    Ok(Exit::Success)
}

/// The default parameters of new hashes.
pub(super) fn default_target() -> Result<Target, Failure> {
    target(Target::ITERATIONS_DEFAULT)
}

/// The parameters of new hashes with this many iterations.
pub(super) fn target(iterations: u32) -> Result<Target, Failure> {
    Target::new(iterations).map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}
