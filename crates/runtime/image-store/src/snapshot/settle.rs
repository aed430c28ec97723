//! Fits a separately unpacked layer to the layers below it.
//!
//! A layer may contain `usr/bin/x` without an entry for `usr`. The directory created for it would
//! hide that of the layers below: its owner and mode are copied from there. Where a lower layer has
//! a symlink at such a path, the layer's files are moved to the link's target. Whiteouts of files
//! that no lower layer has are removed, because overlayfs would show them in directories that it
//! does not merge.

use std::collections::VecDeque;

use rustix::fs::{
    FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, fchmod, fchown, fstat, futimens,
};

use crate::error::{Doing as _, Error, Result};
use crate::tree::{Tree, TreePath};
use crate::unpack::{Rights, Unpacked};

/// More moves than symlinks of real images cause.
const MOST_MOVES: usize = 1000;

/// `lowers`: the layers below, the topmost first.
pub(crate) fn settle(
    tree: &mut Tree,
    unpacked: &Unpacked,
    lowers: &[Tree],
    rights: Rights,
) -> Result<()> {
    for path in &unpacked.whiteouts {
        let mut hides = false;
        for lower in lowers {
            hides |= lower.look(path)?.is_some();
        }
        if !hides {
            remove_quietly(tree, path)?;
        }
    }
    let mut waiting: VecDeque<TreePath> = unpacked.implied.iter().cloned().collect();
    let mut moves = 0;
    while let Some(path) = waiting.pop_front() {
        let Some((lower, stat)) = nearest(lowers, &path)? else {
            plain(tree, &path)?;
            continue;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => copy(tree, &path, &stat, rights)?,
            FileType::Symlink => {
                let target = lower.link_target(&path).map(|target| path.follow(&target));
                let target = target.filter(|led| !led.parts().starts_with(path.parts()));
                let Some(target) = target else { continue };
                moves += 1;
                if moves > MOST_MOVES {
                    return Err(Error::archive(
                        format!("path {:?}", path.relative()),
                        "leads through too many links of the layers below",
                    ));
                }
                tree.merge(&path, &target)?;
                waiting.extend(tree.take_implied());
            }
            _ => plain(tree, &path)?,
        }
    }
    Ok(())
}

fn nearest<'a>(lowers: &'a [Tree], path: &TreePath) -> Result<Option<(&'a Tree, Stat)>> {
    for lower in lowers {
        if let Some(stat) = lower.look_plain(path)? {
            return Ok(Some((lower, stat)));
        }
    }
    Ok(None)
}

fn copy(tree: &Tree, path: &TreePath, stat: &Stat, rights: Rights) -> Result<()> {
    let Some(folder) = tree.open_folder(path)? else { return Ok(()) };
    let place = tree.at(path);
    if rights.owners {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        fchown(&folder, Some(user), Some(group)).doing("owner of", &place)?;
    }
    fchmod(&folder, Mode::from_raw_mode(stat.st_mode & 0o7777)).doing("mode of", &place)?;
    futimens(&folder, &times(stat)).doing("time of", &place)
}

/// A directory without an entry in any layer: mode 0755 and time 0.
fn plain(tree: &Tree, path: &TreePath) -> Result<()> {
    let Some(folder) = tree.open_folder(path)? else { return Ok(()) };
    let place = tree.at(path);
    fchmod(&folder, Mode::from_raw_mode(0o755)).doing("mode of", &place)?;
    let epoch = Timespec { tv_sec: 0, tv_nsec: 0 };
    let times = Timestamps { last_access: epoch, last_modification: epoch };
    futimens(&folder, &times).doing("time of", &place)
}

/// Removes a whiteout and restores its directory's time.
fn remove_quietly(tree: &mut Tree, path: &TreePath) -> Result<()> {
    if tree.look(path)?.is_none() {
        return Ok(());
    }
    let place = tree.at(path);
    let folder = tree.open_folder(&path.parent())?;
    let before = match &folder {
        Some(folder) => Some(fstat(folder).doing("looking at", &place)?),
        None => None,
    };
    tree.clear(path)?;
    if let (Some(folder), Some(stat)) = (folder, before) {
        futimens(&folder, &times(&stat)).doing("time of", &place)?;
    }
    Ok(())
}

pub(crate) fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}
