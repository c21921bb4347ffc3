//! Has no code of its own: what is measured here is in `benches/`.
