//! The stores from outside: what each must do, and what concerns one database alone.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod sqlite;
