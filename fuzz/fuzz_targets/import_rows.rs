//! Any bytes, as `fuzz_rows` of the program takes them. The program is no library: its two files are taken in as they
//! stand, with what they need of it.
#![no_main]

#[path = "../../crates/cardea/src/commands/import/csv.rs"]
mod csv;
#[path = "../../crates/cardea/src/commands/import/fuzzing.rs"]
mod fuzzing;

mod admin {
    pub(crate) use self::protocol::ImportClient;

    pub(crate) mod protocol {
        pub(crate) struct Sensitive(String);

        impl Sensitive {
            pub(crate) fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            pub(crate) fn expose(&self) -> &str {
                &self.0
            }
        }

        #[allow(dead_code, reason = "what is read is looked at in part")]
        pub(crate) struct ImportClient {
            pub(crate) client_id: String,
            pub(crate) secret_hash: Sensitive,
            pub(crate) name: Option<String>,
            pub(crate) enabled: Option<bool>,
            pub(crate) scopes: Vec<String>,
            pub(crate) audiences: Vec<String>,
            pub(crate) access_token_lifetime_seconds: Option<u64>,
            pub(crate) secret_expires_in_seconds: Option<u64>,
            pub(crate) basic_encoding: Option<String>,
            pub(crate) remember_secret: Option<bool>,
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzzing::fuzz_rows(data);
});
