//! One-shot derivation against the examples of the RFCs.

use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::{Backend, Engine, Job};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn count(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations).unwrap()
}

/// The one-shot derivation, which the derivation by each back-end must equal.
fn derived(prf: Prf, password: &[u8], salt: &[u8], iterations: u32, length: usize) -> String {
    let mut out = vec![0; length];
    derive(prf, password, salt, count(iterations), &mut out).unwrap();
    for backend in Backend::ALL {
        let Some(mut engine) = Engine::with_backend(prf, backend) else { continue };
        let mut job = Some(Job {
            schedule: Schedule::new(prf, password).into(),
            salt: salt.into(),
            iterations: count(iterations),
            output_len: length,
            tag: (),
        });
        let mut done = 0;
        while engine.step(&mut || job.take(), &mut |(), output| {
            assert_eq!(output, Ok(&out[..]), "{backend}");
            done += 1;
        }) {}
        assert_eq!(done, 1, "{backend}");
    }
    hex(&out)
}

#[test]
fn rfc_6070_with_sha_1() {
    let long: (&[u8], &[u8]) = (b"passwordPASSWORDpassword", b"saltSALTsaltSALTsaltSALTsaltSALTsalt");
    let table: [(&[u8], &[u8], u32, &str); 5] = [
        (b"password", b"salt", 1, "0c60c80f961f0e71f3a9b524af6012062fe037a6"),
        (b"password", b"salt", 2, "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"),
        (b"password", b"salt", 4096, "4b007901b765489abead49d926f721d065a429c1"),
        (long.0, long.1, 4096, "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038"),
        (b"pass\0word", b"sa\0lt", 4096, "56fa6aa75548099dcc37d7f03425e0c3"),
    ];
    for (password, salt, iterations, expected) in table {
        assert_eq!(derived(Prf::HmacSha1, password, salt, iterations, expected.len() / 2), expected);
    }
}

#[test]
fn rfc_6070_with_the_most_iterations_of_its_examples() {
    let mut out = [0; 20];
    derive(Prf::HmacSha1, b"password", b"salt", count(16_777_216), &mut out).unwrap();
    assert_eq!(hex(&out), "eefe3d61cd4da4e4e9945b3d6ba2158c2634e984");
}

#[test]
fn rfc_7914_section_11_with_sha_256() {
    let first = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                 49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783";
    assert_eq!(derived(Prf::HmacSha256, b"passwd", b"salt", 1, 64), first);
    let second = "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56\
                  a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d";
    assert_eq!(derived(Prf::HmacSha256, b"Password", b"NaCl", 80_000, 64), second);
}

#[test]
fn more_than_one_block_of_sha_512() {
    // Computed by Python's hashlib.
    let expected = "8c0511f4c6e597c6ac6315d8f0362e225f3c501495ba23b868c005174dc4ee71\
                    115b59f9e60cd9532fa33e0f75aefe30225c583a186cd82bd4daea9724a3d3b8\
                    04f75bdd41494fa324cab24bcc680fb3b96a30cf5d21fac3c2875913919f3399\
                    b1d9ce7eb54c95ba49118596cf7465719bbe02c4ecab1b1541298c321d13c6f6d414";
    let (password, salt) = (b"passwordPASSWORDpassword", b"saltSALTsaltSALTsaltSALTsaltSALTsalt");
    assert_eq!(derived(Prf::HmacSha512, password, salt, 4096, 130), expected);
}

#[test]
fn the_cost_that_secrets_were_given_with_for_years() {
    // SHA-512, 10,000 iterations, 64 bytes; computed by Python's hashlib.
    for (password, expected) in [
        (
            &b"secret"[..],
            "be6450c34069a1c2aaae144a4779b71bf21e3ac25da301452abd41a90251a306\
             bbad3e8f9a6da1da13903a478223ab2767d88ed9bdaf04a058c80a20c7d4f6bc",
        ),
        (
            "p\u{e4}ssw\u{f6}rd of some length \u{1f511}".as_bytes(),
            "dd341120e705ac99b1e0a4be9bc89edfa6716fc7547a995f6741d2a89ebc274d\
             656dbc44f8d61b9d8d319c71ce04528e9a5334a571cbbfb9b2b193b1d92cade3",
        ),
        (
            b"",
            "10f4fcfaf0310a46f5f97641546379820bae8b46c4fc65f06c62bf437136f488\
             a1771e40c51d9428c67cb6c5e2214c9b9864c435245bb09523b630e1a8ecd320",
        ),
    ] {
        assert_eq!(derived(Prf::HmacSha512, password, b"0123456789abcdef", 10_000, 64), expected);
    }
}

#[test]
fn only_the_very_output_verifies_and_an_empty_one_is_refused() {
    for prf in Prf::ALL {
        let mut expected = vec![0; prf.output_len() + 1];
        derive(prf, b"secret", b"salt", count(3), &mut expected).unwrap();
        assert_eq!(verify(prf, b"secret", b"salt", count(3), &expected), Ok(true));
        assert_eq!(verify(prf, b"Secret", b"salt", count(3), &expected), Ok(false));
        assert_eq!(verify(prf, b"secret", b"sals", count(3), &expected), Ok(false));
        assert_eq!(verify(prf, b"secret", b"salt", count(4), &expected), Ok(false));
        *expected.last_mut().unwrap() ^= 1;
        assert_eq!(verify(prf, b"secret", b"salt", count(3), &expected), Ok(false));
        assert_eq!(verify(prf, b"secret", b"salt", count(3), &[]), Err(Error::OutputEmpty));
        assert_eq!(derive(prf, b"secret", b"salt", count(3), &mut []), Err(Error::OutputEmpty));
    }
}

fn vectors(file: &str) -> Option<Value> {
    let folder = std::env::var_os("CARDEA_VECTORS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors")),
        PathBuf::from,
    );
    let path = folder.join("wycheproof").join(file);
    match std::fs::read(&path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(error) => {
            println!("SKIPPED: no vectors at {}: {error}", path.display());
            None
        }
    }
}

fn unhex(value: &Value) -> Vec<u8> {
    let hex = value.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_wycheproof_vectors_are_derived_by_every_back_end() {
    let files = [
        (Prf::HmacSha1, "pbkdf2_hmacsha1_test.json", 64),
        (Prf::HmacSha256, "pbkdf2_hmacsha256_test.json", 60),
        (Prf::HmacSha512, "pbkdf2_hmacsha512_test.json", 58),
    ];
    for (prf, file, expected_tests) in files {
        let Some(document) = vectors(file) else { continue };
        let tests: Vec<&Value> = document["testGroups"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|group| group["tests"].as_array().unwrap())
            .collect();
        assert_eq!(tests.len(), expected_tests, "{file}");
        for test in &tests {
            assert_eq!(test["result"], "valid", "{test}");
            let iterations = count(test["iterationCount"].as_u64().unwrap().try_into().unwrap());
            let (password, salt, dk) = (unhex(&test["password"]), unhex(&test["salt"]), unhex(&test["dk"]));
            assert_eq!(dk.len() as u64, test["dkLen"].as_u64().unwrap());
            assert_eq!(verify(prf, &password, &salt, iterations, &dk), Ok(true), "{test}");
        }
        // All of them at once, so that lanes hold jobs of any size and count.
        for backend in Backend::ALL {
            let Some(mut engine) = Engine::with_backend(prf, backend) else { continue };
            let mut source = tests.iter();
            let mut valid = 0;
            while engine.step(
                &mut || {
                    let test = source.next()?;
                    Some(Job {
                        schedule: Schedule::new(prf, &unhex(&test["password"])).into(),
                        salt: unhex(&test["salt"]).into(),
                        iterations: count(test["iterationCount"].as_u64().unwrap().try_into().unwrap()),
                        output_len: unhex(&test["dk"]).len(),
                        tag: unhex(&test["dk"]),
                    })
                },
                &mut |dk, output| {
                    assert_eq!(output, Ok(&dk[..]), "{backend}");
                    valid += 1;
                },
            ) {}
            assert_eq!(valid, expected_tests, "{backend}");
        }
    }
}

#[test]
fn one_schedule_compares_a_password_with_several_salts() {
    for prf in Prf::ALL {
        let schedule = Schedule::new(prf, b"secret");
        for salt in [&b"one"[..], b"another", b""] {
            let mut expected = [0; 24];
            derive(prf, b"secret", salt, count(7), &mut expected).unwrap();
            assert_eq!(schedule.verify(salt, count(7), &expected), Ok(true));
            assert_eq!(schedule.verify(b"third", count(7), &expected), Ok(false));
        }
        assert_eq!(format!("{schedule:?}"), format!("Schedule {{ prf: {prf:?}, .. }}"));
    }
}
