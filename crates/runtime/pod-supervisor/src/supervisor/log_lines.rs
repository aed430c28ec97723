//! Container output as CRI log lines.
//!
//! Rule: pure: bytes in, lines out, in a buffer that never grows. A line is `timestamp stream tag
//! text`; a text longer than the limit is split into parts tagged P, the last tagged F. Nothing is
//! lost or invented: a text at the end without a newline is tagged P too.

#[cfg(test)]
mod tests;

/// Length of the timestamp `2006-01-02T15:04:05.000000000Z`.
const TIMESTAMP_LENGTH: usize = 30;
/// Timestamp, stream, tag and blanks.
const HEAD: usize = TIMESTAMP_LENGTH + 1 + 6 + 1 + 1 + 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    Output,
    Error,
}

impl OutputStream {
    fn name(self) -> &'static [u8; 6] {
        match self {
            Self::Output => b"stdout",
            Self::Error => b"stderr",
        }
    }
}

/// What a line begins with.
#[derive(Clone, Copy)]
pub(super) struct LineHead<'a> {
    pub(super) stream: OutputStream,
    pub(super) timestamp: &'a LogTimestamp,
}

/// Writes whole lines somewhere.
pub(super) trait LineSink {
    fn write(&mut self, lines: &[u8]);
}

/// Lines to be written. The size is fixed at the start.
pub(super) struct LogLineBuffer {
    lines: Vec<u8>,
    longest: usize,
}

impl LogLineBuffer {
    pub(super) fn new(longest: usize) -> Self {
        let longest = longest.clamp(64, 64 * 1024);
        Self { lines: Vec::with_capacity(longest.max(32 * 1024) + 2 * (HEAD + 1)), longest }
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Formats and writes all lines in `pending` that are complete or too long (with `end`:
    /// everything). Returns the number of bytes used.
    pub(super) fn take(
        &mut self,
        pending: &[u8],
        end: bool,
        head: LineHead<'_>,
        sink: &mut dyn LineSink,
    ) -> usize {
        let mut used = 0;
        loop {
            let rest = &pending[used..];
            // One more than the limit, for the newline behind a line of exactly that length.
            let window = &rest[..rest.len().min(self.longest + 1)];
            let (text, tag, step) = match find_newline(window) {
                Some(at) => (&window[..at], b'F', at + 1),
                None if rest.len() > self.longest => (&rest[..self.longest], b'P', self.longest),
                None if end && !rest.is_empty() => (rest, b'P', rest.len()),
                None => break,
            };
            self.push(text, tag, head, sink);
            used += step;
        }
        self.flush(sink);
        used
    }

    fn push(&mut self, text: &[u8], tag: u8, head: LineHead<'_>, sink: &mut dyn LineSink) {
        if self.lines.capacity() - self.lines.len() < HEAD + text.len() + 1 {
            self.flush(sink);
        }
        self.lines.extend_from_slice(&head.timestamp.text);
        self.lines.push(b' ');
        self.lines.extend_from_slice(head.stream.name());
        self.lines.extend_from_slice(&[b' ', tag, b' ']);
        self.lines.extend_from_slice(text);
        self.lines.push(b'\n');
    }

    fn flush(&mut self, sink: &mut dyn LineSink) {
        if !self.lines.is_empty() {
            sink.write(&self.lines);
            self.lines.clear();
        }
    }
}

/// Searches eight bytes at a time.
fn find_newline(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let same = u64::from_le_bytes(*chunk) ^ (ONES * b'\n' as u64);
        let zero = same.wrapping_sub(ONES) & !same & HIGH;
        if zero != 0 {
            return Some(at + zero.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    bytes[at..].iter().position(|byte| *byte == b'\n').map(|found| at + found)
}

/// A timestamp as text; the date is only computed when the second changes.
#[derive(Debug, Clone)]
pub(super) struct LogTimestamp {
    second: i64,
    text: [u8; TIMESTAMP_LENGTH],
}

impl LogTimestamp {
    pub(super) fn new() -> Self {
        Self { second: i64::MIN, text: *b"1970-01-01T00:00:00.000000000Z" }
    }

    pub(super) fn set(&mut self, seconds: i64, nanoseconds: u32) {
        if seconds != self.second {
            self.second = seconds;
            let (year, month, day) = date_of(seconds.div_euclid(86_400));
            let rest = seconds.rem_euclid(86_400);
            let fields = [
                (0, 4, year),
                (5, 2, month),
                (8, 2, day),
                (11, 2, rest / 3600),
                (14, 2, rest / 60 % 60),
                (17, 2, rest % 60),
            ];
            for (at, width, value) in fields {
                digits(&mut self.text[at..at + width], value);
            }
        }
        digits(&mut self.text[20..29], i64::from(nanoseconds));
    }
}

fn digits(target: &mut [u8], mut value: i64) {
    for place in target.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Days since 1970 as year, month, day of the Gregorian calendar: eras of 400 years that begin in
/// March, so that the leap day is a year's last.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}
