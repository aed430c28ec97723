//! The tables that benchmarks print, and the promises of SPECIFICATION.md that they check.
//!
//! Rule: a promise is a ratio of two numbers of one run; for values measured in turns it is the
//! median of the ratios of each turn, which does not depend on a machine that changes its speed
//! between turns. A broken one is marked in the table and fails the benchmark after the whole table
//! was printed.
//! it was printed.

use anyhow::{Result, ensure};

/// The bound of a ratio.
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

/// One row: our number and the other's.
#[derive(Debug, Clone)]
pub struct BenchRow {
    pub name: String,
    pub ours: f64,
    pub theirs: f64,
    pub unit: &'static str,
    pub promise: Promise,
}

/// Numbers of both sides, in pairs measured one directly after the other.
#[derive(Debug, Clone, Default)]
pub struct PairedSamples {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl PairedSamples {
    pub fn push(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }

    /// The median of our numbers; NaN without turns.
    pub fn ours(&self) -> f64 {
        median(self.ours.clone())
    }

    pub fn theirs(&self) -> f64 {
        median(self.theirs.clone())
    }

    pub fn ratio(&self) -> f64 {
        median(self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect())
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints rows as they come and records the broken promises.
#[derive(Debug, Default)]
pub struct BenchTable {
    broken: Vec<String>,
}

impl BenchTable {
    /// A title row; `theirs` is the other's name.
    pub fn heading(&self, title: &str, theirs: &str) {
        println!("\n{title:<46} {:>11} {theirs:>11} {:<5} {:>7} promise", "keelson", "", "ratio");
    }

    pub fn row(&mut self, row: &BenchRow) {
        self.line(row, row.ours / row.theirs);
    }

    /// Values measured in turns: medians, and the median of the ratios.
    pub fn turns(
        &mut self,
        name: &str,
        turns: &PairedSamples,
        unit: &'static str,
        promise: Promise,
    ) {
        let (name, ours, theirs) = (name.to_owned(), turns.ours(), turns.theirs());
        self.line(&BenchRow { name, ours, theirs, unit, promise }, turns.ratio());
    }

    fn line(&mut self, row: &BenchRow, ratio: f64) {
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
    /// When a promise is broken.
    pub fn judge(&self) -> Result<()> {
        ensure!(self.broken.is_empty(), "promises not kept: {}", self.broken.join("; "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ours: f64, theirs: f64, promise: Promise) -> Result<()> {
        let mut table = BenchTable::default();
        table.row(&BenchRow { name: "it".to_owned(), ours, theirs, unit: "ms", promise });
        table.judge()
    }

    /// A machine that is slow for a while is slow for both.
    #[test]
    fn turns_are_compared_one_by_one() {
        let mut turns = PairedSamples::default();
        for speed in [1.0, 1.0, 3.0, 3.0, 3.0] {
            turns.push(10.0 * speed, 40.0 * speed);
        }
        assert_eq!((turns.ours(), turns.theirs(), turns.ratio()), (30.0, 120.0, 0.25));
        // The medians alone would say 0.75 here.
        let mut turns = PairedSamples::default();
        for (ours, theirs) in [(10.0, 40.0), (30.0, 120.0), (30.0, 40.0)] {
            turns.push(ours, theirs);
        }
        assert_eq!(turns.ratio(), 0.25);
        let mut table = BenchTable::default();
        table.turns("it", &turns, "ms", Promise::AtMost(0.2));
        assert!(table.judge().unwrap_err().to_string().contains("it: 0.250"));
        let mut table = BenchTable::default();
        table.turns("nothing", &PairedSamples::default(), "ms", Promise::AtMost(1.0));
        table.judge().unwrap_err();
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
