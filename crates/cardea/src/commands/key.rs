//! `cardea key`: the signing keys of the authorization server.

use std::{fs::File, io::Read as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cardea_clock::{CoarseClock, PERIOD_DEFAULT};
use cardea_issuer::WrappingKey;
use zeroize::Zeroizing;

use anyhow::Context as _;

use super::{
    Failure,
    backend::{Backend, unexpected},
    end, load,
    text::{Table, time},
};
use crate::{
    admin::protocol::{Answer, Key, Request, Sensitive},
    cli::{Exit, KeyArgs, KeyCommand, KeyRewrapArgs, Output},
};

/// The longest file that is read as a wrapping key, in bytes.
const WRAPPING_KEY_BYTES_MAX: u64 = 4 * 1024;

/// Runs `cardea key`.
pub(crate) fn run(arguments: &KeyArgs, output: &mut Output) -> Exit {
    let result = carry_out(arguments, output);
    end(result, output)
}

fn carry_out(arguments: &KeyArgs, output: &mut Output) -> Result<Exit, Failure> {
    let config = load(&arguments.common.config)?;
    // Errors of the new key are reported before anything is opened.
    let (request, place) = match &arguments.command {
        KeyCommand::List => (Request::KeyList, None),
        KeyCommand::Rotate(rotate) => (Request::KeyRotate { now: rotate.now }, None),
        KeyCommand::Rewrap(rewrap) => {
            let (new_key, place) = new_wrapping_key(rewrap)?;
            (Request::KeyRewrap { new_key }, Some(place))
        }
    };
    let mut backend = Backend::open(&arguments.common.config, &config, output)?;
    let Answer::Keys(keys) = backend.call(request)? else { return Err(unexpected()) };
    if arguments.common.json {
        output.json(&keys)?;
    } else {
        output.text(&table(&keys)?)?;
    }
    match (&arguments.command, place) {
        (KeyCommand::Rotate(rotate), _) if rotate.now => output.error(
            "note: the next key signs from now on. If it was not published before, verifiers that cache the key set must \
             fetch it again. The old key stays published, so its tokens remain valid until they expire",
        ),
        (KeyCommand::Rotate(_), _) => {
            if let Some(next) = keys.last().filter(|key| !key.signing) {
                output.error(&format!("note: the next key is published; it signs from {}", time(next.activates_at)));
            }
        }
        (KeyCommand::Rewrap(_), Some(place)) => output.error(&format!(
            "note: the private keys are now encrypted under the new wrapping key; the old one is no longer needed.\n\
             next: set authorization_server.wrapping_key = {place} in the configuration before the next start{}",
            if backend.is_server() { " (the running gateway uses it already)" } else { "" }
        )),
        _ => {}
    }
    Ok(Exit::Success)
}

fn table(keys: &[Key]) -> Result<String, Failure> {
    let clock = CoarseClock::start(PERIOD_DEFAULT).context("starting the clock")?;
    let now = clock.clock().precise().wall.unix_seconds();
    let mut table = Table::new(&["KEY_ID", "ALGORITHM", "STATE", "SIGNS_FROM", "REMOVED_AT", "WRAPPING_KEY"]);
    for key in keys {
        let state = if key.signing {
            "signs"
        } else if key.activates_at > now {
            "published ahead"
        } else {
            "verifies only"
        };
        table.row([
            key.kid.clone(),
            key.algorithm.clone(),
            state.to_owned(),
            time(key.activates_at),
            key.remove_at.map_or_else(|| "-".to_owned(), time),
            key.wrapping_key_id.clone(),
        ]);
    }
    Ok(table.render())
}

/// The new wrapping key, and its source in the configuration's syntax.
fn new_wrapping_key(arguments: &KeyRewrapArgs) -> Result<(Sensitive, String), Failure> {
    let (bytes, place, origin) = match (&arguments.new_key_file, &arguments.new_key_env) {
        (Some(path), _) => {
            let bytes = read(path)?;
            (bytes, format!("{{ file = {:?} }}", path.display().to_string()), path.display().to_string())
        }
        (None, Some(name)) => {
            let value = std::env::var(name).map_err(|_| {
                Failure::new(Exit::Usage, format!("the environment variable {name} is not set"))
            })?;
            (Zeroizing::new(value.into_bytes()), format!("{{ env = {name:?} }}"), format!("${name}"))
        }
        (None, None) => {
            return Err(Failure::new(
                Exit::Usage,
                "name the new wrapping key: --new-key-file or --new-key-env",
            ));
        }
    };
    if let Err(error) = WrappingKey::parse(&bytes) {
        return Err(Failure::new(Exit::Usage, format!("{origin}: {error}")));
    }
    Ok((Sensitive::new(STANDARD.encode(&bytes)), place))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)
        .and_then(|file| file.take(WRAPPING_KEY_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot read {}: {error}", path.display())))?;
    Ok(bytes)
}
