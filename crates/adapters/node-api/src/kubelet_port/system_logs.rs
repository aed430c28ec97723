//! The node's log files below `/logs/`.
//!
//! Rule: what a path leads to lies below the log directory; symlinks are followed, but none that
//! leads out; only directories and regular files are served. Files are read on threads for blocking
//! work, a few parts at once. Lists look like those of Go's file server. upstream:
//! pkg/kubelet/kubelet.go (logServer)

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host_paths::{OpenDir, SymlinkPolicy};
use http_server::{Body, BodySender, HandlerResponse, WorkPermits};
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::reply::KubeletReply;

/// Files that are sent at the same time.
const FILE_PERMITS: usize = 32;
/// Parts that are read at the same time.
const READS_AT_ONCE: usize = 2;
const PART_BYTES: usize = 64 * 1024;
/// For the whole of a file. upstream: the server's WriteTimeout
const FILE_TIME: Duration = Duration::from_hours(4);
/// Entries of one list.
const MAX_NAMES: usize = 20_000;
/// The beginning of a file that shows its type.
const SNIFFED_BYTES: usize = 512;
/// What Go leaves as it is in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Serves the files below one directory.
pub(super) struct SystemLogs {
    root: PathBuf,
    permits: WorkPermits,
    reads: Arc<Semaphore>,
}

/// What a path leads to.
#[derive(Debug)]
enum SystemLogEntry {
    /// An HTML list.
    List(String),
    /// The file, with its first bytes.
    File(File, Vec<u8>),
    /// The right path, relative to the one requested.
    Moved(String),
}

/// Why a path is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogEntryError {
    Missing,
    Forbidden,
}

impl SystemLogs {
    pub(super) fn new(root: PathBuf) -> Self {
        let (permits, reads) = (WorkPermits::new(FILE_PERMITS), Semaphore::new(READS_AT_ONCE));
        Self { root, permits, reads: Arc::new(reads) }
    }

    /// `path` is decoded, and relative to the directory.
    pub(super) async fn answer(&self, path: &str) -> Result<HandlerResponse, KubeletReply> {
        let permit = self.permits.try_acquire().ok_or_else(KubeletReply::too_many)?;
        let (root, wanted) = (self.root.clone(), path.to_owned());
        let place = self.reads.acquire().await;
        let found = spawn_blocking(move || look_up(&root, &wanted)).await;
        drop(place);
        let failed = |_| KubeletReply::text(500, "500 Internal Server Error\n");
        let entry = found.map_err(failed)?.map_err(|error| match error {
            LogEntryError::Missing => KubeletReply::text(404, "404 page not found\n"),
            LogEntryError::Forbidden => KubeletReply::text(403, "403 Forbidden\n"),
        })?;
        Ok(match entry {
            SystemLogEntry::List(html) => of_type(Body::whole(html), "text/html; charset=utf-8"),
            SystemLogEntry::Moved(path) => moved(&path),
            SystemLogEntry::File(file, begin) => {
                let content_type = content_type(&begin);
                let (sender, body) = Body::parts();
                // Ends with the connection, which drops the body.
                tokio::spawn(send(file, begin, sender, self.reads.clone()));
                of_type(body, content_type).within(FILE_TIME)
            }
        }
        .with_permit(permit))
    }
}

fn of_type(body: Body, content_type: &'static str) -> HandlerResponse {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    HandlerResponse::new(response)
}

pub(super) fn moved(path: &str) -> HandlerResponse {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    HandlerResponse::new(response)
}

fn look_up(root: &Path, wanted: &str) -> Result<SystemLogEntry, LogEntryError> {
    let relative = Path::new(wanted.trim_end_matches('/'));
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || wanted.contains('\0') {
        return Err(LogEntryError::Missing);
    }
    let io_error = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => LogEntryError::Missing,
        _ => LogEntryError::Forbidden,
    };
    let root = fs::canonicalize(root).map_err(|error| io_error(&error))?;
    let found = fs::canonicalize(root.join(relative)).map_err(|error| io_error(&error))?;
    let below = found.strip_prefix(&root).map_err(|_| LogEntryError::Forbidden)?;
    let forbidden = |_| LogEntryError::Forbidden;
    // Opened without symlinks: what was just resolved may have been replaced.
    let dir = OpenDir::open(&root).map_err(forbidden)?;
    let ends_in_slash = wanted.is_empty() || wanted.ends_with('/');
    if found.is_dir() {
        if !ends_in_slash {
            return Ok(SystemLogEntry::Moved(format!("{}/", last_name(wanted))));
        }
        return dir.dir(below).map(|dir| list(&dir)).map_err(forbidden)?;
    }
    if ends_in_slash {
        return Ok(SystemLogEntry::Moved(format!("../{}", last_name(wanted))));
    }
    let mut file = dir.open_regular(below, SymlinkPolicy::Refused).map_err(forbidden)?;
    let begin = read_part(&mut file, SNIFFED_BYTES).map_err(|error| io_error(&error))?;
    Ok(SystemLogEntry::File(file, begin))
}

fn last_name(path: &str) -> String {
    let path = path.trim_end_matches('/');
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    utf8_percent_encode(name, PATH).to_string()
}

/// A directory as HTML.
fn list(dir: &OpenDir) -> Result<SystemLogEntry, LogEntryError> {
    let names = dir.names(MAX_NAMES).map_err(|_| LogEntryError::Forbidden)?;
    let mut html = String::from(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n",
    );
    for name in names {
        let is_dir = dir.stat(&name).ok().flatten().is_some_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
        });
        let mut name = name.to_string_lossy().into_owned();
        if is_dir {
            name.push('/');
        }
        let link = utf8_percent_encode(&name, PATH);
        // Without it, text before a colon would be a scheme.
        let here = if name.contains(':') { "./" } else { "" };
        html.push_str(&format!("<a href=\"{here}{link}\">{}</a>\n", escaped(&name)));
    }
    html.push_str("</pre>\n");
    Ok(SystemLogEntry::List(html))
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&#34;").replace('\'', "&#39;")
}

/// upstream: net/http/sniff.go, as far as log files need it
fn content_type(begin: &[u8]) -> &'static str {
    let is_binary = |byte: &u8| matches!(byte, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if begin.starts_with(&[0x1f, 0x8b, 0x08]) {
        "application/x-gzip"
    } else if begin.iter().any(is_binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

async fn send(mut file: File, begin: Vec<u8>, sender: BodySender, reads: Arc<Semaphore>) {
    if !sender.send(begin.into()).await {
        return;
    }
    loop {
        let place = reads.acquire().await;
        let read = spawn_blocking(move || {
            let part = read_part(&mut file, PART_BYTES);
            (file, part)
        });
        let read = read.await;
        drop(place);
        match read {
            Ok((_, Ok(part))) if part.is_empty() => return,
            Ok((rest, Ok(part))) => {
                file = rest;
                if !sender.send(part.into()).await {
                    return;
                }
            }
            _ => return sender.abort().await,
        }
    }
}

fn read_part(file: &mut File, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(bytes);
    file.take(bytes as u64).read_to_end(&mut part)?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn seen(root: &Path, path: &str) -> String {
        match look_up(root, path) {
            Ok(SystemLogEntry::List(html)) => html,
            Ok(SystemLogEntry::Moved(path)) => format!("moved {path}"),
            Ok(SystemLogEntry::File(_, begin)) => String::from_utf8(begin).expect("text"),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn nothing_outside_the_directory_is_served() {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, outside) = (dir.path().join("log"), dir.path().join("secret"));
        fs::create_dir_all(root.join("pods/a b")).expect("a directory");
        fs::write(&outside, "secret").expect("a file");
        fs::write(root.join("messages"), "text").expect("a file");
        fs::write(root.join("pods/a b/0.log"), "zero").expect("a file");
        symlink(root.join("pods/a b/0.log"), root.join("absolute")).expect("a link");
        symlink("pods/a b/0.log", root.join("relative")).expect("a link");
        symlink(&outside, root.join("leak")).expect("a link");
        symlink("../secret", root.join("up")).expect("a link");
        symlink("/", root.join("top")).expect("a link");
        symlink("nowhere", root.join("dangling")).expect("a link");
        let fifo = root.join("fifo");
        let mode = rustix::fs::Mode::RUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("a FIFO");
        let table = [
            ("messages", "text"),
            ("pods/a b/0.log", "zero"),
            ("absolute", "zero"),
            ("relative", "zero"),
            ("pods", "moved pods/"),
            ("pods/a b", "moved a%20b/"),
            ("messages/", "moved ../messages"),
            ("leak", "Forbidden"),
            ("up", "Forbidden"),
            ("top/etc/passwd", "Forbidden"),
            ("fifo", "Forbidden"),
            ("dangling", "Missing"),
            ("nothing", "Missing"),
            ("messages/more", "Missing"),
            ("../secret", "Missing"),
            ("pods/../../secret", "Missing"),
            ("/etc/passwd", "Missing"),
            ("a\0b", "Missing"),
        ];
        for (path, expected) in table {
            assert_eq!(seen(&root, path), expected, "{path}");
        }
        let list = seen(&root, "");
        assert!(list.contains("<a href=\"pods/\">pods/</a>\n"), "{list}");
        assert!(list.contains("<a href=\"messages\">messages</a>\n"), "{list}");
        assert!(seen(&root, "pods/").contains("<a href=\"a%20b/\">a b/</a>\n"));
    }

    #[test]
    fn names_cannot_become_markup() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("<b>'\"&:"), "").expect("a file");
        let list = seen(dir.path(), "");
        let link = "<a href=\"./%3Cb%3E%27%22&:\">&lt;b&gt;&#39;&#34;&amp;:</a>\n";
        assert!(list.contains(link), "{list}");
    }

    #[test]
    fn the_type_follows_the_first_bytes() {
        for (begin, expected) in [
            (&b"text\n\x1b[0m\xc3\xa4"[..], "text/plain; charset=utf-8"),
            (b"", "text/plain; charset=utf-8"),
            (b"\x1f\x8b\x08\x00", "application/x-gzip"),
            (b"wtmp\x00\x01", "application/octet-stream"),
        ] {
            assert_eq!(content_type(begin), expected);
        }
    }
}
