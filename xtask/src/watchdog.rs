//! Ends a whole run that takes too long, whatever step it is in: names the step, prints the closing
//! line as a failure, kills every process that the run started, and exits.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

#[cfg(test)]
mod tests;

/// The current step, which the watchdog names.
static STEP: Mutex<String> = Mutex::new(String::new());

pub(crate) fn set_current_step(step: &str) {
    step.clone_into(&mut STEP.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Sets the run's deadline this long from now.
pub(crate) fn start(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        let step = STEP.lock().unwrap_or_else(PoisonError::into_inner).clone();
        eprintln!("==> WATCHDOG: {} minutes are over, during: {step}", limit.as_secs() / 60);
        for process in descendants_of(std::process::id(), &parents()) {
            if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        println!("failed: the watchdog ended the run during: {step}\n0 passed, 1 failed");
        std::process::exit(1);
    });
}

/// Every process of this machine with its parent.
fn parents() -> BTreeMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter_map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let parent = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect()
}

/// The processes below one, nearest first.
fn descendants_of(ancestor: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, p)| **p == parent).map(|(process, _)| process));
        next += 1;
    }
    found.remove(0);
    found
}
