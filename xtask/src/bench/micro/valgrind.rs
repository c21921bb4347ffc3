//! Counting instructions and allocations of one operation, by valgrind.
//!
//! A bench that is built on `bench-measure` runs an operation as often as it is told. Two runs differ by a known
//! number of operations, and their counts by what those cost: what is done once cancels out, the clocks play no part,
//! and the program is the one that is timed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::catch;

/// The interface of `bench-measure`.
const COUNT: &str = "BENCH_COUNT";
const TIMES: &str = "BENCH_TIMES";

/// The lengths of the two runs. The difference is large against what the threads of a bench do beside.
const FEW: u32 = 200;
const MANY: u32 = 2200;

const LIST_LIMIT: Duration = Duration::from_secs(60);
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// What a bench offers to be counted.
#[derive(Debug, PartialEq)]
pub(super) struct Counted {
    /// Case and subject.
    pub(super) id: String,
    /// In one call.
    operations: u32,
}

/// Counts of one operation.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) instructions: f64,
    pub(super) allocations: f64,
    /// Of all allocations, whether they were given back or not.
    pub(super) bytes: f64,
}

/// Whether it is installed.
pub(super) fn is_there() -> bool {
    catch(Command::new("valgrind").arg("--version"), LIST_LIMIT).is_ok_and(|caught| caught.success)
}

/// All that can be counted.
pub(super) fn list(program: &Path, folder: &Path) -> Result<Vec<Counted>> {
    let caught = catch(Command::new(program).env(COUNT, "list").current_dir(folder), LIST_LIMIT)?;
    ensure!(caught.success, "{}", caught.last_line());
    Ok(caught.output.lines().filter_map(parse_counted).collect())
}

fn parse_counted(line: &str) -> Option<Counted> {
    let (id, operations) = line.rsplit_once(' ')?;
    let operations = operations.parse().ok().filter(|&operations| operations > 0)?;
    Some(Counted { id: id.to_owned(), operations })
}

/// Counts what one operation costs.
pub(super) fn count(program: &Path, folder: &Path, counted: &Counted) -> Result<Counts> {
    let run = |tool: &str, times: u32| {
        let mut command = Command::new("valgrind");
        command
            .args([format!("--tool={tool}"), format!("--{tool}-out-file=/dev/null")])
            .arg(program)
            .env(COUNT, &counted.id)
            .env(TIMES, times.to_string())
            .current_dir(folder);
        let caught = catch(&mut command, RUN_LIMIT)?;
        ensure!(caught.success, "{}: {}", counted.id, caught.last_line());
        Ok(caught.output)
    };
    let runs = |tool: &str| Ok::<_, anyhow::Error>((run(tool, FEW)?, run(tool, MANY)?));
    let difference = |(few, many): &(String, String), read: fn(&str) -> Option<f64>| {
        let read = |output: &str| read(output).context("valgrind's output is not recognised");
        let (few, many) = (read(few)?, read(many)?);
        Ok::<_, anyhow::Error>((many - few).max(0.0) / f64::from(MANY - FEW) / f64::from(counted.operations))
    };
    let heap = runs("dhat")?;
    Ok(Counts {
        instructions: difference(&runs("callgrind")?, instructions)?,
        allocations: difference(&heap, allocations)?,
        bytes: difference(&heap, bytes)?,
    })
}

/// `==1== Collected : 128533`
fn instructions(output: &str) -> Option<f64> {
    number(output.lines().find_map(|line| line.split_once("Collected : "))?.1)
}

/// `==1== Total:     1,736 bytes in 3 blocks`
fn allocations(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.split_once(" Total: "))?.1;
    number(line.split_once(" in ")?.1)
}

/// The same line.
fn bytes(output: &str) -> Option<f64> {
    number(output.lines().find_map(|line| line.split_once(" Total: "))?.1)
}

/// The number at the beginning, with commas or without.
fn number(text: &str) -> Option<f64> {
    let digits: String = text
        .trim_start()
        .chars()
        .take_while(|character| character.is_ascii_digit() || *character == ',')
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_both_tools_are_read() {
        assert_eq!(instructions("==1== Events    : Ir\n==1== Collected : 128533\n"), Some(128_533.0));
        let dhat =
            "==1== \n==1== Total:     24,003 bytes in 1,002 blocks\n==1== At t-gmax: 1 bytes in 3 blocks\n";
        assert_eq!(allocations(dhat), Some(1002.0));
        assert_eq!(bytes(dhat), Some(24_003.0));
        assert_eq!(bytes("nothing"), None);
        assert_eq!(allocations("nothing"), None);
        assert_eq!(instructions("==1== Collected : none"), None);
    }

    #[test]
    fn what_can_be_counted_has_a_number_of_operations() {
        assert_eq!(parse_counted("a/cardea 64"), Some(Counted { id: "a/cardea".to_owned(), operations: 64 }));
        assert_eq!(parse_counted("a/cardea 0"), None);
        assert_eq!(parse_counted("a warning"), None);
    }
}
