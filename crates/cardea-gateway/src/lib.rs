//! Listeners, the pipeline of a request, forwarding, drain.
