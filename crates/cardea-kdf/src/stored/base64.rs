//! The base64 alphabets of the formats, each as strict as its writer.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use zeroize::Zeroizing;

use super::error::{FormatError, wrong};

const NONE: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_encode_padding(false)
    .with_decode_padding_mode(DecodePaddingMode::RequireNone);
const CANONICAL: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical);

/// PHC strings: standard, without padding.
pub(super) const PHC: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, NONE);
/// Django, .NET, Keycloak: standard, padded.
pub(super) const PADDED: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CANONICAL);
/// bcrypt: its own alphabet; the last digit of a salt may have unused bits.
pub(super) const BCRYPT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::BCRYPT, NONE.with_decode_allow_trailing_bits(true));

pub(super) fn decode(
    engine: &GeneralPurpose,
    text: &str,
    field: &'static str,
) -> Result<Vec<u8>, FormatError> {
    engine.decode(text).map_err(|_| wrong(field, "not in the base64 of its format"))
}

/// Standard base64 with padding. The result is wiped.
pub(super) fn in_base64(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(PADDED.encode(bytes).into_bytes())
}

/// passlib's: standard with `.` for `+`, without padding.
pub(super) fn decode_passlib(text: &str, field: &'static str) -> Result<Vec<u8>, FormatError> {
    if text.contains('+') {
        return Err(wrong(field, "not in the base64 of its format"));
    }
    decode(&PHC, &text.replace('.', "+"), field)
}

/// A decimal number without sign and without leading zeros.
pub(super) fn number(text: &str, field: &'static str) -> Result<u32, FormatError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return Err(wrong(field, "not a number"));
    }
    text.parse().map_err(|_| wrong(field, "too large"))
}
