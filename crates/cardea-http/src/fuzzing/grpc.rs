//! Properties of what is read and written of gRPC.

use crate::{
    Fields,
    chars::is_field_value,
    grpc::{CONTENT_TYPE, is_content_type, set_status, set_timeout, status_of, timeout_of},
};

/// Any bytes as a content type, as a status, as a timeout and as a message. An accepted timeout is written as one that is not
/// longer; a status replaces the one that is there, and its message is a valid value.
pub fn grpc(data: &[u8]) {
    if is_content_type(data) {
        assert!(data.to_ascii_lowercase().starts_with(CONTENT_TYPE.as_bytes()));
    }
    let mut fields = Fields::default();
    if fields.append(b"grpc-timeout", data).is_ok()
        && let Ok(Some(timeout)) = timeout_of(&fields)
    {
        assert!((2..=9).contains(&data.len()));
        assert_eq!(set_timeout(&mut fields, timeout), Ok(()));
        let again = timeout_of(&fields);
        let is_kept = |again| again <= timeout && timeout - again <= timeout / 50_000;
        assert!(matches!(again, Ok(Some(again)) if is_kept(again)), "{timeout:?} {again:?}");
    }
    let mut fields = Fields::default();
    if fields.append(b"grpc-status", data).is_ok()
        && let Some(status) = status_of(&fields)
    {
        let message = String::from_utf8_lossy(data);
        if set_status(&mut fields, status, &message).is_ok() {
            assert_eq!(status_of(&fields), Some(status));
            let value = fields.get_by_name(b"grpc-message").unwrap_or_default();
            assert!(is_field_value(value) && value.is_ascii() && value.trim_ascii() == value);
        }
    }
}
