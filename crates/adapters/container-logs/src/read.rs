//! Reads the existing log: all of it, the last lines, or what is newer than a time.
//!
//! Rule: lines are counted as the container wrote them: pieces of one line are one line. The last
//! lines are searched from the newest file backwards, so that old files are not read needlessly.

use crate::LogError;
use crate::files::{LogFile, log_files};
use pod_model::log_line::{LogStream, parse};
use ports::ApiTime;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Runtimes split lines at 16 KiB; this is four times as much.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Which lines to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSelection {
    /// At most the last so many.
    pub tail: Option<usize>,
    /// Not older than this.
    pub since: Option<ApiTime>,
    pub stream: Option<LogStream>,
}

/// A piece of a container's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// As the runtime wrote it.
    pub time: String,
    pub stream: LogStream,
    /// Whether the line continues in the next entry of the same stream.
    pub is_partial: bool,
    pub text: Vec<u8>,
}

impl LogSelection {
    /// The line as an entry, if it is one and is selected. `tail` is not applied here.
    pub(crate) fn entry(&self, line: &[u8]) -> Option<LogEntry> {
        let line = parse(line)?;
        if self.stream.is_some_and(|stream| stream != line.stream) {
            return None;
        }
        if let Some(since) = self.since
            && ApiTime::parse(line.time).is_none_or(|time| time < since)
        {
            return None;
        }
        Some(LogEntry {
            time: line.time.to_owned(),
            stream: line.stream,
            is_partial: line.is_partial,
            text: line.text.to_vec(),
        })
    }
}

/// A position in a file, which may have been renamed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadBound {
    pub device: u64,
    pub inode: u64,
    pub length: u64,
}

/// Passes on a container's log, oldest first, until `take` breaks off.
pub fn read_logs(
    path: &Path,
    selection: &LogSelection,
    take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
) -> Result<(), LogError> {
    read_until(path, selection, None, take)
}

/// The same, but nothing at the bound or after it.
pub(crate) fn read_until(
    path: &Path,
    selection: &LogSelection,
    bound: Option<&ReadBound>,
    take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
) -> Result<(), LogError> {
    WrittenLog::start(path, selection, bound)?.read(selection, take).map(drop)
}

/// What was written before reading began, with the position in it.
pub(crate) struct WrittenLog {
    files: LogFileList,
    /// The file that is read, or the next one if none is open.
    at: usize,
    open: Option<OpenLogFile>,
    /// Lines left out, of those before the last ones.
    skip: usize,
}

impl WrittenLog {
    /// Finds the first line to pass on. Reads whole files if only the last lines are wanted.
    pub(crate) fn start(
        path: &Path,
        selection: &LogSelection,
        bound: Option<&ReadBound>,
    ) -> Result<Self, LogError> {
        let files = LogFileList::list(path, bound)?;
        let (at, skip) = match selection.tail {
            None => (0, 0),
            Some(0) => (files.names.len(), 0),
            Some(wanted) => files.start_of_last(selection, wanted)?,
        };
        Ok(Self { files, at, open: None, skip })
    }

    /// Passes on the selected entries. After a break it may be called again for the rest.
    pub(crate) fn read(
        &mut self,
        selection: &LogSelection,
        take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LogError> {
        while self.at < self.files.names.len() {
            if self.open.is_none() {
                self.open = self.files.open(self.at)?;
            }
            if let Some(open) = &mut self.open {
                let skip = &mut self.skip;
                let flow = open.read(selection, &mut |entry| {
                    if *skip > 0 {
                        *skip -= usize::from(!entry.is_partial);
                        return ControlFlow::Continue(());
                    }
                    take(entry)
                });
                if flow.map_err(|cause| self.files.error(self.at, cause))?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            self.open = None;
            self.at += 1;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The files to read; the last one may be read only up to a length.
struct LogFileList {
    names: Vec<LogFile>,
    last_length: Option<u64>,
}

impl LogFileList {
    fn list(path: &Path, bound: Option<&ReadBound>) -> Result<Self, LogError> {
        let mut names = log_files(path)?;
        let Some(bound) = bound else { return Ok(Self { names, last_length: None }) };
        let is_bound = |file: &LogFile| {
            std::fs::metadata(&file.path)
                .is_ok_and(|known| (known.dev(), known.ino()) == (bound.device, bound.inode))
        };
        // If it is missing it was compressed or removed, which only happens to files long rotated:
        // then only the older ones certainly come before it.
        match names.iter().position(is_bound) {
            Some(at) => names.truncate(at + 1),
            None => names.clear(),
        }
        Ok(Self { names, last_length: Some(bound.length) })
    }

    /// The file in which the last `wanted` lines begin, and how many of its lines to skip.
    fn start_of_last(
        &self,
        selection: &LogSelection,
        wanted: usize,
    ) -> Result<(usize, usize), LogError> {
        let mut found = 0;
        for at in (0..self.names.len()).rev() {
            let mut lines = 0_usize;
            if let Some(mut open) = self.open(at)? {
                let counted = open.read(selection, &mut |entry| {
                    lines += usize::from(!entry.is_partial);
                    ControlFlow::Continue(())
                });
                let _ = counted.map_err(|cause| self.error(at, cause))?;
            }
            if found + lines >= wanted {
                return Ok((at, found + lines - wanted));
            }
            found += lines;
        }
        Ok((0, 0))
    }

    /// `None` if the file was removed, which happens to rotated ones: then it has no entries.
    fn open(&self, at: usize) -> Result<Option<OpenLogFile>, LogError> {
        let Some(file) = self.names.get(at) else { return Ok(None) };
        let reader = match file.open() {
            Ok(reader) => reader,
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(self.error(at, cause)),
        };
        let is_last = at + 1 == self.names.len();
        let most = self.last_length.filter(|_| is_last).unwrap_or(u64::MAX);
        let reader = BufReader::with_capacity(MAX_LINE_BYTES, reader.take(most));
        Ok(Some(OpenLogFile { reader, lines: LineBuffer::default() }))
    }

    fn error(&self, at: usize, cause: std::io::Error) -> LogError {
        let path = self.names.get(at).map(|file| file.path.display().to_string());
        LogError { path: path.unwrap_or_default(), cause }
    }
}

/// One file of the log.
struct OpenLogFile {
    reader: BufReader<std::io::Take<Box<dyn Read + Send + Sync>>>,
    lines: LineBuffer,
}

impl OpenLogFile {
    /// Passes on the rest of its entries; a break can be resumed.
    fn read(
        &mut self,
        selection: &LogSelection,
        take: &mut dyn FnMut(&LogEntry) -> ControlFlow<()>,
    ) -> std::io::Result<ControlFlow<()>> {
        loop {
            while let Some(line) = self.lines.next_line() {
                if let Some(entry) = selection.entry(&line)
                    && take(&entry).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let chunk = self.reader.fill_buf()?;
            let length = chunk.len();
            if length == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            self.lines.push(chunk);
            self.reader.consume(length);
        }
    }
}

/// Splits bytes into lines. A line that is too long is dropped.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    bytes: VecDeque<u8>,
    /// How far it has been searched for a line end.
    searched: usize,
    is_dropping: bool,
}

impl LineBuffer {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend(chunk);
    }

    /// The next whole line, without its line end.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            let end = self.bytes.iter().skip(self.searched).position(|byte| *byte == b'\n');
            let Some(end) = end.map(|at| at + self.searched) else {
                self.searched = self.bytes.len();
                if self.bytes.len() > MAX_LINE_BYTES {
                    self.bytes.clear();
                    self.searched = 0;
                    self.is_dropping = true;
                }
                return None;
            };
            let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
            line.pop();
            self.searched = 0;
            if !std::mem::take(&mut self.is_dropping) {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests;
