//! The request environment: a generic table of attributes, and what is compiled against it.
//!
//! A dictionary of everything that is known about a request costs more to build than most requests need
//! to be served. So nothing is built: a [`Table`] is `static`, and each of its [`Attribute`]s is a function
//! that reads one value out of the request, whatever the request's type is. Names are looked up once, when
//! the configuration is loaded, and give [`Reference`]s; a read is a call through a function pointer, and
//! allocates nothing.
//!
//! A request may change its environment: set a name, remove one, clear all. That is noted in its [`AttributeOverrides`],
//! which every read asks first, and which holds nothing until then.
//!
//! What is compiled:
//! - an [`Expression`] of CEL, a [`Condition`] that is one, and a [`Policy`] of these, which fails closed;
//! - a [`Template`] (`"{source.address}:{request.headers.x-tenant|none}"`), for headers and keys;
//! - a [`JsonRecord`] and a [`CommonLog`], lines of an access log.
//!
//! A configuration may declare [`Names`] of its own, and says what of a request must not be shown ([`Redaction`]).
//!
//! ```
//! use cardea_env::{Attribute, Escape, Kind, HasOverrides, Table, Template, Value};
//!
//! struct Request {
//!     path: String,
//! }
//!
//! // No changes: the type would hold an `AttributeOverrides` else.
//! impl HasOverrides for Request {}
//!
//! static TABLE: Table<Request> = Table::new(
//!     &[Attribute {
//!         name: "request.path",
//!         kind: Kind::Text,
//!         doc: "The normalised path.",
//!         read: |request| Value::Bytes(request.path.as_bytes()),
//!     }],
//!     &[],
//! );
//!
//! let template = Template::compile("path={request.path}", &TABLE)?;
//! let mut out = Vec::new();
//! template.render(&Request { path: "/api".into() }, Escape::None, &mut out);
//! assert_eq!(out, b"path=/api");
//! # Ok::<(), cardea_env::TemplateError>(())
//! ```

mod common_log;
mod custom;
mod dictionary;
mod escape;
mod expression;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod json;
mod lookup;
mod map_file;
mod names;
mod overrides;
mod policy;
mod redaction;
mod reference;
mod suggest;
mod table;
mod template;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
mod value;
mod write;

pub use common_log::{CommonFields, CommonForm, CommonLog};
pub use custom::ValueSource;
pub use dictionary::Dictionary;
pub use escape::Escape;
pub use expression::{
    Condition, Expression, ExpressionError, Fault, FaultKind, Scratch, functions_markdown, parse_time,
};
pub use json::{JsonRecord, RecordError};
pub use lookup::Lookup;
pub use map_file::{MapFile, MapFileError};
pub use names::{DeclareError, Names};
pub use overrides::{AttributeOverrides, HasOverrides, NotAKey};
pub use policy::{Decision, Effect, Policy, Rule};
pub use redaction::{Redaction, SECRET_HEADERS, SECRET_PARAMETERS};
pub use reference::Reference;
pub use suggest::nearest;
pub use table::{Attribute, Family, Key, ResolveError, Table, markdown};
pub use template::{Piece, Rendered, Template, TemplateError, ValuePiece};
pub use value::{
    Inline, Kind, List, ListOf, Map, MapOf, Network, NetworkError, Owned, Value, civil_date, json,
    json_object, strings,
};
