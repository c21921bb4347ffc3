//! The bench `secrets`: client secrets under a slow hash, with limited processor time and under a flood of guesses.

mod flood;
mod open_loop;
mod quota;
mod registry;
mod scenario;

use anyhow::Result;

pub(super) use self::registry::piped;
use super::Plan;
use super::report::Report;
use super::tools::Tools;

/// Runs both parts and returns the results.
pub(super) fn run(tools: &Tools, plan: &Plan) -> Result<Report> {
    let mut report = Report::new("secrets");
    if plan.takes(scenario::CASE) {
        scenario::add(&mut report, tools, plan)?;
    }
    if !flood::placements(plan)?.is_empty() {
        flood::add(&mut report, tools, plan)?;
    }
    Ok(report)
}

/// The tables, after the conditions of the measurements.
pub(super) fn section(report: &Report, plan: &Plan) -> Result<String> {
    let mut text = String::new();
    if plan.takes(scenario::CASE) {
        text += &scenario::section(&report.only(|case| case == scenario::CASE), plan)?;
    }
    if !flood::placements(plan)?.is_empty() {
        text += &flood::section(&report.only(|case| case.starts_with(flood::CASE)), plan)?;
    }
    Ok(text + &report.missing())
}
