//! Tests of request ids.

use std::collections::HashSet;

use super::*;

#[test]
fn the_text_is_crockfords_base_32_in_lower_case() {
    assert_eq!(&RequestId::from_bits(0).to_ascii(), b"00000000000000000000000000");
    assert_eq!(&RequestId::from_bits(u128::MAX).to_ascii(), b"7zzzzzzzzzzzzzzzzzzzzzzzzz");
    assert_eq!(
        &RequestId::from_bits(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f).to_ascii(),
        b"00041061050r3gg28a1c60t3gf"
    );
    let id = RequestId::generate(Wall::from_unix_seconds(1_763_690_951));
    assert_eq!(id.to_string().as_bytes(), id.to_ascii());
    assert_eq!(RequestId::default(), RequestId::from_bits(0));
}

#[test]
fn the_first_ten_letters_are_the_time() {
    // The example of the ULID specification: 1469918176385 ms is 01ARYZ6S41.
    let id = RequestId::generate(Wall::from_unix_nanos(1_469_918_176_385_000_000));
    assert_eq!(&id.to_ascii()[..10], b"01aryz6s41");
    assert_eq!(&RequestId::generate(Wall::MIN).to_ascii()[..10], b"0000000000");
    assert!(RequestId::generate(Wall::MAX).bits() >> 80 < 1 << 48);
}

#[test]
fn later_ones_sort_after_earlier_ones() {
    let early = RequestId::generate(Wall::from_unix_seconds(1_000));
    let late = RequestId::generate(Wall::from_unix_seconds(1_001));
    assert!(early < late);
    assert!(early.to_string() < late.to_string());
}

#[test]
fn threads_never_make_the_same_one_in_the_same_instant() {
    const THREADS: usize = 4;
    const EACH: usize = 20_000;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| std::thread::spawn(|| (0..EACH).map(|_| RequestId::generate(Wall::MIN)).collect::<Vec<_>>()))
        .collect();
    let all: HashSet<RequestId> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(all.len(), THREADS * EACH);
}

#[test]
fn the_random_part_uses_all_its_bits() {
    let (mut ones, mut zeros) = (0, 0);
    for _ in 0..1_000 {
        let bits = RequestId::generate(Wall::MIN).bits();
        ones |= bits;
        zeros |= !bits;
    }
    // All 64 hashed bits are seen both ways; of the 16 counted ones at least those below 1,000.
    assert_eq!(ones >> 16, u128::from(u64::MAX));
    assert_eq!(zeros >> 16 & u128::from(u64::MAX), u128::from(u64::MAX));
    assert_eq!(ones & 0x1FF, 0x1FF);
}
