//! Directories in a volume on which other volumes of the same container are mounted.
//!
//! Rule: only the outermost: what is mounted deeper lies in that other volume. A mount path cannot
//! name a directory outside the volume.
//!
//! upstream: pkg/volume/util/nested_volumes.go

use std::collections::BTreeSet;

use pod_model::pod::Pod;

use crate::paths::check_path;

#[cfg(test)]
mod tests;

/// Relative to the volume.
pub fn nested_in(pod: &Pod, volume: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (_, _, container) in pod.spec.all_containers() {
        let mut paths: Vec<(String, &str)> = container
            .volume_mounts
            .iter()
            .map(|mount| (cleaned(&mount.mount_path), &*mount.name))
            .collect();
        paths.sort();
        for (own, _) in paths.iter().filter(|(_, name)| *name == volume) {
            let mut outer: Vec<&str> = Vec::new();
            for (other, _) in &paths {
                let Some(below) = beneath(other, own) else { continue };
                if outer.iter().any(|outer| beneath(other, outer).is_some()) {
                    continue;
                }
                outer.push(other);
                if check_path(below).is_ok() {
                    found.insert(below.to_owned());
                }
            }
        }
    }
    found.into_iter().collect()
}

fn beneath<'p>(path: &'p str, dir: &str) -> Option<&'p str> {
    path.strip_prefix(dir)?.strip_prefix('/').filter(|rest| !rest.is_empty())
}

fn cleaned(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.iter().map(|part| format!("/{part}")).collect()
}
