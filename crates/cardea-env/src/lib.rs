//! The request environment: a generic table of attributes, and templates that read it.
