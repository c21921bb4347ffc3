//! The arguments of each command, and what its help says.

mod checking;
mod registry;
mod running;
mod tools;

pub(crate) use self::{checking::*, registry::*, running::*, tools::*};
