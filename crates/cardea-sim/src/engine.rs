//! The simulation itself: requests from gateways to servers and back, event by event.

use std::time::Duration;

use cardea_clock::Mono;
use cardea_upstream::{FailureKind, RetryConfig};

use crate::events::Events;
use crate::outcome::{Outcome, Recorder, Request};
use crate::policy::{Ask, Chosen, Ending, Kind, Policy, Probed, RegionView, ServerView, View};
use crate::random::Random;
use crate::server::{Begun, Condition, Job, Server};
use crate::world::{Change, World};

/// How often regions are looked at.
const SAMPLE_EVERY: u64 = 100_000_000;
/// How often antagonists come and go.
const ANTAGONISTS_EVERY: u64 = 1_000_000_000;
/// Requests that may wait for each slot of a server.
const QUEUE_PER_SLOT: usize = 128;
/// What a server needs to refuse a request.
const REFUSAL: u64 = 100_000;
/// A connection that wasn't used for so long is made anew.
const IDLE_MAX: u64 = 10_000_000_000;

enum Event {
    Arrival { gateway: usize },
    Retry { request: usize },
    AtServer { job: Job },
    Done { server: usize, begun: Begun },
    Answer { job: Job, ending: Ending },
    Timeout { request: usize, attempt: u32 },
    Probe { gateway: usize, server: usize },
    ProbeAnswer { gateway: usize, probed: Probed },
    Change { index: usize },
    Antagonists,
    Sample,
}

/// A request under way.
struct UnderWay {
    gateway: usize,
    worker: usize,
    arrived: u64,
    work: u64,
    attempts: u32,
    tried: Vec<usize>,
    current: Option<Current>,
}

#[derive(Clone, Copy)]
struct Current {
    chosen: Chosen,
    sent: u64,
    round_trip: u64,
}

struct Gateway {
    policy: Box<dyn Policy>,
    region: usize,
    rate: f64,
    workers: usize,
    arrivals: Random,
    /// When a server was last connected to or used.
    used: Vec<Option<u64>>,
}

struct Engine<'a> {
    world: &'a World,
    events: Events<Event>,
    now: u64,
    gateways: Vec<Gateway>,
    servers: Vec<Server>,
    /// In nanoseconds, by regions.
    round_trips: Vec<Vec<u64>>,
    requests: Vec<UnderWay>,
    network: Random,
    antagonists: Random,
    /// How many times as many requests arrive, by region.
    rate_of: Vec<f64>,
    utilisation: Vec<f64>,
    recorder: Recorder,
    retry: RetryConfig,
}

/// Runs `world` with gateways that choose by `kind`.
#[must_use]
pub fn run(world: &World, kind: Kind) -> Outcome {
    let mut engine = Engine::new(world, kind);
    engine.run();
    engine.recorder.finish(world, kind)
}

impl<'a> Engine<'a> {
    fn new(world: &'a World, kind: Kind) -> Self {
        let round_trips: Vec<Vec<u64>> = world
            .places
            .iter()
            .map(|from| world.places.iter().map(|to| nanos(from.round_trip_to(to))).collect())
            .collect();
        let servers: Vec<Server> = world
            .servers
            .iter()
            .map(|plan| Server::new(plan.region, plan.slots, plan.speed, plan.slots * QUEUE_PER_SLOT))
            .collect();
        let gateways = (0..)
            .zip(&world.gateways)
            .map(|(index, plan)| {
                let seed = Random::part(world.seed, 1_000 + index).bits();
                Gateway {
                    policy: kind.build(&view(world, &round_trips, plan.region, plan.workers, seed)),
                    region: plan.region,
                    rate: plan.rate,
                    workers: plan.workers,
                    arrivals: Random::part(world.seed, 2_000_000 + index),
                    used: vec![None; servers.len()],
                }
            })
            .collect();
        Self {
            events: Events::new(),
            now: 1,
            gateways,
            utilisation: vec![0.0; servers.len()],
            servers,
            recorder: Recorder::new(),
            round_trips,
            requests: Vec::new(),
            network: Random::part(world.seed, 1),
            antagonists: Random::part(world.seed, 2),
            rate_of: vec![1.0; world.places.len()],
            retry: RetryConfig::default(),
            world,
        }
    }

    fn run(&mut self) {
        for gateway in 0..self.gateways.len() {
            self.schedule_arrival(gateway);
        }
        for (index, (at, _)) in self.world.changes.iter().enumerate() {
            self.events.add(nanos(*at), Event::Change { index });
        }
        if self.world.antagonists > 0.0 {
            self.events.add(ANTAGONISTS_EVERY, Event::Antagonists);
        }
        self.events.add(SAMPLE_EVERY, Event::Sample);
        while let Some((at, event)) = self.events.pop() {
            self.now = at;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { gateway } => self.arrive(gateway),
            Event::Retry { request } => self.attempt(request),
            Event::AtServer { job } => self.at_server(job),
            Event::Done { server, begun } => self.done(server, begun),
            Event::Answer { job, ending } => self.answer(job, ending),
            Event::Timeout { request, attempt } => {
                if self.requests[request].attempts == attempt {
                    self.end_attempt(request, Ending::Failure(FailureKind::ResponseTimeout));
                }
            }
            Event::Probe { gateway, server } => self.probe(gateway, server),
            Event::ProbeAnswer { gateway, probed } => {
                self.gateways[gateway].policy.probed(Mono::from_nanos(self.now), probed);
            }
            Event::Change { index } => self.change(index),
            Event::Antagonists => {
                for server in &mut self.servers {
                    server.antagonist = self.antagonists.uniform().powi(3) * self.world.antagonists;
                }
                self.again_in(ANTAGONISTS_EVERY, Event::Antagonists);
            }
            Event::Sample => self.sample(),
        }
    }

    fn again_in(&mut self, nanos: u64, event: Event) {
        if self.now < self.end() {
            self.events.add(self.now + nanos, event);
        }
    }

    fn end(&self) -> u64 {
        nanos(self.world.lasts)
    }

    fn schedule_arrival(&mut self, index: usize) {
        let factor = self.rate_of[self.gateways[index].region];
        let gateway = &mut self.gateways[index];
        let at = self.now + gateway.arrivals.exponential(1e9 / (gateway.rate * factor)) as u64;
        if at < nanos(self.world.lasts) {
            self.events.add(at, Event::Arrival { gateway: index });
        }
    }

    fn arrive(&mut self, index: usize) {
        self.schedule_arrival(index);
        let gateway = &mut self.gateways[index];
        let work = self.world.work.draw(&mut gateway.arrivals);
        let worker = gateway.arrivals.below(gateway.workers);
        gateway.policy.begin();
        self.requests.push(UnderWay {
            gateway: index,
            worker,
            arrived: self.now,
            work,
            attempts: 0,
            tried: Vec::new(),
            current: None,
        });
        self.attempt(self.requests.len() - 1);
    }

    fn attempt(&mut self, index: usize) {
        let request = &mut self.requests[index];
        let gateway = &mut self.gateways[request.gateway];
        let mut probes = Vec::new();
        let ask = Ask {
            now: Mono::from_nanos(self.now),
            worker: request.worker,
            tried: &request.tried,
            probes: &mut probes,
        };
        request.attempts += 1;
        let chosen = gateway.policy.choose(ask);
        for server in probes {
            let at = self.now + self.round_trips[gateway.region][self.servers[server].region] / 2;
            self.events.add(at, Event::Probe { gateway: request.gateway, server });
        }
        let Some(chosen) = chosen else {
            self.finish(index, false);
            return;
        };
        request.tried.push(chosen.server);
        let base = self.round_trips[gateway.region][self.servers[chosen.server].region];
        // Queues in the network: a twentieth, and sometimes more.
        let round_trip = base + self.network.exponential(base as f64 * 0.05) as u64;
        let is_new = gateway.used[chosen.server].is_none_or(|used| self.now.saturating_sub(used) > IDLE_MAX);
        gateway.used[chosen.server] = Some(self.now);
        // A connection takes a round trip before the request can be sent.
        let connecting = if is_new { round_trip } else { 0 };
        request.current = Some(Current { chosen, sent: self.now, round_trip });
        let condition = self.servers[chosen.server].condition;
        if is_new && condition != Condition::Silent && condition != Condition::Refuses {
            let taken = Duration::from_nanos(round_trip);
            gateway.policy.connected(Mono::from_nanos(self.now + round_trip), chosen.server, taken);
        }
        let job = Job { request: index, attempt: request.attempts, work: request.work, came: (0, 0) };
        self.events.add(self.now + connecting + round_trip / 2, Event::AtServer { job });
        let timeout = Event::Timeout { request: index, attempt: request.attempts };
        self.events.add(self.now + nanos(self.world.try_timeout), timeout);
    }

    /// The attempt that a job stands for, unless it was given up.
    fn current(&self, job: Job) -> Option<Current> {
        self.requests[job.request].current.filter(|_| self.requests[job.request].attempts == job.attempt)
    }

    fn at_server(&mut self, job: Job) {
        let Some(current) = self.current(job) else { return };
        let index = current.chosen.server;
        let server = &mut self.servers[index];
        let refused = match server.condition {
            Condition::Silent => return,
            Condition::Refuses => Some(Ending::Failure(FailureKind::Connect)),
            Condition::Fails => Some(self.response(index, 503)),
            Condition::Serves => match server.arrive(self.now, job) {
                Ok(begun) => {
                    self.begun(index, begun);
                    None
                }
                Err(_) => Some(self.response(index, 503)),
            },
        };
        if let Some(ending) = refused {
            self.events.add(self.now + REFUSAL + current.round_trip / 2, Event::Answer { job, ending });
        }
    }

    fn response(&self, server: usize, status: u16) -> Ending {
        Ending::Response { status, utilisation: self.utilisation[server] }
    }

    fn begun(&mut self, server: usize, begun: Option<Begun>) {
        if let Some(begun) = begun {
            self.events.add(begun.done, Event::Done { server, begun });
        }
    }

    fn done(&mut self, index: usize, begun: Begun) {
        let Some(next) = self.servers[index].done(self.now, begun) else { return };
        self.begun(index, next);
        let Some(current) = self.current(begun.job) else { return };
        let ending = self.response(index, 200);
        self.events.add(self.now + current.round_trip / 2, Event::Answer { job: begun.job, ending });
    }

    fn answer(&mut self, job: Job, ending: Ending) {
        if self.current(job).is_some() {
            self.end_attempt(job.request, ending);
        }
    }

    fn end_attempt(&mut self, index: usize, ending: Ending) {
        let request = &mut self.requests[index];
        let Some(current) = request.current.take() else { return };
        let gateway = &mut self.gateways[request.gateway];
        let now = Mono::from_nanos(self.now);
        let latency = Duration::from_nanos(self.now - current.sent);
        gateway.policy.ended(now, current.chosen.token, ending, latency);
        if let Ending::Failure(_) = ending {
            gateway.used[current.chosen.server] = None;
        }
        let Some(cause) = ending.retry_cause() else {
            self.finish(index, true);
            return;
        };
        if request.attempts < self.retry.attempts_max && gateway.policy.may_retry(now, cause) {
            let wait = self.retry.wait(request.attempts, self.network.bits());
            self.events.add(self.now + nanos(wait), Event::Retry { request: index });
        } else {
            self.finish(index, false);
        }
    }

    fn finish(&mut self, index: usize, served: bool) {
        let request = &self.requests[index];
        let home = self.gateways[request.gateway].region;
        let to = |server: usize| self.round_trips[home][self.servers[server].region];
        let alive = |server: &usize| self.servers[*server].condition == Condition::Serves;
        let best = (0..self.servers.len()).filter(alive).map(to).min();
        let best = best.unwrap_or(self.round_trips[home][home]);
        let server = request.tried.last().copied();
        self.recorder.finished(Request {
            arrived: request.arrived,
            latency: self.now - request.arrived,
            best_latency: best + request.work,
            round_trip: server.map_or(best, to),
            home,
            region: server.map_or(home, |server| self.servers[server].region),
            attempts: request.attempts,
            served,
        });
        // What is kept of a finished request is small.
        self.requests[index].tried = Vec::new();
    }

    fn probe(&mut self, gateway: usize, server: usize) {
        let known = &self.servers[server];
        if known.condition != Condition::Serves && known.condition != Condition::Fails {
            return;
        }
        let latency = Duration::from_nanos(known.latency());
        let probed = Probed { server, in_flight: known.in_flight(), latency };
        let back = self.round_trips[self.gateways[gateway].region][known.region] / 2;
        self.events.add(self.now + back, Event::ProbeAnswer { gateway, probed });
    }

    fn change(&mut self, index: usize) {
        match &self.world.changes[index].1 {
            Change::Condition(servers, condition) => {
                for server in servers {
                    self.servers[*server].condition = *condition;
                    if *condition != Condition::Serves {
                        self.lose(*server, *condition == Condition::Silent);
                    }
                }
            }
            Change::Speed(servers, share) => {
                servers.iter().for_each(|server| self.servers[*server].slowdown = *share);
            }
            Change::RoundTrip(one, other, factor) => {
                let base = nanos(self.world.places[*one].round_trip_to(&self.world.places[*other]));
                let changed = (base as f64 * factor) as u64;
                self.round_trips[*one][*other] = changed;
                self.round_trips[*other][*one] = changed;
            }
            Change::RateOf(region, factor) => self.rate_of[*region] = *factor,
        }
    }

    /// A server stops: connections are closed, unless it stops silently.
    fn lose(&mut self, server: usize, silently: bool) {
        self.servers[server].lose(self.now);
        if silently {
            return;
        }
        for (index, request) in self.requests.iter().enumerate() {
            if let Some(current) = request.current.filter(|current| current.chosen.server == server) {
                let job = Job { request: index, attempt: request.attempts, work: request.work, came: (0, 0) };
                let ending = Ending::Failure(FailureKind::Closed);
                self.events.add(self.now + current.round_trip / 2, Event::Answer { job, ending });
            }
        }
    }

    fn sample(&mut self) {
        let regions = self.world.places.len();
        let (mut busy, mut slots) = (vec![0.0; regions], vec![0.0; regions]);
        for (server, utilisation) in self.servers.iter_mut().zip(&mut self.utilisation) {
            let share = server.take_busy(self.now) as f64 / SAMPLE_EVERY as f64;
            *utilisation += (share / server.slots as f64 - *utilisation) * 0.2;
            busy[server.region] += share;
            if server.condition == Condition::Serves {
                slots[server.region] += server.slots as f64;
            }
        }
        self.recorder.sample(&busy, &slots);
        self.again_in(SAMPLE_EVERY, Event::Sample);
    }
}

fn view(world: &World, round_trips: &[Vec<u64>], home: usize, workers: usize, seed: u64) -> View {
    let region = |(place, nanos): (&crate::places::Place, &u64)| RegionView {
        position: place.position(),
        round_trip: Duration::from_nanos(*nanos),
    };
    View {
        servers: world
            .servers
            .iter()
            .map(|plan| ServerView { region: plan.region, weight: plan.weight, slots: plan.slots })
            .collect(),
        regions: world.places.iter().zip(&round_trips[home]).map(region).collect(),
        home,
        workers,
        gateways_per_region: world.gateways.iter().filter(|gateway| gateway.region == home).count(),
        seed,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
