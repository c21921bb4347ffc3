//! SETTINGS of both sides (RFC 9113 §6.5, RFC 8441 §3, RFC 9218 §2.1).

use super::ConnectionError;
use super::frame::{MAX_31, PAYLOAD_MAX, settings_payload};
use super::hpack::TABLE_BYTES_DEFAULT;
use super::window::WINDOW_DEFAULT;

pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(super) const ENABLE_PUSH: u16 = 0x2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
pub(super) const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// The largest frame that a peer may ask for: 2^24-1.
const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;

/// The settings of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSettings {
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub header_table_bytes: u32,
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub streams_max: u32,
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub initial_window: u32,
    /// SETTINGS_MAX_FRAME_SIZE.
    pub frame_bytes_max: u32,
    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub header_list_bytes_max: u32,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL.
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table_bytes: TABLE_BYTES_DEFAULT as u32,
            streams_max: u32::MAX,
            initial_window: WINDOW_DEFAULT,
            frame_bytes_max: PAYLOAD_MAX as u32,
            header_list_bytes_max: u32::MAX,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Applies the settings of a payload in their order. `is_server` tells whether the peer is one.
    pub(super) fn apply(&mut self, payload: &[u8], is_server: bool) -> Result<(), ConnectionError> {
        for (id, value) in settings_payload(payload) {
            match (id, value) {
                (HEADER_TABLE_SIZE, _) => self.header_table_bytes = value,
                // Only a client may allow pushes (RFC 9113 §6.5.2).
                (ENABLE_PUSH, 0) => {}
                (ENABLE_PUSH, 1) if !is_server => {}
                (MAX_CONCURRENT_STREAMS, _) => self.streams_max = value,
                (INITIAL_WINDOW_SIZE, 0..=MAX_31) => self.initial_window = value,
                (INITIAL_WINDOW_SIZE, _) => return Err(ConnectionError::WindowSettingInvalid),
                (MAX_FRAME_SIZE, 16_384..=FRAME_SIZE_MAX) => self.frame_bytes_max = value,
                (MAX_HEADER_LIST_SIZE, _) => self.header_list_bytes_max = value,
                // It can't be taken back (RFC 8441 §3).
                (ENABLE_CONNECT_PROTOCOL, 0) if !self.connect_protocol => {}
                (ENABLE_CONNECT_PROTOCOL, 1) => self.connect_protocol = true,
                (NO_RFC7540_PRIORITIES, 0 | 1) => {}
                (ENABLE_PUSH | MAX_FRAME_SIZE | ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES, _) => {
                    return Err(ConnectionError::SettingInvalid);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(list: &[(u16, u32)], is_server: bool) -> Result<PeerSettings, ConnectionError> {
        let mut payload = Vec::new();
        for (id, value) in list {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut settings = PeerSettings::default();
        settings.apply(&payload, is_server).map(|()| settings)
    }

    #[test]
    fn values_have_the_ranges_of_the_rfcs() {
        use ConnectionError::{SettingInvalid, WindowSettingInvalid};
        let table = [
            (ENABLE_PUSH, 2, false, Err(SettingInvalid)),
            (ENABLE_PUSH, 1, false, Ok(())),
            (ENABLE_PUSH, 1, true, Err(SettingInvalid)),
            (ENABLE_PUSH, 0, true, Ok(())),
            (INITIAL_WINDOW_SIZE, MAX_31, false, Ok(())),
            (INITIAL_WINDOW_SIZE, MAX_31 + 1, false, Err(WindowSettingInvalid)),
            (MAX_FRAME_SIZE, 16_383, false, Err(SettingInvalid)),
            (MAX_FRAME_SIZE, 16_384, false, Ok(())),
            (MAX_FRAME_SIZE, FRAME_SIZE_MAX, false, Ok(())),
            (MAX_FRAME_SIZE, FRAME_SIZE_MAX + 1, false, Err(SettingInvalid)),
            (ENABLE_CONNECT_PROTOCOL, 2, true, Err(SettingInvalid)),
            (NO_RFC7540_PRIORITIES, 2, true, Err(SettingInvalid)),
            (0x7777, u32::MAX, false, Ok(())),
        ];
        for (id, value, is_server, expected) in table {
            assert_eq!(applied(&[(id, value)], is_server).map(|_| ()), expected, "{id}: {value}");
        }
    }

    #[test]
    fn the_last_of_repeated_values_counts_and_some_can_not_be_taken_back() {
        let settings = applied(&[(MAX_CONCURRENT_STREAMS, 1), (MAX_CONCURRENT_STREAMS, 7)], true).unwrap();
        assert_eq!(settings.streams_max, 7);
        assert!(applied(&[(ENABLE_CONNECT_PROTOCOL, 0), (ENABLE_CONNECT_PROTOCOL, 1)], true).is_ok());
        assert!(applied(&[(ENABLE_CONNECT_PROTOCOL, 1), (ENABLE_CONNECT_PROTOCOL, 0)], true).is_err());
    }
}
