//! Gives a volume to a group, as `fsGroup` asks (upstream: volume/volume_linux.go).
//!
//! Rule: modes only gain the group's bits; directories also get the setgid bit. No symlink is
//! followed, no mount crossed. A file that cannot be changed is skipped, as upstream does.

use std::path::Path;

use host_paths::{OpenDir, PathError, PathErrorExt as _, SymlinkPolicy, is_mount_root};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};

/// Files nested deeper than this keep their group.
const MAX_DEPTH: usize = 256;

const MAX_NAMES: usize = 1 << 20;

/// The bits that files and directories gain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupModes {
    file: u32,
    dir: u32,
}

pub(crate) const READ_WRITE_MODES: GroupModes = GroupModes { file: 0o660, dir: 0o2770 };
/// For a volume that containers cannot write to.
pub(crate) const READ_ONLY_MODES: GroupModes = GroupModes { file: 0o440, dir: 0o2550 };

pub(crate) fn give_to_group(dir: &OpenDir, group: i64, modes: GroupModes) -> Result<(), PathError> {
    let group = u32::try_from(group).ok().filter(|group| *group != u32::MAX).ok_or_else(|| {
        PathError::refused("give to a group", dir.path(), &format!("{group} is no group"))
    })?;
    walk(dir, Gid::from_raw(group), modes, 0)
}

fn walk(dir: &OpenDir, group: Gid, modes: GroupModes, depth: usize) -> Result<(), PathError> {
    for name in dir.names(MAX_NAMES)? {
        let name = Path::new(&name);
        let Some(stat) = dir.stat(name)? else { continue };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth < MAX_DEPTH => {
                if !is_mount_root(dir, name).unwrap_or(true) {
                    walk(&dir.dir(name)?, group, modes, depth + 1)?;
                }
            }
            FileType::RegularFile => {
                let _refused =
                    rustix::fs::chownat(dir, name, None, Some(group), AtFlags::SYMLINK_NOFOLLOW);
                if let Ok(file) = dir.open_regular(name, SymlinkPolicy::Refused) {
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | modes.file);
                    let _refused = rustix::fs::fchmod(&file, mode);
                }
            }
            _ => {
                let nofollow = AtFlags::SYMLINK_NOFOLLOW;
                let _refused = rustix::fs::chownat(dir, name, None, Some(group), nofollow);
            }
        }
    }
    chown_dir(dir, group, modes)
}

fn chown_dir(dir: &OpenDir, group: Gid, modes: GroupModes) -> Result<(), PathError> {
    let path = dir.path();
    // A descriptor that may be changed, not only listed.
    let opened = dir.open_below(".", OFlags::RDONLY | OFlags::DIRECTORY, SymlinkPolicy::Refused)?;
    rustix::fs::fchown(&opened, None, Some(group)).operation("give to a group", path)?;
    let mode = rustix::fs::fstat(&opened).operation("look at", path)?.st_mode & 0o7777;
    rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode | modes.dir))
        .operation("set the mode of", path)
}
