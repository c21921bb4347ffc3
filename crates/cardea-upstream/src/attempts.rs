//! The endpoints that a request has tried.

/// How many endpoints a request tries at most.
pub const ATTEMPTS_MAX: usize = 8;

/// An endpoint of one [`ServiceState`](crate::ServiceState), by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointIndex(pub(crate) u16);

impl EndpointIndex {
    /// The place in [`ServiceConfig::endpoints`](crate::ServiceConfig::endpoints).
    #[must_use]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// The endpoints that a request has tried, at most [`ATTEMPTS_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttemptedEndpoints {
    endpoints: [u16; ATTEMPTS_MAX],
    len: usize,
}

impl AttemptedEndpoints {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one. Once there are [`ATTEMPTS_MAX`], [`ServiceState::choose`](crate::ServiceState::choose) gives no more.
    pub fn insert(&mut self, endpoint: EndpointIndex) {
        if !self.contains(endpoint)
            && let Some(free) = self.endpoints.get_mut(self.len)
        {
            *free = endpoint.0;
            self.len += 1;
        }
    }

    /// Whether it was tried.
    #[must_use]
    pub fn contains(&self, endpoint: EndpointIndex) -> bool {
        self.endpoints.iter().take(self.len).any(|tried| *tried == endpoint.0)
    }

    /// How many were tried.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none was tried.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no other may be tried.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == ATTEMPTS_MAX
    }
}
