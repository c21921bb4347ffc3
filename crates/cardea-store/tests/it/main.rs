//! Tests of the stores: those for every store, and those for one database.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod sqlite;
