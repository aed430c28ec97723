//! Files that survive the supervisor: each container's state and the inputs of its execs.
//!
//! Rule: a file is replaced atomically before any client learns of the change; one with an exit is
//! synced by then. Other records may be lost in a power cut, which ends their containers too. Ids
//! are checked to be plain before they become file names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use prost::Message;

use crate::protocol::{ContainerPhase, ContainerState, ExitRecord};

#[cfg(test)]
mod tests;

/// Version of the files.
pub(crate) const VERSION: u32 = 1;
/// A state is a few hundred bytes; a filter a few thousand.
const MAX_RECORD_SIZE: u64 = 4 * 1024 * 1024;

pub(crate) fn dir(pod: &Path) -> PathBuf {
    pod.join("containers")
}

pub(super) fn prepare(pod: &Path) -> io::Result<()> {
    fs::create_dir_all(dir(pod))
}

/// Letters, digits, `-`, `_` and inner `.`: safe as a file name.
pub(super) fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !id.is_empty() && id.len() <= 128 && !id.starts_with('.') && id.bytes().all(plain)
}

fn path(pod: &Path, id: &str, what: &str) -> PathBuf {
    dir(pod).join(format!("{id}.{what}"))
}

fn replace(path: &Path, bytes: &[u8], durably: bool) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    if durably {
        file.sync_all()?;
    }
    fs::rename(&new, path)?;
    match path.parent() {
        Some(dir) if durably => File::open(dir)?.sync_all(),
        _ => Ok(()),
    }
}

pub(super) fn write_state(pod: &Path, state: &ContainerState) -> io::Result<()> {
    let record = ExitRecord { version: VERSION, state: Some(state.clone()) };
    let ended = state.phase() == ContainerPhase::Exited;
    replace(&path(pod, &state.id, "state"), &record.encode_to_vec(), ended)
}

pub(super) fn write_security(pod: &Path, id: &str, security: &impl Message) -> io::Result<()> {
    replace(&path(pod, id, "security"), &security.encode_to_vec(), false)
}

pub(super) fn read_security<M: Message + Default>(pod: &Path, id: &str) -> io::Result<M> {
    read(&path(pod, id, "security"))
}

fn read<M: Message + Default>(path: &Path) -> io::Result<M> {
    let odd = |what: String| io::Error::other(format!("{}: {what}", path.display()));
    let length = fs::metadata(path)?.len();
    if length > MAX_RECORD_SIZE {
        return Err(odd(format!("{length} bytes; {MAX_RECORD_SIZE} is the most")));
    }
    M::decode(fs::read(path)?.as_slice()).map_err(|error| odd(error.to_string()))
}

pub(super) fn forget(pod: &Path, id: &str) {
    for what in ["state", "security"] {
        let _ = fs::remove_file(path(pod, id, what));
    }
}

/// Every recorded state; an unreadable file is an error in the list.
pub(crate) fn read_states(pod: &Path) -> io::Result<Vec<io::Result<ContainerState>>> {
    let mut states = Vec::new();
    let entries = match fs::read_dir(dir(pod)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(states),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "state") {
            let record: io::Result<ExitRecord> = read(&path);
            states.push(record.and_then(|record| {
                record.state.ok_or_else(|| io::Error::other(format!("{} is empty", path.display())))
            }));
        }
    }
    Ok(states)
}
