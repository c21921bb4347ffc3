//! Secrets in files that other users may read.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;

#[test]
fn a_secret_that_others_may_read_or_replace_is_warned_of() {
    let text = "[authorization_server]\nissuer = \"https://a.test\"\ndefault_audience = \"b\"\n\
                wrapping_key = { file = \"wrapping.key\" }\n";
    let fixture = Fixture::new(&format!("{text}{LEAST}")).file("wrapping.key", &"ab".repeat(32));
    let path = fixture.path("wrapping.key");
    for (mode, expected) in [
        (0o600, None),
        (0o640, None),
        (0o644, Some("every user of this machine may read")),
        (0o620, Some("its group may replace")),
        (0o666, Some("every user of this machine may replace")),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let warnings = fixture.config().warnings;
        let found = warnings.iter().find(|warning| warning.message.contains("wrapping.key"));
        match expected {
            None => assert!(found.is_none(), "{mode:o}: {found:?}"),
            Some(expected) => {
                let found = found.unwrap_or_else(|| panic!("{mode:o}"));
                assert!(found.message.contains(expected), "{mode:o}: {found:?}");
            }
        }
    }
}
