//! Which container a kill belongs to.

use super::ids;

#[test]
fn containers_are_found_in_the_names_that_runtimes_give_cgroups() {
    let one = "3f2a9c".repeat(10);
    let other = "0b7d51".repeat(10);
    let rows: [(String, &[&str]); 8] = [
        (format!("/kubepods/burstable/pod1b2-c3/{one}"), &[&one]),
        (format!("/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-{one}.scope"), &[&one]),
        (format!("/kubepods/pod1/{one}/docker/{other}"), &[&one, &other]),
        (format!("/kubepods/pod1/{one}/system.slice/docker-{other}.scope"), &[&one, &other]),
        // A static pod's UID is as long as an id, after a prefix.
        (format!("/kubepods/besteffort/pod{}/{one}", &other[..32]), &[&one]),
        (format!("/kubepods/pod1/{one}x"), &[]),
        ("/system.slice/ssh.service".to_owned(), &[]),
        (String::new(), &[]),
    ];
    for (cgroup, wanted) in rows {
        assert_eq!(ids(&cgroup).collect::<Vec<_>>(), wanted, "{cgroup}");
    }
}
