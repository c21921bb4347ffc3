//! Content that a stream's task has taken over from the connection, and what of it was passed on.

/// So much is passed on before the peer is told that it may send more, in bytes.
const RELEASE_BYTES: usize = 64 * 1024;

/// Memory for content is used again up to this size, in bytes.
const KEPT_BYTES_MAX: usize = 32 * 1024;

/// Content of a stream.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// What is passed on next, from `start`.
    chunk: Vec<u8>,
    start: usize,
    /// What was passed on and the peer was not told of.
    passed_on: usize,
}

impl Content {
    pub(crate) const fn new() -> Self {
        Self { chunk: Vec::new(), start: 0, passed_on: 0 }
    }

    /// What is passed on next.
    pub(crate) fn chunk(&self) -> &[u8] {
        self.chunk.get(self.start..).unwrap_or_default()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.start >= self.chunk.len()
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.chunk.capacity()
    }

    /// Takes content over. All that was there before was passed on.
    pub(crate) fn put(&mut self, chunk: Vec<u8>) {
        self.chunk = chunk;
        self.start = 0;
    }

    /// Lets go of the memory of what was passed on: an empty vector to use again.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        let mut memory = std::mem::take(&mut self.chunk);
        self.start = 0;
        memory.clear();
        if memory.capacity() > KEPT_BYTES_MAX { Vec::new() } else { memory }
    }

    /// Passes on the first `count` bytes of the chunk.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.chunk.len() - self.start);
        self.start += count;
        self.passed_on += count;
        if self.is_empty() {
            self.chunk = self.take_memory();
        }
    }

    /// Whether the peer is to be told at once what was passed on: the window opens as the content is taken, which is the
    /// back-pressure.
    pub(crate) const fn is_release_due(&self) -> bool {
        self.passed_on > 0 && (self.is_empty() || self.passed_on >= RELEASE_BYTES)
    }

    /// Whether something was passed on that the peer was not told of.
    pub(crate) const fn has_passed_on(&self) -> bool {
        self.passed_on > 0
    }

    /// What was passed on and the peer was not told of, in bytes.
    pub(crate) const fn take_passed_on(&mut self) -> usize {
        std::mem::replace(&mut self.passed_on, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_on_is_told_in_large_steps_and_at_the_end() {
        let mut content = Content::new();
        assert!(content.is_empty() && !content.is_release_due());
        content.put(vec![7; RELEASE_BYTES + 10]);
        content.consume(RELEASE_BYTES - 1);
        assert!(!content.is_release_due());
        content.consume(1);
        assert!(content.is_release_due());
        assert_eq!((content.take_passed_on(), content.chunk().len()), (RELEASE_BYTES, 10));
        content.consume(usize::MAX);
        assert!(content.is_empty() && content.is_release_due());
        assert_eq!(
            (content.take_passed_on(), content.memory_bytes()),
            (10, 0),
            "memory of that size is not kept"
        );
    }

    #[test]
    fn memory_of_a_usual_size_is_used_again() {
        let mut content = Content::new();
        content.put(Vec::with_capacity(KEPT_BYTES_MAX));
        assert_eq!(content.take_memory().capacity(), KEPT_BYTES_MAX);
        assert_eq!(content.memory_bytes(), 0);
    }
}
