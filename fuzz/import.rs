//! What reads an import. The program is no library: its files are taken in as they stand, with what they need of it.
#![allow(dead_code, reason = "each target looks at a part")]

#[path = "../crates/cardea/src/admin/import/client.rs"]
mod client;
#[path = "../crates/cardea/src/commands/import/csv.rs"]
mod csv;
#[path = "../crates/cardea/src/commands/import/fuzzing.rs"]
pub(crate) mod fuzzing;
#[path = "../crates/cardea/src/commands/import/lines.rs"]
mod lines;
#[path = "../crates/cardea/src/admin/sensitive.rs"]
mod sensitive;

/// Where these files look for each other.
pub(crate) mod admin {
    pub(crate) use super::client::ImportClient;

    pub(crate) mod protocol {
        pub(crate) use super::super::sensitive::Sensitive;
    }
}
