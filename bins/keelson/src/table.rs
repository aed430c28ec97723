//! Plain tables, and the short forms of ids, ages and sizes that stand in them.
//!
//! Rule: columns align whatever stands in them, lines end without blanks. Pure: the time is an
//! argument.

#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(ToString::to_string).collect()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:width$}   "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The first thirteen characters of an id, without the algorithm of a digest.
pub(crate) fn short_id(id: &str) -> String {
    id.strip_prefix("sha256:").unwrap_or(id).chars().take(13).collect()
}

/// How long ago, in the largest fitting unit; both times in nanoseconds since 1970.
pub(crate) fn age(now: i64, then: i64) -> String {
    let seconds = now.saturating_sub(then).max(0) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Bytes with a decimal unit and at most one place.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes}B");
    }
    let mut divisor = 1_000u64;
    for unit in UNITS {
        // Rounded down: a size never looks larger than it is.
        let tenths = bytes / (divisor / 10);
        if tenths < 10_000 {
            let (whole, tenth) = (tenths / 10, tenths % 10);
            return if tenth == 0 {
                format!("{whole}{unit}")
            } else {
                format!("{whole}.{tenth}{unit}")
            };
        }
        divisor = divisor.saturating_mul(1_000);
    }
    format!("{bytes}B")
}
