//! The authorization server from outside: the token endpoint, management, keys, durability.

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
mod support;
#[cfg(test)]
mod token;
#[cfg(test)]
mod wrong_clock;
