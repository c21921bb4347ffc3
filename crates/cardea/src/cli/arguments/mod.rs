//! The arguments of each command, and their help.

mod checking;
mod registry;
mod running;
mod tools;

pub(crate) use self::{checking::*, registry::*, running::*, tools::*};
