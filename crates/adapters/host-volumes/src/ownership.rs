//! Gives a volume to a group, as `fsGroup` asks (upstream: volume/volume_linux.go).
//!
//! Rule: modes only gain the group's bits; directories also get the setgid bit. No symlink is
//! followed, no mount crossed. A file that cannot be changed is skipped, as upstream does.

use std::path::Path;

use host_paths::{Doing as _, Folder, Links, Trouble, is_mount_root};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};

/// Files nested deeper than this keep their group.
const DEEPEST: usize = 256;

const MOST_NAMES: usize = 1 << 20;

const FILE_RIGHTS: u32 = 0o660;
const FOLDER_RIGHTS: u32 = 0o2770;

pub(crate) fn give_to_group(folder: &Folder, group: i64) -> Result<(), Trouble> {
    let group = u32::try_from(group).ok().filter(|group| *group != u32::MAX).ok_or_else(|| {
        Trouble::refused("give to a group", folder.path(), &format!("{group} is no group"))
    })?;
    walk(folder, Gid::from_raw(group), 0)
}

fn walk(folder: &Folder, group: Gid, depth: usize) -> Result<(), Trouble> {
    for name in folder.names(MOST_NAMES)? {
        let name = Path::new(&name);
        let Some(stat) = folder.look(name)? else { continue };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth < DEEPEST => {
                if !is_mount_root(folder, name).unwrap_or(true) {
                    walk(&folder.folder(name)?, group, depth + 1)?;
                }
            }
            FileType::RegularFile => {
                let _refused =
                    rustix::fs::chownat(folder, name, None, Some(group), AtFlags::SYMLINK_NOFOLLOW);
                if let Ok(file) = folder.regular(name, Links::Refused) {
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | FILE_RIGHTS);
                    let _refused = rustix::fs::fchmod(&file, mode);
                }
            }
            _ => {
                let nofollow = AtFlags::SYMLINK_NOFOLLOW;
                let _refused = rustix::fs::chownat(folder, name, None, Some(group), nofollow);
            }
        }
    }
    own_folder(folder, group)
}

fn own_folder(folder: &Folder, group: Gid) -> Result<(), Trouble> {
    let path = folder.path();
    // A descriptor that may be changed, not only listed.
    let opened = folder.open_below(".", OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)?;
    rustix::fs::fchown(&opened, None, Some(group)).doing("give to a group", path)?;
    let mode = rustix::fs::fstat(&opened).doing("look at", path)?.st_mode & 0o7777;
    rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode | FOLDER_RIGHTS))
        .doing("set the mode of", path)
}
