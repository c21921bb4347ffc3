//! The file with a fleet's ticket secret: one line with the Unix time from which it is valid, and 64 hexadecimal
//! digits.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::ratchet::{SECRET_LEN, STEP, Secret, move_on as move_secret_on};
use crate::error::CertificateProblem;
use crate::files;

const SHAPE: &str = "is no ticket secret: write one line with `echo \"$(date +%s) $(openssl rand -hex 32)\"`";

/// The hour from which the secret is valid, and the secret.
pub(super) fn read(path: &Path) -> Result<(u64, Secret), CertificateProblem> {
    let text = files::read(path)?;
    parse(&text).ok_or(CertificateProblem::TicketSecret(SHAPE))
}

/// Replaces the file by one whose secret is valid from the hour `first` on, if its hour is earlier. Returns whether it
/// was replaced.
pub(super) fn move_on(path: &Path, first: u64) -> io::Result<bool> {
    let fault = |problem: &dyn ToString| io::Error::other(problem.to_string());
    let (begin, secret) = read(path).map_err(|problem| fault(&problem))?;
    if first <= begin {
        return Ok(false);
    }
    if fs::symlink_metadata(path)?.is_symlink() {
        return Err(fault(&"it is a link"));
    }
    let secret = move_secret_on(secret, first - begin).map_err(|problem| fault(&problem))?;
    // In the same folder, so that a rename replaces the file atomically.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&format(first, &secret))?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(true)
}

fn parse(text: &[u8]) -> Option<(u64, Secret)> {
    let text = str::from_utf8(text).ok()?.trim_ascii();
    let (time, digits) = text.split_once(' ')?;
    let time: u64 = time.parse().ok()?;
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != SECRET_LEN || !rest.is_empty() {
        return None;
    }
    let mut secret = Secret::default();
    for (byte, [high, low]) in secret.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from((digit(*high)? << 4) | digit(*low)?).ok()?;
    }
    Some((time / STEP.as_secs(), secret))
}

fn format(step: u64, secret: &Secret) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(128));
    text.extend_from_slice((step * STEP.as_secs()).to_string().as_bytes());
    text.push(b' ');
    for byte in secret.iter() {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
        text.extend([digit(byte >> 4), digit(*byte)]);
    }
    text.push(b'\n');
    text
}
