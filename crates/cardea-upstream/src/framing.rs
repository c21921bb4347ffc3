//! What an endpoint has shown of its framing: whether it sends more than its responses announce.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How many connections must have stayed quiet after a response without a body before not every one is looked at.
const PROOF: u32 = 8;

/// One endpoint's record, as long as its address stays in the configuration.
#[derive(Debug)]
pub(crate) struct FramingRecord {
    label: Arc<str>,
    shown: AtomicBool,
    surplus: AtomicU64,
    quiet: AtomicU32,
}

impl FramingRecord {
    /// Nothing is known of the endpoint called `label` yet.
    pub(crate) const fn new(label: Arc<str>) -> Self {
        Self { label, shown: AtomicBool::new(false), surplus: AtomicU64::new(0), quiet: AtomicU32::new(0) }
    }

    /// Notes bytes that belong to no response.
    pub(crate) fn note_surplus(&self) {
        self.surplus.fetch_add(1, Relaxed);
        if !self.shown.swap(true, Relaxed) {
            tracing::warn!(
                endpoint = %self.label,
                "the endpoint sent more than its response announced; its connections are closed after responses \
                 without a body"
            );
        }
    }

    /// Whether it has ever sent bytes that belong to no response. One load.
    pub(crate) fn has_shown_surplus(&self) -> bool {
        self.shown.load(Relaxed)
    }

    /// Notes that a connection stayed quiet after a response without a body.
    pub(crate) fn note_quiet(&self) {
        if !self.is_proven() {
            self.quiet.fetch_add(1, Relaxed);
        }
    }

    /// Whether enough connections have stayed quiet.
    pub(crate) fn is_proven(&self) -> bool {
        self.quiet.load(Relaxed) >= PROOF
    }

    /// How often it did.
    pub(crate) fn surplus(&self) -> u64 {
        self.surplus.load(Relaxed)
    }
}
