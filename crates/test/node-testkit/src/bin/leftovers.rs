//! `leftovers snapshot FILE`, `leftovers compare FILE`: checks what a run left on this machine. The
//! logic is in the library; it shares no process with what it checks.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    node_testkit::leftovers::program(&arguments)
}
