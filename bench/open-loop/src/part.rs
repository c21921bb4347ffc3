//! Which part of the load it is: a number on a line of standard input says that another one begins.

use std::io::{self, BufRead, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::outcome::Outcome;

/// More than anybody has.
const PARTS_MAX: usize = 64;

/// The part that it is now; the first one is 0.
#[derive(Clone, Default)]
pub(crate) struct Part {
    now: Arc<AtomicUsize>,
    wrong: Arc<OnceLock<io::Error>>,
}

impl Part {
    /// Follows standard input until it ends, or until something there is no number.
    pub(crate) fn by_standard_input() -> Self {
        let part = Self::default();
        let Self { now, wrong } = part.clone();
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                match line.and_then(|line| number(&line)) {
                    Ok(number) => now.store(number, Relaxed),
                    Err(error) => {
                        let _ = wrong.set(error);
                        return;
                    }
                }
            }
        });
        part
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    /// Prints what became of the requests, unless it is not known which part each was of.
    pub(crate) fn print(&self, outcomes: Outcomes) -> io::Result<()> {
        if let Some(wrong) = self.wrong.get() {
            return Err(io::Error::new(wrong.kind(), wrong.to_string()));
        }
        outcomes.print();
        Ok(())
    }
}

fn number(line: &str) -> io::Result<usize> {
    let number = line.trim().parse().ok().filter(|number| *number < PARTS_MAX);
    number
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, format!("{line:?} is the number of no part")))
}

/// What became of the requests of each part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes(Vec<Outcome>);

impl Outcomes {
    pub(crate) fn of(&mut self, part: usize) -> &mut Outcome {
        if self.0.len() <= part {
            self.0.resize_with(part + 1, Outcome::default);
        }
        &mut self.0[part]
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (part, outcome) in other.0.into_iter().enumerate() {
            self.of(part).add(outcome);
        }
    }

    /// A line for each part.
    fn print(mut self) {
        // There is one line even if there was nothing to ask for.
        self.of(0);
        for outcome in self.0 {
            println!("{}", outcome.sorted());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_number() {
        assert_eq!(number("3\n").unwrap(), 3);
        assert!(number("").is_err());
        assert!(number("64").is_err());
    }

    #[test]
    fn requests_count_for_their_part() {
        let mut sum = Outcomes::default();
        for thread in 0..2 {
            let mut outcomes = Outcomes::default();
            outcomes.of(2).answered(200, 10 + thread);
            outcomes.of(0).closed();
            sum.add(outcomes);
        }
        let lines = sum.0.iter().map(|outcome| outcome.clone().sorted().to_string()).collect::<Vec<_>>();
        let ends = [
            "closed=2 failed=0 p50_us=0 p99_us=0",
            "closed=0 failed=0 p50_us=0 p99_us=0",
            "p50_us=10 p99_us=11",
        ];
        assert_eq!(lines.len(), ends.len());
        assert!(lines.iter().zip(ends).all(|(line, end)| line.ends_with(end)), "{lines:?}");
    }
}
