//! Wraps a CNI plugin and logs how long the plugin takes.
//!
//! Rule: input and output are the plugin's own. The wrapper is copied under the plugin's name into
//! a directory where `real` links to the real plugin, and appends a line to `times` there: the
//! command, the container, the plugin, and the microseconds. It uses only the standard library,
//! because its own start time counts as the runtime's.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

const TIMED: &str = "KEELSON_TIMED_PLUGIN";

fn main() -> ExitCode {
    let begun = Instant::now();
    match run(begun) {
        Ok(code) => code,
        Err(error) => {
            // As a plugin says it.
            println!("{{\"code\": 999, \"msg\": \"timed-plugin: {error}\"}}");
            ExitCode::FAILURE
        }
    }
}

fn run(begun: Instant) -> std::io::Result<ExitCode> {
    let own = std::env::current_exe()?;
    let (Some(dir), Some(name)) = (own.parent(), own.file_name()) else {
        return Err(std::io::Error::other("no folder and name"));
    };
    // One clock before another would start each other for ever.
    if std::env::var_os(TIMED).is_some() {
        return Err(std::io::Error::other("the real plugin is a clock, too"));
    }
    let status = Command::new(dir.join("real").join(name)).env(TIMED, "1").status()?;
    let microseconds = begun.elapsed().as_micros();
    let variable = |name: &str| std::env::var_os(name).unwrap_or_else(|| OsString::from("-"));
    let line = format!(
        "{} {} {} {microseconds}\n",
        variable("CNI_COMMAND").display(),
        variable("CNI_CONTAINERID").display(),
        name.display()
    );
    // One write: others add to it at the same time.
    let times = std::fs::File::options().append(true).create(true).open(dir.join("times"));
    times?.write_all(line.as_bytes())?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into))
}
