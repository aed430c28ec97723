//! Two agents on one machine, with claims in a temporary directory.

use super::*;

#[test]
fn two_agents_have_no_cgroup_and_no_log_directory_in_common() {
    let temp_dir = tempfile::tempdir().unwrap();
    let claims = temp_dir.path().join("claims");
    let (one, two) = (temp_dir.path().join("one"), temp_dir.path().join("two"));
    let claim = |root: &Path, cgroup, pod_logs: &str, pid| {
        let names = AgentNames { root, cgroup, pod_logs: Path::new(pod_logs) };
        acquire(&claims, &names, pid)
    };
    let first = claim(&one, Some("/kubepods"), "/logs", 11).unwrap();
    let refused = claim(&two, Some("kubepods"), "/other", 12).unwrap_err().to_string();
    assert!(
        refused.starts_with("the cgroup kubepods belongs to the root ")
            && refused.ends_with("one (pid 11); stop its agent, or choose another cgroup root"),
        "{refused}"
    );
    let refused = claim(&two, Some("/two/kubepods"), "/logs", 12).unwrap_err().to_string();
    assert!(refused.starts_with("the directory /logs belongs to the root "), "{refused}");
    let _second = claim(&two, Some("/two/kubepods"), "/other", 12).unwrap();
    // The claim ends with its process, and the next one adopts its pods.
    drop(first);
    claim(&temp_dir.path().join("three"), Some("/kubepods"), "/logs", 13).unwrap();
}
