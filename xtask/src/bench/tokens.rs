//! Signed tokens, good ones and bad ones, and the keys that they are verified with; by OpenSSL, which none of the
//! subjects' verdicts depend on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::server::fresh_folder;
use crate::process::catch;

/// For OpenSSL to make a key, or a signature.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a token is good for; longer than any bench.
const LIFETIME_SECONDS: u64 = 6 * 3600;
/// Callers at a time, where they are many.
pub(super) const MANY: usize = 256;
/// Whose tokens they are, and for whom.
pub(super) const ISSUER: &str = "https://issuer.example";
pub(super) const AUDIENCE: &str = "https://api.example";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Octets of a coordinate on P-256.
const COORDINATE: usize = 32;

/// What a token is signed with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Algorithm {
    Es256,
    Rs256,
}

impl Algorithm {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
        }
    }
}

/// A signing key, and tokens under it.
#[derive(Debug)]
pub(super) struct Tokens {
    /// With `jwks.json` and `public.pem`.
    pub(super) folder: PathBuf,
    pub(super) good: String,
    /// A file with many good ones, a line each, all of other subjects.
    pub(super) many: PathBuf,
    /// Each with what is wrong with it.
    pub(super) bad: Vec<(&'static str, String)>,
}

impl Tokens {
    /// Makes a key and tokens in `folder`.
    ///
    /// # Errors
    ///
    /// OpenSSL fails.
    pub(super) fn make(folder: PathBuf, algorithm: Algorithm) -> Result<Self> {
        let folder = fresh_folder(folder)?;
        let key = folder.join("private.pem");
        let options: &[&str] = match algorithm {
            Algorithm::Es256 => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Algorithm::Rs256 => &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        };
        openssl(Command::new("openssl").arg("genpkey").args(options).arg("-out").arg(&key))?;
        openssl(
            Command::new("openssl")
                .args(["pkey", "-pubout", "-in"])
                .arg(&key)
                .arg("-out")
                .arg(folder.join("public.pem")),
        )?;
        fs::write(folder.join("jwks.json"), key_set(&folder, &key, algorithm)?)?;

        let now = now();
        let sign_for = |subject: &str, issuer: &str, audience: &str, from: u64, to: u64| {
            let header = json!({ "alg": algorithm.name(), "typ": "at+jwt", "kid": "bench" });
            let claims = json!({
                "iss": issuer, "aud": audience, "sub": subject, "client_id": subject, "scope": "read",
                "jti": "1b6f3a", "iat": from, "nbf": from, "exp": to,
            });
            let message = format!(
                "{}.{}",
                base64url(header.to_string().as_bytes()),
                base64url(claims.to_string().as_bytes())
            );
            let signature = signature(&folder, &key, algorithm, &message)?;
            anyhow::Ok(format!("{message}.{}", base64url(&signature)))
        };
        let sign = |issuer, audience, from, to| sign_for("client", issuer, audience, from, to);
        let good = sign(ISSUER, AUDIENCE, now - 60, now + LIFETIME_SECONDS)?;
        let other = |number| {
            sign_for(&format!("client-{number}"), ISSUER, AUDIENCE, now - 60, now + LIFETIME_SECONDS)
        };
        let tokens = (0..MANY).map(|number| Ok(other(number)? + "\n")).collect::<Result<String>>()?;
        let many = folder.join("tokens");
        fs::write(&many, tokens)?;
        let bad = vec![
            ("no token", String::new()),
            ("a signature of another token", {
                let other = sign(ISSUER, AUDIENCE, now - 61, now + LIFETIME_SECONDS)?;
                let (message, _) = good.rsplit_once('.').context("a token has three parts")?;
                let (_, signature) = other.rsplit_once('.').context("a token has three parts")?;
                format!("{message}.{signature}")
            }),
            ("expired", sign(ISSUER, AUDIENCE, now - 7200, now - 3600)?),
            ("another audience", sign(ISSUER, "https://other.example", now - 60, now + LIFETIME_SECONDS)?),
            ("another issuer", sign("https://other.example", AUDIENCE, now - 60, now + LIFETIME_SECONDS)?),
        ];
        Ok(Self { folder, good, many, bad })
    }
}

/// The public key as a key set (RFC 7517).
fn key_set(folder: &Path, key: &Path, algorithm: Algorithm) -> Result<String> {
    let file = folder.join("public.der");
    let public = |form: &[&str]| {
        openssl(Command::new("openssl").args(form).arg("-in").arg(key).arg("-out").arg(&file))?;
        fs::read(&file).context("the public key")
    };
    let mut entry = json!({ "kid": "bench", "use": "sig", "alg": algorithm.name() });
    match algorithm {
        Algorithm::Es256 => {
            // It ends with the point, uncompressed: both coordinates.
            let der = public(&["pkey", "-pubout", "-outform", "DER"])?;
            let (_, point) = der.split_at_checked(der.len() - 2 * COORDINATE).context("a public key")?;
            entry["kty"] = "EC".into();
            entry["crv"] = "P-256".into();
            entry["x"] = base64url(&point[..COORDINATE]).into();
            entry["y"] = base64url(&point[COORDINATE..]).into();
        }
        Algorithm::Rs256 => {
            let text = String::from_utf8(public(&["rsa", "-modulus", "-noout"])?)?;
            let digits = text.trim().strip_prefix("Modulus=").context("openssl rsa -modulus")?;
            entry["kty"] = "RSA".into();
            entry["n"] = base64url(&from_hex(digits)?).into();
            // 65537, which OpenSSL takes by itself.
            entry["e"] = "AQAB".into();
        }
    }
    Ok(json!({ "keys": [entry] }).to_string())
}

/// The signature of `message` as a token has it (RFC 7518 §3.3, §3.4).
fn signature(folder: &Path, key: &Path, algorithm: Algorithm, message: &str) -> Result<Vec<u8>> {
    let (input, output) = (folder.join("message"), folder.join("signature"));
    fs::write(&input, message)?;
    openssl(
        Command::new("openssl")
            .args(["dgst", "-sha256", "-sign"])
            .arg(key)
            .arg("-out")
            .arg(&output)
            .arg(&input),
    )?;
    let signature = fs::read(&output)?;
    match algorithm {
        Algorithm::Es256 => {
            both_numbers(&signature).context("a signature that is no sequence of two numbers")
        }
        Algorithm::Rs256 => Ok(signature),
    }
}

/// The two numbers of an ECDSA signature in DER, each in as many octets as a coordinate has.
fn both_numbers(der: &[u8]) -> Option<Vec<u8>> {
    let mut rest = der.strip_prefix(&[0x30])?.get(1..)?;
    let mut both = Vec::new();
    for _ in 0..2 {
        let (&length, tail) = rest.strip_prefix(&[0x02])?.split_first()?;
        let (number, tail) = tail.split_at_checked(usize::from(length))?;
        let start = number.iter().position(|&octet| octet != 0).unwrap_or(number.len());
        let number = &number[start..];
        both.resize(both.len() + COORDINATE.checked_sub(number.len())?, 0);
        both.extend_from_slice(number);
        rest = tail;
    }
    Some(both)
}

fn openssl(command: &mut Command) -> Result<()> {
    let caught = catch(command, LIMIT)?;
    ensure!(caught.success, "openssl: {}", caught.last_line());
    Ok(())
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        bail!("not in hexadecimal digits: {text}");
    }
    let octets = (0..text.len()).step_by(2).map(|place| u8::from_str_radix(&text[place..place + 2], 16));
    octets.collect::<Result<_, _>>().context("not in hexadecimal digits")
}

/// RFC 4648 §5, without padding.
fn base64url(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len().div_ceil(3) * 4);
    for group in octets.chunks(3) {
        let octet = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let number = octet(0) << 16 | octet(1) << 8 | octet(2);
        for place in 0..=group.len() {
            let digit = number >> (18 - 6 * place) & 63;
            text.push(char::from(DIGITS[digit as usize]));
        }
    }
    text
}

/// The inverse, of what has that form.
pub(super) fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.as_bytes().chunks(4) {
        let mut number = 0_u32;
        for place in 0..4 {
            let value =
                group.get(place).map_or(Some(0), |digit| DIGITS.iter().position(|known| known == digit))?;
            number = number << 6 | u32::try_from(value).ok()?;
        }
        let [_, all @ ..] = number.to_be_bytes();
        octets.extend_from_slice(&all[..group.len() - 1]);
    }
    Some(octets)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tokens are good from now on, by the clock that the subjects read"
)]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_addresses_without_padding() {
        // RFC 4648 §10, and the two digits that differ.
        for (octets, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff], "-_8"),
        ] {
            assert_eq!(base64url(octets), text);
            assert_eq!(from_base64url(text).as_deref(), Some(octets));
        }
        assert_eq!(from_base64url("Zm+v"), None);
    }

    #[test]
    fn numbers_of_a_signature_are_of_one_length_whatever_der_makes_of_them() {
        let long = [vec![0x02, 33, 0], vec![0xff; 32]].concat();
        let short = vec![0x02, 1, 5];
        let der = [vec![0x30, u8::try_from(long.len() + short.len()).unwrap()], long, short].concat();
        let expected = [vec![0xff; 32], vec![0; 31], vec![5]].concat();
        assert_eq!(both_numbers(&der), Some(expected));
        for length in 0..der.len() {
            assert_eq!(both_numbers(&der[..length]), None, "{length}");
        }
    }

    #[test]
    fn good_and_bad_tokens_have_three_parts_and_bad_ones_differ() {
        let folder = tempfile::tempdir().unwrap();
        for algorithm in [Algorithm::Es256, Algorithm::Rs256] {
            let tokens = Tokens::make(folder.path().join(algorithm.name()), algorithm).unwrap();
            assert_eq!(tokens.good.split('.').count(), 3);
            assert!(tokens.bad.iter().all(|(_, bad)| *bad != tokens.good));
            let keys = fs::read_to_string(tokens.folder.join("jwks.json")).unwrap();
            assert!(keys.contains(algorithm.name()), "{keys}");
        }
    }
}
