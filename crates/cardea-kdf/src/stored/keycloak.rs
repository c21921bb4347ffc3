//! Keycloak's credential: JSON with `secretData` and `credentialData`, each an object or, as in its database, a string
//! that contains one.

use serde_json::Value;

use super::{
    base64::{PADDED, decode, number},
    error::{FormatError, wrong},
    scheme::{Argon2Kind, Scheme, iterations},
};
use crate::Prf;

pub(super) fn parse(text: &str) -> Result<Scheme, FormatError> {
    let document: Value =
        serde_json::from_str(text).map_err(|_| wrong("credential", "not JSON (Keycloak's credential)"))?;
    let secret = object(&document, "secretData")?;
    let credential = object(&document, "credentialData")?;
    let expected = decode(&PADDED, string(&secret, "value")?, "value")?;
    let salt = decode(&PADDED, string(&secret, "salt")?, "salt")?;
    let count = credential.get("hashIterations").and_then(Value::as_u64);
    let count = count
        .and_then(|count| u32::try_from(count).ok())
        .ok_or_else(|| wrong("hashIterations", "missing, or not a number"))?;
    let prf = match string(&credential, "algorithm")? {
        "pbkdf2" => Prf::HmacSha1,
        "pbkdf2-sha256" => Prf::HmacSha256,
        "pbkdf2-sha512" => Prf::HmacSha512,
        "argon2" => return argon2(&credential, count, salt, expected),
        _ => return Err(wrong("algorithm", "unknown")),
    };
    Ok(Scheme::Pbkdf2 { prf, iterations: iterations(count)?, salt, expected })
}

fn argon2(credential: &Value, passes: u32, salt: Vec<u8>, expected: Vec<u8>) -> Result<Scheme, FormatError> {
    // Each parameter is a list of one string.
    let parameter = |name: &'static str| {
        let list = credential.get("additionalParameters").and_then(|all| all.get(name));
        match list.and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::String(value)]) => Ok(value.as_str()),
            _ => Err(wrong(name, "missing, or not a list of one string")),
        }
    };
    let kind = match parameter("type")? {
        "id" => Argon2Kind::Id,
        "i" => Argon2Kind::I,
        _ => return Err(wrong("type", "expected id or i")),
    };
    let version = match parameter("version")? {
        "1.3" => 0x13,
        "1.0" => 0x10,
        _ => return Err(wrong("version", "expected 1.3 or 1.0")),
    };
    if usize::try_from(number(parameter("hashLength")?, "hashLength")?) != Ok(expected.len()) {
        return Err(wrong("hashLength", "not the length of value"));
    }
    Ok(Scheme::Argon2 {
        kind,
        version,
        memory_kib: number(parameter("memory")?, "memory")?,
        passes,
        lanes: number(parameter("parallelism")?, "parallelism")?,
        salt,
        expected,
    })
}

fn object(document: &Value, name: &'static str) -> Result<Value, FormatError> {
    let value = match document.get(name) {
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong(name, "not JSON"))?,
        Some(value) => value.clone(),
        None => return Err(wrong(name, "missing")),
    };
    if value.is_object() { Ok(value) } else { Err(wrong(name, "not an object")) }
}

fn string<'a>(object: &'a Value, name: &'static str) -> Result<&'a str, FormatError> {
    object.get(name).and_then(Value::as_str).ok_or_else(|| wrong(name, "missing, or not a string"))
}
