//! A store that counts how often a client is read.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cardea_clock::Wall;
use cardea_store::{
    BoxFuture, ClientRecord, Database, IssuerStore, KeyRecord, KeySetRecord, Revocation, SecretMix,
    StoreFuture, WriteHealth,
};

#[derive(Debug)]
pub(crate) struct CountingStore {
    inner: Arc<dyn IssuerStore>,
    reads: AtomicUsize,
}

impl CountingStore {
    pub(crate) fn new(inner: Arc<dyn IssuerStore>) -> Self {
        Self { inner, reads: AtomicUsize::new(0) }
    }

    pub(crate) fn take_reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }
}

impl IssuerStore for CountingStore {
    fn client<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<ClientRecord>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.client(id)
    }

    fn clients<'a>(&'a self, after: Option<&'a str>, limit: u32) -> StoreFuture<'a, Vec<ClientRecord>> {
        self.inner.clients(after, limit)
    }

    fn insert_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ClientRecord> {
        self.inner.insert_client(record)
    }

    fn insert_clients<'a>(
        &'a self,
        records: &'a [ClientRecord],
        progress: &'a (dyn Fn(usize) + Sync),
    ) -> StoreFuture<'a, ()> {
        self.inner.insert_clients(records, progress)
    }

    fn secret_mix(&self, now: Wall) -> StoreFuture<'_, Vec<SecretMix>> {
        self.inner.secret_mix(now)
    }

    fn dummy_key(&self, candidate: [u8; 32]) -> StoreFuture<'_, [u8; 32]> {
        self.inner.dummy_key(candidate)
    }

    fn update_client<'a>(&'a self, record: &'a ClientRecord) -> StoreFuture<'a, ()> {
        self.inner.update_client(record)
    }

    fn delete_client<'a>(&'a self, id: &'a str, deleted_at: Wall) -> StoreFuture<'a, bool> {
        self.inner.delete_client(id, deleted_at)
    }

    fn revocations(&self, since: Wall) -> StoreFuture<'_, Vec<Revocation>> {
        self.inner.revocations(since)
    }

    fn forget_tombstones(&self, before: Wall) -> StoreFuture<'_, ()> {
        self.inner.forget_tombstones(before)
    }

    fn keys(&self) -> StoreFuture<'_, KeySetRecord> {
        self.inner.keys()
    }

    fn replace_keys<'a>(&'a self, version: u64, keys: &'a [KeyRecord]) -> StoreFuture<'a, ()> {
        self.inner.replace_keys(version, keys)
    }

    fn published_through(&self) -> StoreFuture<'_, Option<Wall>> {
        self.inner.published_through()
    }

    fn mark_published(&self, now: Wall) -> StoreFuture<'_, ()> {
        self.inner.mark_published(now)
    }
}

impl Database for CountingStore {
    fn probe(&self) -> StoreFuture<'_, ()> {
        self.inner.probe()
    }

    fn write_health(&self) -> WriteHealth {
        self.inner.write_health()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}
