//! The authorization server: client registry, tokens, signing keys.
