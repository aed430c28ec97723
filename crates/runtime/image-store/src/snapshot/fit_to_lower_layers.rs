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

use crate::error::{Error, PathContext as _, Result};
use crate::tree::{Tree, TreePath};
use crate::unpack::{UnpackRights, Unpacked};

/// More moves than symlinks of real images cause.
const MAX_MOVES: usize = 1000;

/// `lowers`: the layers below, the topmost first.
pub(crate) fn fit_to_lower_layers(
    tree: &mut Tree,
    unpacked: &Unpacked,
    lowers: &[Tree],
    rights: UnpackRights,
) -> Result<()> {
    for path in &unpacked.whiteouts {
        let mut hides = false;
        for lower in lowers {
            hides |= lower.stat(path)?.is_some();
        }
        if !hides {
            remove_keeping_times(tree, path)?;
        }
    }
    let mut waiting: VecDeque<TreePath> = unpacked.implied.iter().cloned().collect();
    let mut moves = 0;
    while let Some(path) = waiting.pop_front() {
        let Some((lower, stat)) = nearest(lowers, &path)? else {
            create_default_dir(tree, &path)?;
            continue;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => copy(tree, &path, &stat, rights)?,
            FileType::Symlink => {
                let target = lower.link_target(&path).map(|target| path.follow(&target));
                let target = target.filter(|led| !led.parts().starts_with(path.parts()));
                let Some(target) = target else { continue };
                moves += 1;
                if moves > MAX_MOVES {
                    return Err(Error::archive(
                        format!("path {:?}", path.relative()),
                        "leads through too many links of the layers below",
                    ));
                }
                tree.merge(&path, &target)?;
                waiting.extend(tree.take_implied_dirs());
            }
            _ => create_default_dir(tree, &path)?,
        }
    }
    Ok(())
}

fn nearest<'a>(lowers: &'a [Tree], path: &TreePath) -> Result<Option<(&'a Tree, Stat)>> {
    for lower in lowers {
        if let Some(stat) = lower.stat_without_links(path)? {
            return Ok(Some((lower, stat)));
        }
    }
    Ok(None)
}

fn copy(tree: &Tree, path: &TreePath, stat: &Stat, rights: UnpackRights) -> Result<()> {
    let Some(dir) = tree.open_dir(path)? else { return Ok(()) };
    let place = tree.at(path);
    if rights.owners {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        fchown(&dir, Some(user), Some(group)).doing("owner of", &place)?;
    }
    fchmod(&dir, Mode::from_raw_mode(stat.st_mode & 0o7777)).doing("mode of", &place)?;
    futimens(&dir, &times(stat)).doing("time of", &place)
}

/// A directory without an entry in any layer: mode 0755 and time 0.
fn create_default_dir(tree: &Tree, path: &TreePath) -> Result<()> {
    let Some(dir) = tree.open_dir(path)? else { return Ok(()) };
    let place = tree.at(path);
    fchmod(&dir, Mode::from_raw_mode(0o755)).doing("mode of", &place)?;
    let epoch = Timespec { tv_sec: 0, tv_nsec: 0 };
    let times = Timestamps { last_access: epoch, last_modification: epoch };
    futimens(&dir, &times).doing("time of", &place)
}

/// Removes a whiteout and restores its directory's time.
fn remove_keeping_times(tree: &mut Tree, path: &TreePath) -> Result<()> {
    if tree.stat(path)?.is_none() {
        return Ok(());
    }
    let place = tree.at(path);
    let dir = tree.open_dir(&path.parent())?;
    let before = match &dir {
        Some(dir) => Some(fstat(dir).doing("looking at", &place)?),
        None => None,
    };
    tree.clear(path)?;
    if let (Some(dir), Some(stat)) = (dir, before) {
        futimens(&dir, &times(&stat)).doing("time of", &place)?;
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
