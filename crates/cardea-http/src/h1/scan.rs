//! Finds the end of a head incrementally, and the cause of an error in one.

use crate::HeadError;
use crate::chars::{is_field_value, is_token};

/// The limits of a head. They apply while a client's head arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// The size of a head including line ends. Default 32 KiB, at most 512 KiB.
    pub head_bytes_max: usize,
    /// The size of a request target. Default 8 KiB.
    pub target_bytes_max: usize,
    /// The number of field lines. Default 100, at most 256.
    pub fields_max: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { head_bytes_max: 32 * 1024, target_bytes_max: 8 * 1024, fields_max: 100 }
    }
}

/// The most field lines of a head.
pub(crate) const FIELDS_CAP: usize = 256;

impl HeadLimits {
    /// The limits, reduced to the supported maximum.
    pub(crate) fn capped(self) -> Self {
        Self {
            head_bytes_max: self.head_bytes_max.min(512 * 1024),
            target_bytes_max: self.target_bytes_max,
            fields_max: self.fields_max.min(FIELDS_CAP),
        }
    }
}

/// The progress of the scan. Every byte is scanned once, however small the pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeadScan {
    /// Up to here, every LF was counted.
    scanned: usize,
    /// The start of the current line.
    line_start: usize,
    /// The number of complete lines.
    lines: usize,
}

impl HeadScan {
    /// Whether nothing was scanned yet.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.scanned == 0
    }

    /// The number of complete lines.
    pub(crate) const fn lines(&self) -> usize {
        self.lines
    }

    /// Scans the new part of `bytes`, which begins at the start of the head and has grown since the last call. Returns
    /// the head's length once it contains the empty line.
    pub(crate) fn advance(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        while let Some(found) = bytes.get(self.scanned..).and_then(|new| memchr::memchr(b'\n', new)) {
            let line_feed = self.scanned + found;
            let line = bytes.get(self.line_start..line_feed).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(HeadError::BareLf);
            };
            if line_feed >= limits.head_bytes_max {
                return Err(HeadError::TooLarge);
            }
            self.scanned = line_feed + 1;
            self.line_start = self.scanned;
            if line.is_empty() {
                return Ok(Some(self.scanned));
            }
            if self.lines > 0 && matches!(line.first(), Some(b' ' | b'\t')) {
                return Err(HeadError::ObsFold);
            }
            // The first line is no field.
            if self.lines > limits.fields_max {
                return Err(HeadError::TooManyFields);
            }
            self.lines += 1;
        }
        self.scanned = bytes.len();
        if bytes.len() >= limits.head_bytes_max {
            return Err(HeadError::TooLarge);
        }
        Ok(None)
    }
}

/// The error of field lines that were not accepted. `lines` follows the first line of a head.
pub(crate) fn diagnose_fields(lines: &[u8]) -> HeadError {
    for line in lines.split(|&byte| byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\r") else {
            return HeadError::BareLf;
        };
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = memchr::memchr(b':', line).and_then(|colon| line.split_at_checked(colon))
        else {
            return if line.contains(&b'\r') { HeadError::BareCr } else { HeadError::ColonMissing };
        };
        match name {
            [b' ' | b'\t', ..] => return HeadError::ObsFold,
            [before @ .., b' ' | b'\t'] if is_token(before.trim_ascii_end()) => {
                return HeadError::SpaceBeforeColon;
            }
            name if name.contains(&b'\r') => return HeadError::BareCr,
            name if !is_token(name) => return HeadError::FieldNameInvalid,
            _ => {}
        }
        if value.contains(&b'\r') {
            return HeadError::BareCr;
        }
        if !is_field_value(value) {
            return HeadError::FieldValueInvalid;
        }
    }
    HeadError::FieldNameInvalid
}
