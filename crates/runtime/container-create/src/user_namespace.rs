//! User namespaces: created, given their id ranges, and held by a descriptor.
//!
//! Rule: the host's root writes the ranges from outside; a namespace without ranges is never handed
//! out. Does not choose ranges.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::error::{CreateError, During, Result};
use crate::process_files::ProcessFiles;
use crate::spec::{IdMappings, IdRange};
use crate::system::{ForkSide, NEW_USER, exit_now, fork, unshare};

/// The kernel's format: `inside outside count` per line.
pub(crate) fn map_text(ranges: &[IdRange]) -> String {
    ranges.iter().map(|one| format!("{} {} {}\n", one.inside, one.outside, one.count)).collect()
}

pub(crate) fn check(mappings: &IdMappings) -> Result<()> {
    for (what, ranges) in [("users", &mappings.users), ("groups", &mappings.groups)] {
        if ranges.is_empty() || ranges.iter().any(|range| range.count == 0) {
            return Err(CreateError::invalid_spec(format!(
                "the user namespace has no {what}, or an empty range"
            )));
        }
        if ranges.iter().any(|range| range.outside.checked_add(range.count).is_none()) {
            return Err(CreateError::invalid_spec(format!(
                "a range of the user namespace's {what} is too long"
            )));
        }
    }
    Ok(())
}

pub(crate) fn write_maps(process: &ProcessFiles, pid: u32, mappings: &IdMappings) -> Result<()> {
    process.write(&format!("{pid}/uid_map"), &map_text(&mappings.users))?;
    process.write(&format!("{pid}/gid_map"), &map_text(&mappings.groups))
}

/// The host's id for an id inside.
pub(crate) fn outside(ranges: &[IdRange], id: u32) -> Option<u32> {
    ranges
        .iter()
        .find(|range| id >= range.inside && id - range.inside < range.count)
        .and_then(|range| range.outside.checked_add(id - range.inside))
}

/// A user namespace with these ranges, which lives as long as the descriptor. Runs as the host's
/// root in a process with one thread.
pub(crate) fn holding(mappings: &IdMappings) -> Result<OwnedFd> {
    check(mappings)?;
    let (mut ours, mut theirs) = UnixStream::pair().during("making a socket pair")?;
    let pid = match fork().during("starting a process for a user namespace")? {
        ForkSide::Child => {
            drop(ours);
            let code = u8::from(unshare(NEW_USER).is_err());
            let _ = theirs.write_all(&[code]);
            // Until the other side has opened the namespace.
            let _ = theirs.read(&mut [0]);
            exit_now(0)
        }
        ForkSide::Parent { pid } => u32::try_from(pid).unwrap_or_default(),
    };
    drop(theirs);
    let outcome = (|| {
        let mut code = [1];
        ours.read_exact(&mut code).during("waiting for a user namespace")?;
        if code != [0] {
            return Err(CreateError::other("this machine does not let us make a user namespace"));
        }
        let process = ProcessFiles::open()?;
        write_maps(&process, pid, mappings)?;
        process.namespace(pid, "user")
    })();
    drop(ours);
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
    outcome
}
