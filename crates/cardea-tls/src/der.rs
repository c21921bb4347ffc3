//! Reads DER strictly (X.690): a value has one encoding, and nothing behind it.

#[cfg(test)]
pub(crate) mod tests;

use x509_parser::asn1_rs::{Any, Class, Error, FromDer as _, ParseResult, Tag, ToDer as _};

/// What was read, if there is nothing after it.
pub(crate) fn whole<T>(read: ParseResult<'_, T>) -> Option<T> {
    match read {
        Ok(([], value)) => Some(value),
        _ => None,
    }
}

/// The next value. The library also takes lengths that are longer than they need be, which DER has not (X.690 §10.1).
pub(crate) fn element(input: &[u8]) -> ParseResult<'_, Any<'_>> {
    let (rest, any) = Any::from_der(input)?;
    if any.to_der_len()? != input.len() - rest.len() {
        return Err(Error::InvalidLength.into());
    }
    Ok((rest, any))
}

/// The content of the next value, which must have this universal tag.
pub(crate) fn value(input: &[u8], tag: Tag) -> ParseResult<'_, &[u8]> {
    let (rest, any) = element(input)?;
    any.class().assert_eq(Class::Universal)?;
    any.tag().assert_eq(tag)?;
    if any.header.constructed() != (tag == Tag::Sequence) {
        return Err(Error::BerTypeError.into());
    }
    Ok((rest, any.data))
}

/// The octets of a bit string, all of whose bits are used.
pub(crate) fn bits(input: &[u8]) -> ParseResult<'_, &[u8]> {
    let (rest, content) = value(input, Tag::BitString)?;
    match content.split_first() {
        Some((0, octets)) => Ok((rest, octets)),
        _ => Err(Error::BerValueError.into()),
    }
}
