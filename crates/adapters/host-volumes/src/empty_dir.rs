//! emptyDir: on disk, in memory, on huge pages (upstream: volume/emptydir).
//!
//! Rule: a volume that was set up is left as it is, whatever containers have done to it since; a
//! set-up that was interrupted is completed.

use std::path::{Path, PathBuf};

use host_paths::{
    OpenDir, PathError, PathErrorExt as _, SymlinkPolicy, WriteDurability, is_mount_root,
    write_whole,
};
use ports::pod_host::VolumeOwnership;
use rustix::fs::Mode;

use crate::layout::{EMPTY_DIR_PLUGIN, PodDirPath, check_dir_name, if_exists};
use crate::mounting::{NewFileSystem, file_system, mount_new};
use crate::ownership::{READ_WRITE_MODES, give_to_group};
use crate::step_error::StepError;

#[cfg(test)]
mod tests;

const TMPFS: u32 = 0x0102_1994;
const HUGETLBFS: u32 = 0x9584_58f6;

/// The file system that the directory is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Medium {
    Disk,
    Memory { size: Option<u64> },
    HugePages { page_size: String },
}

pub(crate) fn set_up(
    pod: &PodDirPath,
    name: &str,
    medium: &Medium,
    ownership: &VolumeOwnership,
) -> Result<PathBuf, StepError> {
    check_dir_name(name, &pod.path)?;
    let dir = pod.make()?;
    let volumes = dir.make_dir(format!("volumes/{EMPTY_DIR_PLUGIN}"), 0o755)?;
    let path = volumes.path_of(name);
    if is_ready(&dir, name) && is_there(&volumes, name, medium)? {
        return Ok(path);
    }
    let volume = volumes.make_dir(name, 0o777)?;
    let mounted = is_mount_root(&volumes, Path::new(name)).operation("look at", &path)?;
    match medium {
        Medium::Disk => {
            rustix::fs::fchmod(&volume, Mode::from_raw_mode(0o777)).operation("open", &path)?;
        }
        Medium::Memory { size } => {
            if !(mounted && kind_of(&volume)? == TMPFS) {
                mount_memory(&volume, *size)?;
            }
        }
        Medium::HugePages { page_size } => mount_huge_pages(&volume, mounted, page_size)?,
    }
    // The mount hides the directory that was opened before.
    let volume = volumes.dir(name)?;
    if let Some(group) = ownership.group {
        give_to_group(&volume, group, READ_WRITE_MODES)?;
    }
    set_ready(&dir, name)?;
    Ok(path)
}

fn kind_of(dir: &OpenDir) -> Result<u32, PathError> {
    // The magic numbers have 32 bits whatever the field's width.
    Ok((file_system(dir)?.f_type & 0xffff_ffff) as u32)
}

/// Whether a volume that was set up still is.
fn is_there(volumes: &OpenDir, name: &str, medium: &Medium) -> Result<bool, PathError> {
    let Some(volume) = if_exists(volumes.dir(name))? else { return Ok(false) };
    if *medium == Medium::Disk {
        return Ok(true);
    }
    // After a reboot the mount is gone and the ready mark is not.
    let path = volumes.path_of(name);
    let mounted = is_mount_root(volumes, Path::new(name)).operation("look at", &path)?;
    Ok(matches!(medium, Medium::Memory { .. }) && mounted && kind_of(&volume)? == TMPFS)
}

/// Whether an open directory is on a tmpfs.
pub(crate) fn is_memory_mount(dir: &OpenDir) -> Result<bool, PathError> {
    Ok(kind_of(dir)? == TMPFS)
}

pub(crate) fn mount_memory(volume: &OpenDir, size: Option<u64>) -> Result<(), PathError> {
    let options: Vec<(&str, String)> =
        size.filter(|size| *size > 0).map(|size| ("size", size.to_string())).into_iter().collect();
    let new = NewFileSystem {
        kind: "tmpfs",
        source: "tmpfs",
        options: &options,
        // Keeps secrets out of swap; kernels before 6.4 do not have it.
        optional_flag: Some("noswap"),
    };
    mount_new(&new, volume)
}

fn mount_huge_pages(volume: &OpenDir, mounted: bool, page_size: &str) -> Result<(), StepError> {
    let path = volume.path().display();
    let wanted = bytes(page_size).ok_or_else(|| {
        StepError::permanent(format!("{path}: {page_size:?} is no size of huge pages"))
    })?;
    if mounted && kind_of(volume)? == HUGETLBFS {
        let block_size = u64::try_from(file_system(volume)?.f_bsize).unwrap_or_default();
        if block_size != wanted {
            return Err(StepError::permanent(format!(
                "mounted dir {path} pagesize '{block_size}' and requested medium size '{wanted}' differ"
            )));
        }
        return Ok(());
    }
    let new = NewFileSystem {
        kind: "hugetlbfs",
        source: "nodev",
        options: &[("pagesize", wanted.to_string())],
        optional_flag: None,
    };
    Ok(mount_new(&new, volume)?)
}

/// A size as the API or the kernel writes it: `2Mi`, `2MB`, `1Gi`, `2097152`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "Ki" | "KB" | "kB" | "K" => 10,
        "Mi" | "MB" | "M" => 20,
        "Gi" | "GB" | "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|size| *size > 0)
}

fn ready_marker_dir(name: &str) -> String {
    format!("plugins/{EMPTY_DIR_PLUGIN}/{name}")
}

fn is_ready(pod: &OpenDir, name: &str) -> bool {
    pod.open_regular(format!("{}/ready", ready_marker_dir(name)), SymlinkPolicy::Refused).is_ok()
}

fn set_ready(pod: &OpenDir, name: &str) -> Result<(), PathError> {
    let marker_dir = pod.make_dir(ready_marker_dir(name), 0o750)?;
    write_whole(&marker_dir, "ready", b"", 0o644, WriteDurability::Atomic)
}
