//! A password that is compared with several stored secrets.

use std::fmt;
use std::sync::{Arc, OnceLock};

use zeroize::Zeroizing;

use crate::prf::Prf;
use crate::schedule::Schedule;

/// A password with its HMAC key schedules. Each is computed at its first use, and then shared by all jobs of its
/// function.
///
/// A client whose secret is being rotated has several stored secrets, and the presented secret is compared with each of
/// them. Only the salt and the later input differ. A schedule costs two compressions, plus one for each block of a
/// password longer than a block.
///
/// The bytes are wiped when it is dropped, the schedules with their last job.
#[derive(Default)]
pub struct Password {
    bytes: Zeroizing<Vec<u8>>,
    schedules: [OnceLock<Arc<Schedule>>; Prf::ALL.len()],
}

impl Password {
    /// Takes ownership of the bytes, so that no copy remains.
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The password.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key schedule for `prf`.
    #[must_use]
    pub fn schedule(&self, prf: Prf) -> Arc<Schedule> {
        let made = self.schedules[prf as usize].get_or_init(|| Arc::new(Schedule::new(prf, &self.bytes)));
        Arc::clone(made)
    }
}

impl fmt::Debug for Password {
    /// Shows which schedules were computed, and nothing of the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made: Vec<Prf> =
            self.schedules.iter().filter_map(OnceLock::get).map(|schedule| schedule.prf()).collect();
        f.debug_struct("Password").field("schedules", &made).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::hash::compressions;
    use crate::{Engine, Job, derive};

    fn password(text: &[u8]) -> Password {
        Password::new(Zeroizing::new(text.to_vec()))
    }

    #[test]
    fn several_stored_secrets_cost_one_key_schedule() {
        let iterations = NonZeroU32::new(3).unwrap();
        // The blocks of a long one are hashed too: eight of SHA-512 and one of padding.
        for (length, schedule) in [(20, 2), (1024, 2 + 9)] {
            let text = vec![b'p'; length];
            let password = password(&text);
            let expected: Vec<Vec<u8>> = (0..5_u8)
                .map(|salt| {
                    let mut out = vec![0; 64];
                    derive(Prf::HmacSha512, &text, &[salt; 16], iterations, &mut out).unwrap();
                    out
                })
                .collect();
            let before = compressions();
            let mut salts = 0..5_u8;
            let mut engine = Engine::new(Prf::HmacSha512);
            let mut right = 0;
            while engine.step(
                &mut || {
                    let salt = salts.next()?;
                    Some(Job {
                        schedule: password.schedule(Prf::HmacSha512),
                        salt: Box::new([salt; 16]),
                        iterations,
                        output_len: 64,
                        tag: salt,
                    })
                },
                &mut |salt, derived| {
                    assert_eq!(derived, Ok(&expected[usize::from(salt)][..]));
                    right += 1;
                },
            ) {}
            assert_eq!(right, 5);
            // Each salt is a block; the other compressions are no schedule.
            assert_eq!(compressions() - before, schedule + 5, "{length}");
        }
    }

    #[test]
    fn each_function_has_one_shared_key_schedule() {
        let password = password(b"secret");
        assert_eq!(format!("{password:?}"), "Password { schedules: [], .. }");
        for prf in Prf::ALL {
            let (one, other) = (password.schedule(prf), password.schedule(prf));
            assert_eq!(one.prf(), prf);
            assert!(Arc::ptr_eq(&one, &other));
        }
        assert_eq!(format!("{password:?}"), "Password { schedules: [HmacSha1, HmacSha256, HmacSha512], .. }");
        assert_eq!(password.as_bytes(), b"secret");
    }

    #[test]
    fn a_schedule_ends_with_its_last_job() {
        let password = password(b"secret");
        let schedule = password.schedule(Prf::HmacSha256);
        let kept = Arc::downgrade(&schedule);
        drop(password);
        assert!(kept.upgrade().is_some(), "a job has it still");
        drop(schedule);
        assert!(kept.upgrade().is_none());
    }
}
