//! Replays the corpus of every fuzz target.

use std::fs;
use std::path::Path;

/// A target, and whether inputs were kept that fuzzing added to its corpus.
type Target = (&'static str, fn(&[u8]), bool);

#[test]
fn the_corpus_holds_every_property() {
    let targets: [Target; 9] = [
        ("request_head", super::request_head, true),
        ("response_head", super::response_head, true),
        ("chunked", super::chunked, true),
        ("target", super::target, true),
        ("normalize", super::normalize, true),
        ("proxy_protocol", super::proxy_protocol, true),
        ("hpack", super::hpack, true),
        ("http2_connection", super::http2_connection, true),
        ("grpc", super::grpc, false),
    ];
    for (name, run, has_grown) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut count = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::read(&path).unwrap();
            // A failure shows the name of the file.
            println!("{}", path.display());
            run(&data);
            count += 1;
        }
        assert!(count > 0, "no corpus in {}", folder.display());
        if !has_grown {
            continue;
        }
        let grown = folder.join("../../grown").join(name).with_extension("hex");
        let lines = fs::read_to_string(&grown).unwrap();
        assert!(lines.lines().count() >= 100, "{} was cut", grown.display());
        for line in lines.lines() {
            // A failure shows the line.
            println!("{line}");
            run(&unhex(line));
        }
    }
}

fn unhex(line: &str) -> Vec<u8> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    line.as_bytes().chunks(2).map(octet).collect()
}
