//! The tables that benchmarks print, and the promises of SPECIFICATION.md that they hold.
//!
//! Rule: a promise is a ratio of two numbers of one run. One that is not kept is marked in the table
//! and ends the benchmark with an error, after all of it was printed.

use anyhow::{Result, ensure};

/// What a ratio may be.
#[derive(Debug, Clone, Copy)]
pub enum Promise {
    AtMost(f64),
    AtLeast(f64),
    /// Shown, not promised.
    None,
}

impl Promise {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
            Self::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most:.3}"),
            Self::AtLeast(least) => format!(">= {least:.3}"),
            Self::None => String::new(),
        }
    }
}

/// One line: a number of ours beside one of theirs.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: String,
    pub ours: f64,
    pub theirs: f64,
    pub unit: &'static str,
    pub promise: Promise,
}

/// Prints lines as they come and remembers the promises that were not kept.
#[derive(Debug, Default)]
pub struct Table {
    broken: Vec<String>,
}

impl Table {
    /// A line of titles; `theirs` names the other.
    pub fn heading(&self, title: &str, theirs: &str) {
        println!("\n{title:<46} {:>11} {theirs:>11} {:<5} {:>7} promise", "keelson", "", "ratio");
    }

    pub fn row(&mut self, row: &Row) {
        let ratio = row.ours / row.theirs;
        // Nothing beside nothing is no ratio, and breaks what is promised.
        let kept = row.promise.holds(ratio);
        println!(
            "{:<46} {:>11.1} {:>11.1} {:<5} {ratio:>7.3} {:<9}{}",
            row.name,
            row.ours,
            row.theirs,
            row.unit,
            row.promise.text(),
            if kept { "" } else { " NOT KEPT" }
        );
        if !kept {
            self.broken.push(format!("{}: {ratio:.3}", row.name));
        }
    }

    /// # Errors
    /// When a promise was not kept.
    pub fn judge(&self) -> Result<()> {
        ensure!(self.broken.is_empty(), "promises not kept: {}", self.broken.join("; "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ours: f64, theirs: f64, promise: Promise) -> Result<()> {
        let mut table = Table::default();
        table.row(&Row { name: "it".to_owned(), ours, theirs, unit: "ms", promise });
        table.judge()
    }

    #[test]
    fn a_promise_is_kept_or_named() {
        judged(1.0, 5.0, Promise::AtMost(0.2)).unwrap();
        judged(9.0, 1.0, Promise::None).unwrap();
        judged(3.0, 1.0, Promise::AtLeast(3.0)).unwrap();
        let broken = judged(1.1, 5.0, Promise::AtMost(0.2)).unwrap_err();
        assert_eq!(broken.to_string(), "promises not kept: it: 0.220");
        judged(2.9, 1.0, Promise::AtLeast(3.0)).unwrap_err();
        judged(0.0, 0.0, Promise::AtMost(0.2)).unwrap_err();
    }
}
