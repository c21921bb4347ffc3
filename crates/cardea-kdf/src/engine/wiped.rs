//! Tests that keys are wiped from memory, which only unsafe code can read.
#![allow(unsafe_code, reason = "safe code can't read what was dropped")]

use std::mem::MaybeUninit;
use std::slice;

use super::*;

/// The bytes of a value before it is dropped, and those at its address afterwards.
fn before_and_after<T>(value: T) -> [Vec<u8>; 2] {
    let mut place = MaybeUninit::new(value);
    let bytes = |place: &MaybeUninit<T>| {
        // SAFETY: keys and chains are arrays of integers without padding, which stay initialised when they are wiped.
        unsafe { slice::from_raw_parts(place.as_ptr().cast::<u8>(), size_of::<T>()) }.to_vec()
    };
    let before = bytes(&place);
    // SAFETY: it was initialised above and is not used any more.
    unsafe { place.assume_init_drop() };
    [before, bytes(&place)]
}

fn are_wiped<H: Kernels>() {
    let key = || Key::<H>::new(b"secret");
    for [before, after] in [before_and_after(key()), before_and_after(Chain::new(&key(), b"salt", 1))] {
        assert!(before.iter().any(|byte| *byte != 0), "there was something to wipe");
        assert!(after.iter().all(|byte| *byte == 0), "{after:?}");
    }
}

#[test]
fn keys_and_chains_are_wiped_where_they_stood() {
    are_wiped::<Sha1>();
    are_wiped::<Sha256>();
    are_wiped::<Sha512>();
}

#[test]
fn a_lane_that_is_done_leaves_nothing_behind() {
    let schedule = Arc::new(Schedule::new(Prf::HmacSha512, b"secret"));
    let mut pool = LanePool::<Sha512, ()>::new(None);
    let lanes = pool.capacity;
    let mut left = (1..=lanes as u32).filter_map(NonZeroU32::new);
    // Each job has one iteration more than the one before, so that lanes finish one after the other.
    let mut source = || {
        let iterations = left.next()?;
        let (schedule, salt) = (Arc::clone(&schedule), Box::from(&b"salt"[..]));
        Some(Job { schedule, salt, iterations, output_len: Sha512::OUTPUT, tag: () })
    };
    let mut done = 0;
    while pool.step(&mut source, &mut |(), _| done += 1) {
        assert_eq!(pool.chains.len() + done, lanes);
        let spare = pool.chains.spare_capacity_mut();
        // SAFETY: the first step filled all lanes, so these held chains, which stay initialised when they are wiped.
        let bytes =
            unsafe { slice::from_raw_parts(spare.as_ptr().cast::<u8>(), done * size_of::<Chain<Sha512>>()) };
        assert!(bytes.iter().all(|byte| *byte == 0), "{done} of {lanes} are done");
    }
    assert_eq!(done, lanes);
}
