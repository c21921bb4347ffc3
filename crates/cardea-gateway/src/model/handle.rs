//! Handles to the model in force.

use std::{
    cell::RefCell,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use cardea_clock::Clock;

use super::Model;
use crate::forward::BodyBudget;

/// A handle to the model in force that belongs to one thread.
///
/// Requests hold the model for as long as they last. If all of them counted their references in one place, its cache
/// line would travel between the processors several times per request; so each thread has a place of its own.
#[derive(Debug, Clone)]
pub struct ModelRef(Arc<Local>);

#[derive(Debug)]
struct Local {
    /// Of the gateway when this was made.
    generation: u64,
    model: Arc<Model>,
    clock: Clock,
    budgets: Budgets,
}

/// The budgets of the process for parts of messages that are kept.
#[derive(Debug, Clone)]
pub(crate) struct Budgets {
    /// For request bodies that are kept for a second attempt.
    pub(crate) replay: Arc<BodyBudget>,
    /// For copies of requests.
    pub(crate) mirror: Arc<BodyBudget>,
}

/// Generations are never used twice, by however many gateways there are in a process.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// A generation for a model that is put in force.
pub(crate) fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, SeqCst)
}

thread_local! {
    static LOCAL: RefCell<Option<ModelRef>> = const { RefCell::new(None) };
}

impl ModelRef {
    pub(crate) fn new(generation: u64, model: Arc<Model>, clock: Clock, budgets: Budgets) -> Self {
        Self(Arc::new(Local { generation, model, clock, budgets }))
    }

    /// Reads this thread's handle to the model of `generation`; `make` makes it where the thread has another one or none.
    pub(crate) fn with_current<T>(
        generation: u64,
        make: impl FnOnce() -> Self,
        read: impl FnOnce(&Self) -> T,
    ) -> T {
        LOCAL.with_borrow_mut(|local| match local {
            Some(local) if local.0.generation == generation => read(local),
            _ => {
                let fresh = make();
                let done = read(&fresh);
                *local = Some(fresh);
                done
            }
        })
    }

    /// Differs from that of every other model that was in force.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// The time.
    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The budget for request bodies that are kept for a second attempt.
    pub(crate) fn replay_budget(&self) -> &Arc<BodyBudget> {
        &self.0.budgets.replay
    }

    /// The budget for copies of requests.
    pub(crate) fn mirror_budget(&self) -> &Arc<BodyBudget> {
        &self.0.budgets.mirror
    }
}

impl Deref for ModelRef {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.0.model
    }
}
