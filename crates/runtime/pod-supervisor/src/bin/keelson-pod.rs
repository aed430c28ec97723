//! The supervisor as a separate program.
//!
//! Rule: nothing but [`pod_supervisor::supervisor`]; `argv[0]` selects between a supervisor and a
//! pod's init.

use std::process::ExitCode;

fn main() -> ExitCode {
    pod_supervisor::supervisor::run_if_called().unwrap_or_else(|| {
        eprintln!("keelson-pod: started by the runtime, not by hand");
        ExitCode::from(2)
    })
}
