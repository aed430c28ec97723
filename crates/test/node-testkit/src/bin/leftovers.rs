//! `leftovers snapshot FILE`, `leftovers compare FILE`: judges what a run left on this machine.
//! Everything it knows is in the library; it shares no process with what it judges.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    node_testkit::leftovers::program(&arguments)
}
