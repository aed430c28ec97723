//! Counts the results, and prints them in the closing line of every run.

use std::time::{Duration, Instant};

use anyhow::Result;

#[cfg(test)]
mod tests;

#[derive(Debug, Default)]
pub(crate) struct CheckTally {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

impl CheckTally {
    /// Runs one named step; a failure is printed at once and counted.
    pub(crate) fn check(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        let begun = Instant::now();
        eprintln!("==> {name}");
        crate::watchdog::set_current_step(name);
        match step() {
            Ok(()) => self.passed += 1,
            Err(error) => {
                eprintln!("==> {name} FAILED: {error:#}");
                self.fail(name);
            }
        }
        eprintln!("==> {name}: {}", seconds(begun.elapsed()));
    }

    pub(crate) fn fail(&mut self, name: &str) {
        self.failed += 1;
        self.failures.push(name.to_owned());
    }

    pub(crate) fn add(&mut self, counts: &TestCounts) {
        self.passed += counts.passed;
        self.failed += counts.failed;
        self.failures.extend(counts.failures.iter().cloned());
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// The closing lines. The last one is a plain line by itself, so that scripts can parse it.
    pub(crate) fn closing(&self, could_not_run: usize) -> String {
        let mut text = String::new();
        for failure in &self.failures {
            text.push_str(&format!("failed: {failure}\n"));
        }
        text.push_str(&format!("could not run: {could_not_run}\n"));
        text.push_str(&format!("{} passed, {} failed", self.passed, self.failed));
        text
    }
}

/// What one run of a test program printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    pub(crate) failures: Vec<String>,
}

impl TestCounts {
    /// Takes one line of libtest's output.
    pub(crate) fn read_line(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|l| l.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            let mut words = part.split(' ');
            let (Some(number), Some(word)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100)
}
