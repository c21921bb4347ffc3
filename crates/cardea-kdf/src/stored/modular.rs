//! Texts that begin with `$`: PHC strings, passlib's and Ory Hydra's PBKDF2, bcrypt.

use super::{
    base64::{BCRYPT, PHC, decode, decode_passlib, number},
    error::{FormatError, wrong},
    scheme::{Argon2Kind, BcryptInput, Scheme, Sha3, iterations},
};
use crate::Prf;

pub(super) fn parse(text: &str) -> Result<Scheme, FormatError> {
    let Some(rest) = text.strip_prefix('$') else { return Err(wrong("hash", "expected $")) };
    let parts: Vec<&str> = rest.splitn(6, '$').collect();
    match parts[..] {
        ["pbkdf2" | "pbkdf2-sha1", rounds, salt, hash] => pbkdf2(Ok(Prf::HmacSha1), rounds, salt, hash),
        ["pbkdf2-sha256", rounds, salt, hash] => pbkdf2(Ok(Prf::HmacSha256), rounds, salt, hash),
        ["pbkdf2-sha512", rounds, salt, hash] => pbkdf2(Ok(Prf::HmacSha512), rounds, salt, hash),
        // Ory Hydra's names, which mean SHA-3.
        ["pbkdf2-sha224", rounds, salt, hash] => pbkdf2(Err(Sha3::Bits224), rounds, salt, hash),
        ["pbkdf2-sha384", rounds, salt, hash] => pbkdf2(Err(Sha3::Bits384), rounds, salt, hash),
        ["argon2id", version, costs, salt, hash] => argon2(Argon2Kind::Id, Some(version), costs, salt, hash),
        ["argon2i", version, costs, salt, hash] => argon2(Argon2Kind::I, Some(version), costs, salt, hash),
        ["argon2id", costs, salt, hash] => argon2(Argon2Kind::Id, None, costs, salt, hash),
        ["argon2i", costs, salt, hash] => argon2(Argon2Kind::I, None, costs, salt, hash),
        ["scrypt", costs, salt, hash] => {
            let [log_n, r, p] = costs_of(costs, ["ln", "r", "p"])?;
            Ok(Scheme::Scrypt {
                log_n: u8::try_from(log_n).map_err(|_| wrong("ln", "too large"))?,
                r,
                p,
                salt: decode(&PHC, salt, "salt")?,
                expected: decode(&PHC, hash, "hash")?,
            })
        }
        ["2a" | "2b" | "2y", cost, rest] => bcrypt(cost, rest),
        ["bcrypt-sha256", costs, salt, hash] => bcrypt_sha256(costs, salt, hash),
        [
            "pbkdf2" | "pbkdf2-sha1" | "pbkdf2-sha224" | "pbkdf2-sha256" | "pbkdf2-sha384" | "pbkdf2-sha512"
            | "argon2id" | "argon2i" | "scrypt" | "2a" | "2b" | "2y" | "bcrypt-sha256",
            ..,
        ] => Err(wrong("hash", "a field is missing, or there is one more than the format has")),
        _ => Err(wrong("algorithm", "unknown")),
    }
}

/// `i=…,l=…` with the base64 of PHC strings, or passlib's: the count alone, and its own base64.
fn pbkdf2(prf: Result<Prf, Sha3>, costs: &str, salt: &str, hash: &str) -> Result<Scheme, FormatError> {
    let (count, salt, expected) = match costs.strip_prefix("i=") {
        Some(costs) => {
            let (count, length) = match costs.split_once(",l=") {
                Some((count, length)) => (count, Some(number(length, "l")?)),
                None => (costs, None),
            };
            let expected = decode(&PHC, hash, "hash")?;
            if length.is_some_and(|length| usize::try_from(length) != Ok(expected.len())) {
                return Err(wrong("l", "not the length of the hash"));
            }
            (number(count, "i")?, decode(&PHC, salt, "salt")?, expected)
        }
        None => (number(costs, "rounds")?, decode_passlib(salt, "salt")?, decode_passlib(hash, "checksum")?),
    };
    let iterations = iterations(count)?;
    Ok(match prf {
        Ok(prf) => Scheme::Pbkdf2 { prf, iterations, salt, expected },
        Err(sha3) => Scheme::Pbkdf2Sha3 { sha3, iterations, salt, expected },
    })
}

fn argon2(
    kind: Argon2Kind,
    version: Option<&str>,
    costs: &str,
    salt: &str,
    hash: &str,
) -> Result<Scheme, FormatError> {
    let version = match version {
        Some("v=19") => 0x13,
        // Without a version, it is the first one.
        None | Some("v=16") => 0x10,
        Some(_) => return Err(wrong("v", "expected 19 or 16")),
    };
    let [memory_kib, passes, lanes] = costs_of(costs, ["m", "t", "p"])?;
    Ok(Scheme::Argon2 {
        kind,
        version,
        memory_kib,
        passes,
        lanes,
        salt: decode(&PHC, salt, "salt")?,
        expected: decode(&PHC, hash, "hash")?,
    })
}

fn bcrypt(cost: &str, rest: &str) -> Result<Scheme, FormatError> {
    let cost = match cost.as_bytes() {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => u32::from(tens - b'0') * 10 + u32::from(ones - b'0'),
        _ => return Err(wrong("cost", "expected two digits")),
    };
    let Some((salt, hash)) = rest.split_at_checked(22) else {
        return Err(wrong("salt", "cut short"));
    };
    let (salt, expected) = (bcrypt_bytes(salt, "salt")?, bcrypt_bytes(hash, "hash")?);
    Ok(Scheme::Bcrypt { input: BcryptInput::Secret, cost, salt, expected })
}

/// passlib's `bcrypt-sha256`: `v=2,t=2b,r=12`, or in its first version `2b,12`.
fn bcrypt_sha256(costs: &str, salt: &str, hash: &str) -> Result<Scheme, FormatError> {
    let (input, cost) = match costs.strip_prefix("v=") {
        Some(costs) => {
            let costs = costs.strip_prefix("2,").ok_or_else(|| wrong("v", "expected 2"))?;
            let cost =
                costs.strip_prefix("t=2b,r=").ok_or_else(|| wrong("t", "expected 2b, and r after it"))?;
            (BcryptInput::HmacBase64, cost)
        }
        None => {
            let cost = costs.strip_prefix("2a,").or_else(|| costs.strip_prefix("2b,"));
            (BcryptInput::Sha256Base64, cost.ok_or_else(|| wrong("ident", "expected 2a or 2b"))?)
        }
    };
    let cost = number(cost, "rounds")?;
    let (salt, expected) = (bcrypt_bytes(salt, "salt")?, bcrypt_bytes(hash, "hash")?);
    Ok(Scheme::Bcrypt { input, cost, salt, expected })
}

fn bcrypt_bytes<const BYTES: usize>(text: &str, field: &'static str) -> Result<[u8; BYTES], FormatError> {
    let problem = if BYTES == 16 { "expected 22 digits" } else { "expected 31 digits" };
    decode(&BCRYPT, text, field)?.try_into().map_err(|_| wrong(field, problem))
}

/// Three numbers by name, in the order that PHC strings prescribe.
fn costs_of(text: &str, names: [&'static str; 3]) -> Result<[u32; 3], FormatError> {
    let mut parts = text.split(',');
    let mut costs = [0; 3];
    for (cost, name) in costs.iter_mut().zip(names) {
        let value = parts.next().and_then(|part| part.strip_prefix(name)?.strip_prefix('='));
        *cost = number(value.ok_or_else(|| wrong(name, "missing"))?, name)?;
    }
    if parts.next().is_some() {
        return Err(wrong("parameters", "there is one that is unknown"));
    }
    Ok(costs)
}
