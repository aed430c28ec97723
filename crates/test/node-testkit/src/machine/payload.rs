//! Packs a payload into a read-only disk for the virtual machine.
//!
//! Rule: nothing is created under a path on the host. Files are collected on a tmpfs in a mount
//! namespace that ends with the packing process, and the disk is an unnamed file that lives as long
//! as its descriptor.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;

use super::Payload;
use super::boot::kill_with_caller;
use super::recipe::search_path;

/// Arguments: the disk, the directory (or nothing), then pairs of target and source; the script is
/// read from standard input when SCRIPT is set.
const PACK: &str = r#"
set -eu
mount -t tmpfs -o mode=0755 tmpfs /mnt
mkdir /mnt/tree
disk=$1 dir=$2
shift 2
if [ -n "$dir" ]; then cp -R -P -p "$dir/." /mnt/tree/; fi
while [ "$#" -gt 0 ]; do
    mkdir -p "$(dirname "/mnt/tree/$1")"
    cp -R -L -p "$2" "/mnt/tree/$1"
    shift 2
done
if [ -n "${SCRIPT:-}" ]; then cat > /mnt/tree/run; chmod 0755 /mnt/tree/run; fi
if [ ! -x /mnt/tree/run ]; then echo "the payload has no executable file run" >&2; exit 1; fi
# Room for the tree, for the inodes, and for small files that take a block each.
size=$(($(du -sm /mnt/tree | cut -f 1) * 11 / 10 + 32))
truncate -s "${size}M" "$disk"
mkfs.ext4 -q -F -L payload -O ^has_journal -d /mnt/tree "$disk"
"#;

/// The payload as an ext4 image in an unnamed file.
pub(super) fn pack(payload: &Payload) -> Result<File> {
    let disk = tempfile::tempfile().context("a file for the payload's disk")?;
    let mut arguments: Vec<OsString> = vec![
        fd_path(&disk).into(),
        payload.dir.as_ref().map(|dir| dir.as_os_str().to_owned()).unwrap_or_default(),
    ];
    for (target, source) in &payload.files {
        ensure!(
            is_plain(target),
            "payload path {}: expected a relative path without '..'",
            target.display()
        );
        ensure!(source.exists(), "payload file {} does not exist", source.display());
        arguments.extend([target.as_os_str().to_owned(), source.as_os_str().to_owned()]);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["sh", "-c", PACK, "pack"])
        .args(arguments)
        .env("PATH", search_path())
        .env("SCRIPT", if payload.script.is_some() { "yes" } else { "" })
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut packer = kill_with_caller(&mut command).spawn().context("start unshare")?;
    if let Some(mut input) = packer.stdin.take() {
        // A packer that failed early reads nothing; its stderr is the better error.
        let _ = input.write_all(payload.script.as_deref().unwrap_or_default().as_bytes());
    }
    let output = packer.wait_with_output().context("wait for the payload's packing")?;
    ensure!(
        output.status.success(),
        "pack the payload: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(disk)
}

/// A path by which a child of this process can open an unnamed file.
pub(super) fn fd_path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

pub(super) fn is_plain(path: &Path) -> bool {
    !path.as_os_str().is_empty()
        && path.components().all(|component| matches!(component, Component::Normal(_)))
}
