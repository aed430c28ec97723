//! One line of a container's log file, as CRI has it: `TIME STREAM TAGS TEXT`.
//!
//! Rule: total, and borrows from its input. A runtime splits long lines into pieces; every piece
//! but the last carries the tag `P`. The time is left as text and parsed only where it is needed.

/// The stream that a container wrote it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine<'bytes> {
    /// RFC 3339 with nanoseconds.
    pub time: &'bytes str,
    pub stream: LogStream,
    /// Whether the container's line goes on in the next one.
    pub is_partial: bool,
    /// Without the line's end.
    pub text: &'bytes [u8],
}

/// Parses a line without its `\n`; None where it is not in CRI's format.
pub fn parse(line: &[u8]) -> Option<LogLine<'_>> {
    let (time, rest) = split_at_space(line)?;
    let (stream, rest) = split_at_space(rest)?;
    // Nothing may follow the tags where the container wrote an empty line.
    let (tags, text) = split_at_space(rest).unwrap_or((rest, &[]));
    let stream = match stream {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return None,
    };
    let first = tags.split(|byte| *byte == b':').next()?;
    let is_partial = match first {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    let time = std::str::from_utf8(time).ok()?;
    is_timestamp_prefix(time).then_some(LogLine { time, stream, is_partial, text })
}

fn split_at_space(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == b' ')?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// Enough to distinguish a log line from other text; the time is parsed elsewhere.
fn is_timestamp_prefix(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = bytes.iter().take(4).all(u8::is_ascii_digit);
    (20..=40).contains(&bytes.len()) && digits && bytes.get(10) == Some(&b'T')
}

#[cfg(test)]
mod tests;
