//! What counts as left, and what a busy machine does by itself.

use std::collections::{BTreeMap, BTreeSet};

use super::Snapshot;
use super::marks::{bed_in, is_foreign_cgroup, is_ours_in_temp, is_part};

fn snapshot(things: &[(&str, &str)]) -> Snapshot {
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (kind, thing) in things {
        kinds.entry((*kind).to_owned()).or_default().insert((*thing).to_owned());
    }
    Snapshot { kinds }
}

#[test]
fn only_what_is_new_was_left() {
    let before = snapshot(&[("link", "lo"), ("mount", "/a"), ("mount", "/gone")]);
    let after = snapshot(&[("link", "lo"), ("mount", "/a"), ("mount", "/b"), ("cgroup", "/x")]);
    assert_eq!(after.beyond(&before), ["cgroup: /x", "mount: /b"]);
    assert!(before.beyond(&before).is_empty());
}

#[test]
fn beds_are_known_by_their_cgroups() {
    assert_eq!(bed_in("4:memory:/jobs/keelson-bed-1f-0/kubepods"), Some("1f-0"));
    assert_eq!(bed_in("4:memory:/jobs/keelson-bed-1f-0\n3:cpuset:/"), Some("1f-0"));
    assert_eq!(bed_in("/jobs/other"), None);
}

#[test]
fn parts_are_known_by_their_programs() {
    for program in ["containerd-shim-runc-v2", "kube-apiserver", "etcd", "keelson"] {
        assert!(is_part(program), "{program}");
    }
    for program in ["bash", "cargo", "go"] {
        assert!(!is_part(program), "{program}");
    }
}

#[test]
fn cgroups_of_others_are_not_left_by_us() {
    assert!(is_foreign_cgroup("/system.slice/cron.service", "/user.slice/a.scope"));
    assert!(is_foreign_cgroup("/jobs/b", "/jobs/a"), "a neighbour's");
    assert!(!is_foreign_cgroup("/jobs/b/keelson-bed-1-0", "/jobs/a"), "a bed, wherever");
    assert!(!is_foreign_cgroup("/kubepods.slice", "/jobs/a"));
    assert!(!is_foreign_cgroup("/default", "/jobs/a"));
    assert!(!is_foreign_cgroup("/default", "/"), "a judge at the root has no neighbours");
}

#[test]
fn temp_entries_of_others_are_not_ours() {
    assert!(is_ours_in_temp("keelson-bed-x") && is_ours_in_temp("runc-process123"));
    assert!(!is_ours_in_temp("tmp.Xyz"));
}

/// The judge sees what is there: a marker folder in the temp folder appears and goes.
#[test]
fn the_judge_sees_a_folder_come_and_go() {
    let before = Snapshot::take().expect("look");
    let folder = tempfile::Builder::new().prefix("keelson-left-").tempdir().expect("a folder");
    let path = format!("folder: {}", folder.path().display());
    assert!(Snapshot::take().expect("look").beyond(&before).contains(&path));
    drop(folder);
    assert!(!Snapshot::take().expect("look").beyond(&before).contains(&path));
}
