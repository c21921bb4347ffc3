//! Bodies far larger than any buffer, at constant memory.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::support::{Folder, Origin, Server, folder::Settings};

/// One gibibyte.
const BODY_BYTES: u64 = 1 << 30;

/// By how much the process may grow: far below any body, above what buffers and the allocator take.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

/// What the process holds in memory, in KiB.
fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Carries bodies while it looks at the process; the most that it held.
fn peak_during(process: u32, carry: impl FnOnce()) -> u64 {
    let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watch = {
        let (stop, peak) = (Arc::clone(&stop), Arc::clone(&peak));
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                peak.fetch_max(resident_kib(process), Relaxed);
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
        })
    };
    carry();
    stop.store(true, Relaxed);
    watch.join().unwrap();
    peak.load(Relaxed)
}

#[test]
fn bodies_of_a_gibibyte_pass_at_constant_memory() {
    let origin = Origin::start();
    let folder = Folder::new(&Settings { origin: Some(origin.address), ..Settings::default() });
    let server = Server::start(&folder);
    let mut connection = server.connect();

    let mut up = |bytes: u64| {
        let head =
            format!("POST /origin/sink HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: {bytes}\r\n\r\n");
        connection.send(head.as_bytes()).unwrap();
        let piece = vec![b'u'; 64 * 1024];
        for _ in 0..bytes / piece.len() as u64 {
            connection.send(&piece).unwrap();
        }
        let answer = connection.answer().unwrap().unwrap();
        assert_eq!((answer.status, answer.text()), (200, format!("{bytes} /sink")));
    };
    // What is allocated once is there before it counts.
    up(1 << 20);
    let before = resident_kib(server.program.id());
    let peak = peak_during(server.program.id(), || up(BODY_BYTES));
    assert!(peak <= before + GROWTH_KIB_MAX, "up: {before} KiB before, {peak} KiB at most");

    let mut down = |bytes: u64| {
        let request = format!("GET /origin/source/{bytes} HTTP/1.1\r\nHost: gateway.test\r\n\r\n");
        connection.send(request.as_bytes()).unwrap();
        let head = connection.head().unwrap().unwrap();
        let mut length = 0;
        connection.body(&head, |piece| length += piece.len() as u64).unwrap();
        assert_eq!(length, bytes);
    };
    down(1 << 20);
    let before = resident_kib(server.program.id());
    let peak = peak_during(server.program.id(), || down(BODY_BYTES));
    assert!(peak <= before + GROWTH_KIB_MAX, "down: {before} KiB before, {peak} KiB at most");
    server.stop();
}

#[test]
fn a_client_that_does_not_read_costs_no_memory() {
    let origin = Origin::start();
    let folder = Folder::new(&Settings { origin: Some(origin.address), ..Settings::default() });
    let server = Server::start(&folder);
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    connections.iter_mut().for_each(|connection| assert_eq!(connection.get("/version").unwrap().status, 200));
    let before = resident_kib(server.program.id());
    let peak = peak_during(server.program.id(), || {
        for connection in &mut connections {
            let request = "GET /origin/endless HTTP/1.1\r\nHost: gateway.test\r\n\r\n";
            connection.send(request.as_bytes()).unwrap();
        }
        origin.wait_for("/endless", 8);
        // Others are served meanwhile, for long enough that buffers without a bound would show.
        let mut other = server.connect();
        for _ in 0..20 {
            let answer = other.get("/origin/source/1000000").unwrap();
            assert_eq!(answer.body.len(), 1_000_000);
        }
    });
    assert!(peak <= before + GROWTH_KIB_MAX, "{before} KiB before, {peak} KiB at most");
}
