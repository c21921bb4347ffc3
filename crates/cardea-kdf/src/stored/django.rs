//! Django's `algorithm$…` (`django.contrib.auth.hashers`), whose salts are raw text.

use super::{
    base64::{PADDED, decode, number},
    error::{FormatError, wrong},
    modular,
    scheme::{BcryptInput, Scheme, iterations, log_n},
};
use crate::Prf;

pub(super) fn parse(name: &str, rest: &str) -> Result<Scheme, FormatError> {
    let pbkdf2 = |prf| {
        let mut parts = rest.splitn(3, '$');
        let (Some(count), Some(salt), Some(hash)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong("hash", "expected algorithm$iterations$salt$hash"));
        };
        Ok(Scheme::Pbkdf2 {
            prf,
            iterations: iterations(number(count, "iterations")?)?,
            salt: salt.as_bytes().to_vec(),
            expected: decode(&PADDED, hash, "hash")?,
        })
    };
    match name {
        "pbkdf2_sha256" => pbkdf2(Prf::HmacSha256),
        "pbkdf2_sha1" => pbkdf2(Prf::HmacSha1),
        "argon2" => match modular::parse(&format!("${rest}"))? {
            scheme @ Scheme::Argon2 { .. } => Ok(scheme),
            _ => Err(wrong("algorithm", "expected argon2id or argon2i after argon2$")),
        },
        "bcrypt" => bcrypt(rest, BcryptInput::Secret),
        "bcrypt_sha256" => bcrypt(rest, BcryptInput::Sha256Hex),
        "scrypt" => scrypt(rest),
        _ => Err(wrong("algorithm", "unknown")),
    }
}

fn bcrypt(rest: &str, input: BcryptInput) -> Result<Scheme, FormatError> {
    match modular::parse(rest)? {
        Scheme::Bcrypt { input: BcryptInput::Secret, cost, salt, expected } => {
            Ok(Scheme::Bcrypt { input, cost, salt, expected })
        }
        _ => Err(wrong("algorithm", "expected $2b$ after bcrypt$")),
    }
}

/// `n$salt$r$p$hash`.
fn scrypt(rest: &str) -> Result<Scheme, FormatError> {
    let parts: Vec<&str> = rest.splitn(5, '$').collect();
    let [n, salt, r, p, hash] = parts[..] else {
        return Err(wrong("hash", "expected scrypt$n$salt$r$p$hash"));
    };
    Ok(Scheme::Scrypt {
        log_n: log_n(number(n, "n")?)?,
        r: number(r, "r")?,
        p: number(p, "p")?,
        salt: salt.as_bytes().to_vec(),
        expected: decode(&PADDED, hash, "hash")?,
    })
}
