//! What a copy of a message costs beside the system calls that send and receive it, as a transport with memory of its own would
//! make (docs/adr/0013): `cargo bench --manifest-path bench/Cargo.toml --package bench-micro --bench send`.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use bench_measure::Suite;

/// From a small response to a full receive buffer.
const SIZES: [usize; 5] = [256, 1_024, 4_096, 16_384, 36_864];

fn main() {
    bench_measure::run(benches);
}

fn benches(suite: &mut Suite) {
    for size in SIZES {
        suite.case(&format!("send-{size}"), |case| {
            let message = vec![1; size];
            let mut own = vec![0; size];
            case.counted("copy", || black_box(&mut own[..]).copy_from_slice(black_box(&message)));
            let (mut sender, mut receiver) = connected();
            let mut received = vec![0; size];
            case.timed("send-and-receive", || {
                sender.write_all(&message).expect("the socket's buffer is empty");
                receiver.read_exact(&mut received).expect("all of it was sent");
            });
        });
    }
}

/// Two ends of a connection over loopback.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let sender = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    sender.set_nodelay(true).expect("TCP has this option");
    let (receiver, _) = listener.accept().expect("a client has connected");
    (sender, receiver)
}
