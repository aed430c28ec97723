//! Log lines as the text that clients get.
//!
//! Rule: pure; the text is upstream's (cri-client pkg/logs/logs.go): a time has nine digits after
//! the point, only the beginning of a line has one, and the limit counts every byte.

use ports::kubelet_endpoint::container_log_reader::ContainerLogLine;

/// Turns lines into text.
#[derive(Debug, Clone)]
pub(super) struct LogText {
    timestamps: bool,
    remaining: Option<u64>,
    is_in_line: bool,
}

impl LogText {
    pub(super) fn new(timestamps: bool, limit_bytes: Option<u64>) -> Self {
        Self { timestamps, remaining: limit_bytes, is_in_line: false }
    }

    /// Whether the limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.remaining == Some(0)
    }

    /// The text of the next lines.
    pub(super) fn of(&mut self, lines: &[ContainerLogLine]) -> Vec<u8> {
        let mut text = Vec::new();
        for line in lines {
            if self.is_full() {
                break;
            }
            let from = text.len();
            if self.timestamps && !self.is_in_line {
                text.extend_from_slice(fixed_width(&line.time).as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(&line.text);
            if !line.is_partial {
                text.push(b'\n');
            }
            self.is_in_line = line.is_partial;
            if let Some(remaining) = &mut self.remaining {
                let allowed = usize::try_from(*remaining).unwrap_or(usize::MAX);
                text.truncate(from.saturating_add(allowed));
                *remaining = remaining.saturating_sub((text.len() - from) as u64);
            }
        }
        text
    }
}

/// The time with nine digits of a second's fraction. Text that is not a time stays as it is.
fn fixed_width(time: &str) -> String {
    let Some((seconds, rest)) = time.split_at_checked("2026-01-02T03:04:05".len()) else {
        return time.to_owned();
    };
    let fraction = rest.strip_prefix('.').unwrap_or(rest);
    let end = fraction.find(|character: char| !character.is_ascii_digit());
    let (digits, zone) = fraction.split_at(end.unwrap_or(fraction.len()));
    let digits = digits.get(..9).unwrap_or(digits);
    format!("{seconds}.{digits:0<9}{zone}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str, text: &str, is_partial: bool) -> ContainerLogLine {
        ContainerLogLine { time: time.to_owned(), is_partial, text: text.as_bytes().to_vec() }
    }

    fn text(timestamps: bool, limit: Option<u64>, parts: &[&[ContainerLogLine]]) -> (String, bool) {
        let mut log = LogText::new(timestamps, limit);
        let bytes: Vec<u8> = parts.iter().flat_map(|lines| log.of(lines)).collect();
        (String::from_utf8(bytes).expect("text"), log.is_full())
    }

    #[test]
    fn a_time_is_as_wide_as_upstreams() {
        for (time, expected) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000000Z"),
            ("2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.100000000Z"),
            ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456789Z"),
            ("2026-01-02T03:04:05.12+02:00", "2026-01-02T03:04:05.120000000+02:00"),
            ("2026-01-02T03:04:05-02:00", "2026-01-02T03:04:05.000000000-02:00"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(fixed_width(time), expected, "{time}");
        }
    }

    #[test]
    fn lines_are_put_together_and_cut_off_at_the_limit() {
        let at = "2026-01-02T03:04:05Z";
        let stamp = "2026-01-02T03:04:05.000000000Z ";
        let lines = [line(at, "on", true), line(at, "e", false), line(at, "", false)];
        let (first, rest) = lines.split_at(1);
        assert_eq!(text(false, None, &[&lines]), ("one\n\n".to_owned(), false));
        let stamped = format!("{stamp}one\n{stamp}\n");
        assert_eq!(text(true, None, &[first, rest]), (stamped.clone(), false));
        for limit in 1..=stamped.len() {
            let cut = stamped.get(..limit).expect("text").to_owned();
            assert_eq!(text(true, Some(limit as u64), &[first, rest]), (cut, true), "{limit}");
        }
        let more = stamped.len() as u64 + 1;
        assert_eq!(text(true, Some(more), &[&lines]), (stamped, false));
    }
}
