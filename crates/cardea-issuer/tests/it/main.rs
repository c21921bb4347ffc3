//! The authorization server from outside: the store's conformance, the token endpoint, management, keys, durability.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod counting;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod management;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sqlite;
#[cfg(test)]
mod support;
#[cfg(test)]
mod token;
