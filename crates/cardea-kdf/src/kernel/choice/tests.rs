//! The choice of kernels, from the table and from measurements of other processors.

use proptest::prelude::*;

use super::*;

const WAITING: [usize; 5] = [1, 2, 4, 8, 16];
const ALL: &[Backend] = &Backend::ALL;
const NO_AVX512: &[Backend] = &[Backend::Portable, Backend::Bmi2, Backend::ShaNi, Backend::Avx2];
const NO_SHA: &[Backend] = &[Backend::Portable, Backend::Bmi2, Backend::Avx2, Backend::Avx512];
const AVX2_ALONE: &[Backend] = &[Backend::Portable, Backend::Bmi2, Backend::Avx2];
const NOTHING: &[Backend] = &[Backend::Portable];

/// The kernels chosen for 1, 2, 4, 8 and 16 waiting jobs with these back-ends, if each kernel takes this multiple of
/// the table's time; `None`: nothing was measured.
fn crossovers(prf: Prf, there: &[Backend], times: Option<fn(&Kernel) -> f64>) -> [String; 5] {
    let kernels = Kernel::all(prf);
    let figure = |kernel: &Kernel| {
        let times = times.map_or(1.0, |times| times(kernel));
        if there.contains(&kernel.backend) {
            (f64::from(kernel.iteration_cycles) * 250.0 * times) as Picoseconds
        } else {
            Picoseconds::MAX
        }
    };
    let figures: Vec<Picoseconds> = kernels.iter().map(figure).collect();
    let measured = times.map(|_| &figures[..]);
    WAITING.map(|waiting| {
        let index = choose_among(kernels, |kernel| there.contains(&kernel.backend), measured, waiting);
        kernels[index.unwrap()].to_string()
    })
}

#[test]
fn something_runs_any_number_of_jobs_everywhere() {
    for prf in Prf::ALL {
        for waiting in 0..40 {
            let chosen = Kernel::choose(prf, waiting, None).unwrap();
            assert!(chosen.backend.is_available());
            let portable = Kernel::choose(prf, waiting, Some(Backend::Portable)).unwrap();
            assert_eq!((portable.backend, portable.lanes), (Backend::Portable, 1));
        }
    }
}

#[test]
fn a_single_job_uses_the_fastest_kernel_and_many_jobs_the_widest() {
    for prf in Prf::ALL {
        for there in [ALL, NO_AVX512, NO_SHA, AVX2_ALONE, NOTHING] {
            let kernels = Kernel::all(prf);
            let runs = |kernel: &Kernel| there.contains(&kernel.backend);
            let here = || kernels.iter().filter(|kernel| runs(kernel));
            let chosen = |waiting| kernels[choose_among(kernels, runs, None, waiting).unwrap()];
            let (lone, many) = (chosen(1), chosen(1 << 20));
            assert!(here().all(|kernel| lone.iteration_cycles <= kernel.iteration_cycles));
            let per_lane = |kernel: &Kernel| f64::from(kernel.iteration_cycles) / kernel.lanes as f64;
            assert!(here().all(|kernel| per_lane(&many) <= per_lane(kernel)));
        }
    }
}

#[test]
fn the_crossovers_of_the_table() {
    for (prf, there, expected) in [
        (Prf::HmacSha1, ALL, ["sha-ni-1", "sha-ni-2", "sha-ni-4", "avx512-16", "avx512-16"]),
        (Prf::HmacSha256, ALL, ["sha-ni-1", "sha-ni-2", "sha-ni-4", "sha-ni-4", "avx512-16"]),
        (Prf::HmacSha512, ALL, ["avx2-1", "avx512-8", "avx512-8", "avx512-8", "avx512-8"]),
        (Prf::HmacSha1, NO_AVX512, ["sha-ni-1", "sha-ni-2", "sha-ni-4", "sha-ni-4", "sha-ni-4"]),
        (Prf::HmacSha256, NO_SHA, ["bmi2-1", "avx512-16", "avx512-16", "avx512-16", "avx512-16"]),
        (Prf::HmacSha256, AVX2_ALONE, ["bmi2-1", "bmi2-1", "avx2-8", "avx2-8", "avx2-8"]),
        (Prf::HmacSha512, AVX2_ALONE, ["avx2-1", "avx2-1", "avx2-4", "avx2-4", "avx2-4"]),
        (Prf::HmacSha512, NOTHING, ["portable-1"; 5]),
    ] {
        assert_eq!(crossovers(prf, there, None), expected, "{prf} {there:?}");
    }
}

#[test]
fn figures_that_say_what_the_table_says_change_nothing_nor_does_noise() {
    for prf in Prf::ALL {
        for there in [ALL, NO_AVX512, NO_SHA, AVX2_ALONE, NOTHING] {
            let by_table = crossovers(prf, there, None);
            assert_eq!(crossovers(prf, there, Some(|_| 1.0)), by_table);
            // All are twice as slow.
            assert_eq!(crossovers(prf, there, Some(|_| 2.0)), by_table);
            // Up to a tenth slower, in any pattern.
            let noise = |kernel: &Kernel| 1.0 + (kernel.iteration_cycles % 11) as f64 / 100.0;
            assert_eq!(crossovers(prf, there, Some(noise)), by_table, "{prf} {there:?}");
        }
    }
}

#[test]
fn an_unknown_processor_uses_its_fastest_kernel() {
    type Case = (&'static str, Prf, &'static [Backend], fn(&Kernel) -> f64, [&'static str; WAITING.len()]);
    let cases: [Case; 6] = [
        (
            "a fifth slower with AVX-512: within what doesn't matter",
            Prf::HmacSha512,
            ALL,
            |kernel| if kernel.backend == Backend::Avx512 { 1.2 } else { 1.0 },
            ["avx2-1", "avx512-8", "avx512-8", "avx512-8", "avx512-8"],
        ),
        (
            "half as fast with AVX-512: from five jobs on it is still the best",
            Prf::HmacSha512,
            ALL,
            |kernel| if kernel.backend == Backend::Avx512 { 2.0 } else { 1.0 },
            ["avx2-1", "avx2-1", "avx2-4", "avx512-8", "avx512-8"],
        ),
        (
            "AVX-512 in halves, and slowly: never",
            Prf::HmacSha512,
            ALL,
            |kernel| if kernel.backend == Backend::Avx512 { 5.0 } else { 1.0 },
            ["avx2-1", "avx2-1", "avx2-4", "avx2-4", "avx2-4"],
        ),
        (
            "SHA instructions in microcode",
            Prf::HmacSha256,
            NO_AVX512,
            |kernel| if kernel.backend == Backend::ShaNi { 8.0 } else { 1.0 },
            ["bmi2-1", "bmi2-1", "avx2-8", "avx2-8", "avx2-8"],
        ),
        (
            "SHA instructions that gain nothing by being interleaved",
            Prf::HmacSha256,
            ALL,
            |kernel| match (kernel.backend, kernel.lanes) {
                (Backend::ShaNi, lanes @ 2..) => lanes as f64 * 281.0 / f64::from(kernel.iteration_cycles),
                _ => 1.0,
            },
            ["sha-ni-1", "sha-ni-2", "sha-ni-4", "avx512-16", "avx512-16"],
        ),
        (
            "vectors by emulation",
            Prf::HmacSha1,
            ALL,
            |kernel| match kernel.backend {
                Backend::Avx2 | Backend::Avx512 => 100.0,
                _ => 1.0,
            },
            ["sha-ni-1", "sha-ni-2", "sha-ni-4", "sha-ni-4", "sha-ni-4"],
        ),
    ];
    for (what, prf, there, times, expected) in cases {
        assert_eq!(crossovers(prf, there, Some(times)), expected, "{what}");
    }
}

#[test]
fn there_is_no_kernel_of_sha_instructions_for_sha_512() {
    assert_eq!(Kernel::choose(Prf::HmacSha512, 1, Some(Backend::ShaNi)), None);
}

proptest! {
    #[test]
    fn whatever_was_measured_what_is_chosen_runs_here_and_is_nearly_the_fastest(
        figures in prop::collection::vec(prop_oneof![1..10_000_000_u64, any::<u64>()], 8),
        there in prop::sample::subsequence(&Backend::ALL[1..], 0..=4),
        waiting in prop_oneof![0..70_usize, any::<usize>()],
    ) {
        for prf in Prf::ALL {
            let kernels = Kernel::all(prf);
            let runs = |kernel: &Kernel| {
                kernel.backend == Backend::Portable || there.contains(&kernel.backend)
            };
            let chosen = choose_among(kernels, runs, Some(&figures), waiting).unwrap();
            prop_assert!(runs(&kernels[chosen]));
            let cost = |index: usize| {
                u128::from(figures[index]) * waiting.div_ceil(kernels[index].lanes) as u128
            };
            for other in (0..kernels.len()).filter(|index| runs(&kernels[*index])) {
                // Beyond this the cost saturates.
                if cost(other) < u128::from(u64::MAX / 9) {
                    prop_assert!(cost(chosen) * 8 <= cost(other) * 9, "{} {}", kernels[chosen], kernels[other]);
                }
            }
        }
    }
}
