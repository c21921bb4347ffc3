//! The HTTP/2 codec (RFC 9113): frames, HPACK, streams, flow control and messages, without input or output.
//!
//! [`Connection`] is one end of a connection. It takes received bytes and gives events, and takes what the application sends and
//! gives bytes. Heads are decoded from blocks straight into [`crate::RequestHead`] and [`crate::ResponseHead`]; content is
//! passed on in place, and never stored.

mod budget;
mod config;
mod connection;
mod error;
pub mod frame;
pub mod hpack;
mod message;
mod output;
mod priority;
mod role;
mod settings;
mod streams;
mod window;

pub use budget::{Abuse, AbuseLimits, Rate};
pub use config::Config;
pub use connection::{Connection, Event, OpenError, Received, SendError};
pub use error::{ConnectionError, Malformed, StreamError};
pub use frame::ErrorCode;
pub use message::{OutgoingRequest, Protocol};
pub use priority::Priority;
pub use role::{Client, Role, Server};
pub use settings::PeerSettings;
