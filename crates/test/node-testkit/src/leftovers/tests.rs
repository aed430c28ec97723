//! What counts as a leftover, and what a busy machine does by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::ownership::{
    SearchScope, bed_in, is_foreign_cgroup, is_our_link, is_our_network_namespace, is_our_process,
    is_our_rule_set, is_ours_in_temp,
};
use super::{HostSnapshot, traces};

fn snapshot(things: &[(&str, &str)]) -> HostSnapshot {
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (kind, thing) in things {
        kinds.entry((*kind).to_owned()).or_default().insert((*thing).to_owned());
    }
    HostSnapshot { kinds }
}

#[test]
fn only_new_things_are_leftovers() {
    let before = snapshot(&[("link", "lo"), ("mount", "/a"), ("mount", "/gone")]);
    let after = snapshot(&[("link", "lo"), ("mount", "/a"), ("mount", "/b"), ("cgroup", "/x")]);
    assert_eq!(after.added_since(&before), ["cgroup: /x", "mount: /b"]);
    assert!(before.added_since(&before).is_empty());
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
        assert!(is_our_process(SearchScope::Bed, program, "0::/\n"), "{program}");
    }
    for program in ["bash", "cargo", "go"] {
        assert!(!is_our_process(SearchScope::Bed, program, "0::/\n"), "{program}");
    }
}

#[test]
fn cgroups_of_others_are_not_left_by_us() {
    assert!(is_foreign_cgroup(
        SearchScope::Bed,
        "/system.slice/cron.service",
        "/user.slice/a.scope"
    ));
    assert!(is_foreign_cgroup(SearchScope::Bed, "/jobs/b", "/jobs/a"), "a neighbour's");
    assert!(
        !is_foreign_cgroup(SearchScope::Bed, "/jobs/b/keelson-bed-1-0", "/jobs/a"),
        "a bed, wherever"
    );
    assert!(!is_foreign_cgroup(SearchScope::Bed, "/kubepods.slice", "/jobs/a"));
    assert!(!is_foreign_cgroup(SearchScope::Bed, "/default", "/jobs/a"));
    assert!(
        !is_foreign_cgroup(SearchScope::Bed, "/default", "/"),
        "a judge at the root has no neighbours"
    );
}

#[test]
fn a_process_in_a_pods_cgroup_is_a_containers() {
    assert!(is_our_process(
        SearchScope::Bed,
        "sh",
        "3:cpu:/\n2:memory:/kubepods/burstable/podx/y\n0::/\n"
    ));
    assert!(is_our_process(
        SearchScope::Bed,
        "sh",
        "0::/kubepods.slice/kubepods-podx.slice/cri-containerd-y.scope\n"
    ));
    assert!(!is_our_process(SearchScope::Bed, "sh", "2:memory:/jobs/a\n0::/user.slice\n"));
}

#[test]
fn temp_entries_of_others_are_not_ours() {
    assert!(
        is_ours_in_temp(SearchScope::Bed, "keelson-bed-x")
            && is_ours_in_temp(SearchScope::Bed, "runc-process123")
    );
    assert!(!is_ours_in_temp(SearchScope::Bed, "tmp.Xyz"));
}

fn mounts(lines: &[&str]) -> BTreeSet<String> {
    traces::mounts(&lines.join("\n").into(), (SearchScope::Bed, Path::new("/tmp")), |identity| {
        identity == "busy"
    })
}

#[test]
fn mounts_of_beds_and_parts_are_left() {
    for (line, described) in [
        (
            "40 1 0:30 / /run/containerd/io.containerd/rootfs rw shared:1 - overlay overlay rw",
            "/run/containerd/io.containerd/rootfs (overlay, overlay, /)",
        ),
        (
            "40 1 254:0 /tmp/keelson-beds/1f-0/folder /run/bed rw - ext4 /dev/vda rw",
            "/run/bed (ext4, /dev/vda, /tmp/keelson-beds/1f-0/folder)",
        ),
        (
            "40 1 0:30 / /tmp/keelson-beds/1f-0 rw - tmpfs tmpfs rw",
            "/tmp/keelson-beds/1f-0 (tmpfs, tmpfs, /)",
        ),
        (
            "40 1 0:30 / /usr rw - overlay overlay rw,lowerdir=/usr,upperdir=/run/bed/.layers/usr/upper",
            "/usr (overlay, overlay, /)",
        ),
        (
            "40 1 0:30 / /mnt rw - overlay overlay rw,lowerdir=/a:/var/lib/containerd/1/fs",
            "/mnt (overlay, overlay, /)",
        ),
        (
            "40 1 0:30 /jobs/keelson-bed-1f-0 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
            "/sys/fs/cgroup/cpu (cgroup, cgroup, /jobs/keelson-bed-1f-0)",
        ),
        (
            "40 1 0:30 / /var/lib/kubelet/pods/u/volumes/v rw - tmpfs tmpfs rw",
            "/var/lib/kubelet/pods/u/volumes/v (tmpfs, tmpfs, /)",
        ),
        (
            "40 1 0:4 net:[1] /run/netns/cni-1f rw - nsfs nsfs rw",
            "/run/netns/cni-1f (nsfs, nsfs, net:[1])",
        ),
        (
            "40 1 0:30 / /tmp/containerd-mount12 rw - tmpfs tmpfs rw",
            "/tmp/containerd-mount12 (tmpfs, tmpfs, /)",
        ),
    ] {
        assert_eq!(mounts(&[line]), BTreeSet::from([described.to_owned()]), "{line}");
    }
}

#[test]
fn mounts_of_others_are_not_left_by_us() {
    let foreign = [
        "40 1 0:30 / /tmp/fresh/tree/proc rw - proc proc rw",
        "40 1 0:30 / /tmp/fresh/tree/run rw - tmpfs tmpfs rw",
        "40 1 254:0 /home/a /srv/chroot/home rw - ext4 /dev/vda rw",
        "40 1 0:30 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A",
        "40 1 0:30 / /run/user/1000 rw - tmpfs tmpfs rw",
        "40 1 0:4 net:[1] /run/netns/blue rw - nsfs nsfs rw",
        "40 1 0:30 / /run/netns rw - tmpfs tmpfs rw",
        "40 1 0:30 / /var/lib/kubelet-backup rw - tmpfs tmpfs rw",
        "40 1 254:0 /tmp/keelson-beds/busy/folder /mnt rw - ext4 /dev/vda rw",
        "not a mount table's line",
    ];
    assert_eq!(mounts(&foreign), BTreeSet::new());
}

#[test]
fn links_are_known_by_their_names_and_bridges() {
    for (name, master) in [
        ("bed0", None),
        ("pods0", None),
        ("cni0", None),
        ("veth1a2b", None),
        ("veth1a2b", Some("cni0")),
        ("kube-ipvs0", None),
        ("keelson0", None),
        ("keel-0123abcd", None),
        ("keel5a4db0c5a4d", Some("keelson0")),
    ] {
        assert!(is_our_link(SearchScope::Bed, name, master), "{name}");
    }
    for (name, master) in [
        ("lo", None),
        ("eth0", None),
        ("docker0", None),
        ("br-12ab", None),
        ("veth1a2b", Some("docker0")),
        ("veth1a2b", Some("br-12ab")),
        ("cni-podman0", None),
        ("bedroom", None),
        ("tap0", None),
        ("bed", None),
    ] {
        assert!(!is_our_link(SearchScope::Bed, name, master), "{name} on {master:?}");
    }
}

fn our_link(name: &str) -> bool {
    is_our_link(SearchScope::Bed, name, (name == "vethdocker").then_some("docker0"))
}

#[test]
fn addresses_count_on_our_links_and_the_nodes_anywhere() {
    let text = "\
1: lo    inet 127.0.0.1/8 scope host lo\\ valid_lft forever preferred_lft forever
2: eth0    inet 10.1.2.3/24 brd 10.1.2.255 scope global dynamic eth0\\ valid_lft 80sec
2: eth0    inet 172.31.255.1/24 scope global eth0\\ valid_lft forever
3: docker0    inet 172.17.0.1/16 scope global docker0
4: pods0    inet 10.88.0.1/16 brd 10.88.255.255 scope global pods0
5: veth1a2b@if2    inet6 fe80::1/64 scope link
6: vethdocker@if2    inet6 fe80::2/64 scope link
7: wg0    inet 10.9.0.1/24 scope global wg0
";
    let expected =
        ["eth0 inet 172.31.255.1/24", "pods0 inet 10.88.0.1/16", "veth1a2b inet6 fe80::1/64"];
    assert_eq!(traces::addresses(text, our_link), expected.map(str::to_owned).into());
}

#[test]
fn network_namespaces_are_known_by_their_names() {
    assert!(
        is_our_network_namespace(SearchScope::Bed, "cni-6f1e")
            && is_our_network_namespace(SearchScope::Bed, "keelson-1")
    );
    assert!(
        !is_our_network_namespace(SearchScope::Bed, "blue")
            && !is_our_network_namespace(SearchScope::Bed, "qdhcp-1")
    );
}

#[test]
fn rules_count_by_table_chain_and_what_they_name() {
    let text = "\
table ip nat {
\tchain POSTROUTING {
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\tip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade
\t\tip saddr 10.88.0.0/16 jump CNI-1f2e comment \"name: bed\"
\t}

\tchain DOCKER {
\t\tiifname \"docker0\" return
\t}

\tchain KUBE-MARK-MASQ {
\t\tmeta mark set 0x4000
\t}
}
table inet filter {
\tset blocked {
\t\ttype ipv4_addr
\t\telements = { 10.0.0.1,
\t\t\t     10.0.0.2 }
\t}

\tchain forward {
\t\tiifname \"pods0\" accept
\t\tip daddr { 10.0.0.7, 172.31.255.1 } accept
\t\tiifname \"eth0\" accept
\t}
}
table ip cni_hostport {
\tcomment \"CNI portmap plugin\"
\tchain hostports {
\t\ttcp dport 80 dnat to 10.88.0.2:80
\t}
}
";
    let expected = [
        "table inet filter, chain forward: iifname \"pods0\" accept",
        "table inet filter, chain forward: ip daddr { 10.0.0.7, 172.31.255.1 } accept",
        "table ip cni_hostport",
        "table ip cni_hostport, chain hostports",
        "table ip cni_hostport, chain hostports: tcp dport 80 dnat to 10.88.0.2:80",
        "table ip cni_hostport: comment \"CNI portmap plugin\"",
        "table ip nat, chain KUBE-MARK-MASQ",
        "table ip nat, chain KUBE-MARK-MASQ: meta mark set 0x4000",
        "table ip nat, chain POSTROUTING: ip saddr 10.88.0.0/16 jump CNI-1f2e comment \"name: bed\"",
    ];
    assert_eq!(traces::rules(SearchScope::Bed, text, our_link), expected.map(str::to_owned).into());
    let foreign =
        "table inet firewalld {\n\tchain input {\n\t\tct state established accept\n\t}\n}\n";
    assert_eq!(traces::rules(SearchScope::Bed, foreign, our_link), BTreeSet::new());
}

/// On the host other programs have pods, parts and roots, also Keelson's; only a bed's own mark
/// counts there. Each row: the results inside a bed and on the host.
#[test]
fn on_the_machine_only_the_marks_of_beds_count() {
    let on = |rule: &dyn Fn(SearchScope) -> bool| (rule(SearchScope::Bed), rule(SearchScope::Host));
    let pod = "0::/keelson/0123abcd/kubepods/podx/y\n";
    let rows = [
        ("a pod's process", on(&|scope| is_our_process(scope, "sh", pod)), (true, false)),
        ("an agent", on(&|scope| is_our_process(scope, "keelson", "0::/\n")), (true, false)),
        ("a bed's link", on(&|scope| is_our_link(scope, "bed0", None)), (true, true)),
        ("a pod's link", on(&|scope| is_our_link(scope, "keel5a4db0c", None)), (true, false)),
        ("a bridge", on(&|scope| is_our_link(scope, "keelson0", None)), (true, false)),
        ("a namespace", on(&|scope| is_our_network_namespace(scope, "cni-1")), (true, false)),
        ("a bed's", on(&|scope| is_our_network_namespace(scope, "bed-1")), (true, true)),
        ("rules", on(&|scope| is_our_rule_set(scope, "keelson-keelson0")), (true, false)),
        ("a trial", on(&|scope| is_ours_in_temp(scope, "keelson-trial")), (true, false)),
        ("cgroups", on(&|scope| !is_foreign_cgroup(scope, "/kubepods", "/")), (true, false)),
        ("a bed's", on(&|scope| !is_foreign_cgroup(scope, "/keelson-bed-1", "/")), (true, true)),
    ];
    for (what, found, expected) in rows {
        assert_eq!(found, expected, "{what}");
    }
    let mounts = |scope, line: &str| {
        let occupied = |identity: &str| identity == "busy";
        traces::mounts(&line.to_owned().into(), (scope, Path::new("/tmp")), occupied).len()
    };
    for (line, counts) in [
        ("40 1 0:30 / /run/containerd/x rw - overlay overlay rw", 0),
        ("40 1 0:30 / /tmp/keelson-trial/state/pods/p/shm rw - tmpfs tmpfs rw", 0),
        ("40 1 0:4 net:[1] /run/netns/cni-1f rw - nsfs nsfs rw", 0),
        ("40 1 0:30 / /run/bed/x rw - tmpfs tmpfs rw", 1),
        ("40 1 0:30 / /tmp/keelson-beds/1f-0 rw - tmpfs tmpfs rw", 1),
    ] {
        assert_eq!(
            (mounts(SearchScope::Bed, line), mounts(SearchScope::Host, line)),
            (1, counts),
            "{line}"
        );
    }
}

/// The check ignores another root's agent, network namespace and link beside the tests; it reports
/// a process that still has its bed's mark, and a bed's cgroup.
#[test]
fn a_foreign_pod_is_no_leftover_and_a_beds_own_is() {
    if !rustix::process::geteuid().is_root() {
        println!("could-not-run: links and cgroups need root");
        return;
    }
    let own = std::process::id();
    let before = HostSnapshot::take().expect("look");
    let foreign = Planted::foreign(own);
    let found = HostSnapshot::take().expect("look").added_since(&before);
    let found: Vec<_> = found.iter().filter(|it| foreign.is_named_in(it)).collect();
    assert!(found.is_empty(), "a foreign pod was counted: {found:?}");
    let left = Planted::of_a_bed(own);
    let found = HostSnapshot::take().expect("look").added_since(&before);
    for kind in ["process: ", "cgroup: "] {
        let is_found = |it: &&String| it.starts_with(kind) && left.is_named_in(it);
        assert!(found.iter().any(|it| is_found(&it)), "no {kind} of {left:?} in {found:?}");
    }
}

/// Things that are removed with the test.
#[derive(Debug)]
struct Planted {
    process: std::process::Child,
    _dir: tempfile::TempDir,
    names: Vec<String>,
    undo: Vec<Vec<String>>,
    cgroup: Option<std::path::PathBuf>,
}

impl Planted {
    /// What `keelson run` of another root would have.
    fn foreign(own: u32) -> Self {
        let dir = tempfile::Builder::new().prefix("keelson-foreign-").tempdir().unwrap();
        let program = dir.path().join("keelson");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let (netns, link) = (format!("cni-foreign-{own}"), format!("keel{own}"));
        ip(&["netns", "add", &netns]);
        ip(&["link", "add", &link, "type", "bridge"]);
        let process = sleeping(&program, None);
        let undo = [["netns", "delete", &netns], ["link", "delete", &link]];
        let undo = undo.map(|words| words.map(str::to_owned).to_vec()).to_vec();
        let names =
            vec![format!("{} started", process.id()), netns, link, "keelson-foreign-".into()];
        Self { process, _dir: dir, names, undo, cgroup: None }
    }

    /// What a bed would have left behind.
    fn of_a_bed(own: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeping(Path::new("/bin/sleep"), Some("inside"));
        let hierarchies = crate::bed::mounted_hierarchies().unwrap();
        let name = format!("{}left-{own}", crate::bed::CGROUP_PREFIX);
        let cgroup = hierarchies.first().unwrap().own.join(&name);
        std::fs::create_dir(&cgroup).unwrap();
        let names = vec![format!("{} started", process.id()), name];
        Self { process, _dir: dir, names, undo: Vec::new(), cgroup: Some(cgroup) }
    }

    fn is_named_in(&self, found: &str) -> bool {
        self.names.iter().any(|name| found.contains(name))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for words in &self.undo {
            ip(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some(cgroup) = &self.cgroup {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

fn sleeping(program: &Path, role: Option<&str>) -> std::process::Child {
    let mut command = std::process::Command::new(program);
    command.arg("1000").env_remove(crate::bed::ROLE_VARIABLE);
    command.envs(role.map(|role| (crate::bed::ROLE_VARIABLE, role)));
    let process = command.spawn().unwrap();
    // `spawn` returns before the kernel shows the new program's environment.
    let environment = format!("/proc/{}/environ", process.id());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::fs::read(&environment).unwrap().is_empty() {
        assert!(std::time::Instant::now() < until, "no environment in {environment}");
        std::thread::yield_now();
    }
    process
}

fn ip(arguments: &[&str]) {
    let status = std::process::Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}
