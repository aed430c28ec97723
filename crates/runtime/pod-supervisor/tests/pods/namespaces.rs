//! Each mode of sharing namespaces.

use std::collections::BTreeMap;

use pod_supervisor::spec::{IdMappings, IdRange, NamespaceMode, PodSpec};

use super::fixture::{PodFixture, pod, run};

fn own_namespace(name: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{name}")).expect("a link").display().to_string()
}

const SHOW: &str = "for n in net ipc uts pid mnt user; do readlink /proc/self/ns/$n; done";

#[test]
fn a_pods_containers_share_network_ipc_and_name() {
    run(async {
        let mut fixture = PodFixture::new().await;
        // Both at once: the inode numbers of removed namespaces are reused.
        let spec = fixture.spec("a", &format!("{SHOW}; sleep 1000"));
        fixture.start(spec).await;
        let b = fixture.output("b", SHOW).await;
        while fixture.lines("a").len() < b.len() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let a = fixture.lines("a");
        assert_eq!(a[..3], b[..3], "net, ipc, uts are the pod's");
        assert_ne!(a[3], b[3], "pid is the container's");
        assert_ne!(a[4], b[4], "mnt is the container's");
        for (line, name) in a.iter().zip(["net", "ipc", "uts", "pid", "mnt"]) {
            assert_ne!(*line, own_namespace(name), "{name} is not the machine's");
        }
        assert_eq!(a[5], own_namespace("user"));
        let lines = fixture.output("c", "ip -o link; ip -o addr show lo").await.join("\n");
        assert!(lines.contains("127.0.0.1") && lines.contains("UP"), "{lines}");
        fixture.shut_down().await;
    });
}

#[test]
fn a_pod_can_have_the_machines_namespaces() {
    run(async {
        let node = NamespaceMode::Node as i32;
        let spec = PodSpec { network: node, ipc: node, pid: node, uts: node, ..pod() };
        let mut fixture = PodFixture::with(spec).await;
        let mut container = fixture.spec("a", &format!("{SHOW}; [ $$ -gt 1 ] && echo not-first"));
        let namespaces = container.namespaces.as_mut().expect("namespaces");
        (namespaces.network, namespaces.ipc, namespaces.pid, namespaces.uts) =
            (node, node, node, node);
        let (_, lines) = fixture.complete(container).await;
        for (line, name) in lines.iter().zip(["net", "ipc", "uts", "pid"]) {
            assert_eq!(*line, own_namespace(name), "{name}");
        }
        assert_ne!(lines[4], own_namespace("mnt"));
        assert_eq!(lines[6], "not-first");
        fixture.shut_down().await;
    });
}

#[test]
fn processes_left_in_the_hosts_pid_namespace_are_killed_with_the_container() {
    run(async {
        let node = NamespaceMode::Node as i32;
        let mut fixture = PodFixture::with(PodSpec { pid: node, ..pod() }).await;
        let mut container =
            fixture.spec("a", "setsid sh -c 'sleep 888; sleep 888' & sleep 0.1; exit 6");
        container.namespaces.as_mut().expect("namespaces").pid = node;
        let (exit, _) = fixture.complete(container).await;
        assert_eq!(exit.code, 6);
        let group = fixture.group.child("a").expect("a path");
        for _ in 0..200 {
            if group.processes_beneath().expect("listed").is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let left = group.processes_beneath().expect("listed");
        assert!(left.is_empty(), "orphans are left: {left:?}");
        fixture.shut_down().await;
    });
}

#[test]
fn containers_can_share_one_pid_namespace() {
    run(async {
        let mut fixture =
            PodFixture::with(PodSpec { pid: NamespaceMode::Pod as i32, ..pod() }).await;
        let shared = |fixture: &PodFixture, id: &str, script: &str| {
            let mut spec = fixture.spec(id, script);
            spec.namespaces.as_mut().expect("namespaces").pid = NamespaceMode::Pod as i32;
            spec
        };
        let spec = shared(&fixture, "a", "sleep 999; sleep 999");
        fixture.start(spec).await;
        // PID 1 is the pod's init: no accessible root, no capabilities, no open files.
        let script = "ps | grep -v grep | grep -q 'sleep 999' && echo sees; cat /proc/1/comm; \
            grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' /proc/1/status; \
            (cd /proc/1; ls root/ 2>&1 | head -1); ls /proc/1/fd 2>&1 | head -1; \
            (setsid sh -c 'sleep 0.1' &); sleep 0.3; ps -o stat | grep -c Z || true";
        let spec = shared(&fixture, "b", script);
        let (exit, lines) = fixture.complete(spec).await;
        let text = lines.join("\n");
        assert_eq!(lines[0], "sees", "{text}");
        assert!(text.contains("Uid:\t65535\t65535") && text.contains("NoNewPrivs:\t1"), "{text}");
        assert!(text.contains("CapEff:\t0000000000000000"), "{text}");
        assert!(text.contains("root/: Permission denied") || text.contains("can't open"), "{text}");
        assert_eq!(lines.last().map(String::as_str), Some("0"), "zombies are left: {text}");
        assert_eq!(exit.code, 0);
        // The exit of one container does not end the others.
        let state = fixture.client.list().await.expect("listed");
        assert!(state.init_pid > 0);
        let (exit, ..) = fixture.exec("a", "true").await;
        assert_eq!(exit.code, 0);
        fixture.shut_down().await;
    });
}

#[test]
fn a_container_can_join_anothers_pid_namespace() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("target", "sleep 996");
        fixture.start(spec).await;
        let mut spec =
            fixture.spec("debug", "cat /proc/1/cmdline | tr '\\0' ' '; echo; sleep 0.1 & exit 2");
        let namespaces = spec.namespaces.as_mut().expect("namespaces");
        namespaces.pid = NamespaceMode::Target as i32;
        namespaces.pid_target = "target".into();
        let (exit, lines) = fixture.complete(spec).await;
        assert!(lines[0].starts_with("sleep 996"), "{lines:?}");
        assert_eq!(exit.code, 2);
        let mut spec = fixture.spec("lost", "true");
        let namespaces = spec.namespaces.as_mut().expect("namespaces");
        namespaces.pid = NamespaceMode::Target as i32;
        namespaces.pid_target = "absent".into();
        assert!(fixture.client.create(spec).await.is_err());
        fixture.shut_down().await;
    });
}

#[test]
fn sysctls_are_the_pods_own() {
    run(async {
        let before =
            std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("read");
        let sysctls = BTreeMap::from([
            ("net.ipv4.ip_local_port_range".to_owned(), "1024\t2048".to_owned()),
            ("kernel.shm_rmid_forced".to_owned(), "1".to_owned()),
        ]);
        let mut fixture = PodFixture::with(PodSpec { sysctls, ..pod() }).await;
        let script = "cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced";
        assert_eq!(fixture.output("a", script).await, ["1024\t2048", "1"]);
        let now = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("read");
        assert_eq!(before, now, "the machine's is as it was");
        fixture.shut_down().await;
        for (name, pod) in [
            ("kernel.core_pattern", pod()),
            ("net.ipv4.ip_forward", PodSpec { network: NamespaceMode::Node as i32, ..pod() }),
        ] {
            let fixture = PodFixture::bare().await;
            let sysctls = BTreeMap::from([(name.to_owned(), "1".to_owned())]);
            let error =
                fixture.client.create_pod(PodSpec { sysctls, ..pod }).await.expect_err("refused");
            assert!(error.to_string().contains(name), "{error}");
        }
    });
}

#[test]
fn the_network_namespace_can_be_pinned_to_a_path() {
    run(async {
        let mut fixture = PodFixture::with(PodSpec { network_pin: "PIN".into(), ..pod() }).await;
        let pin = fixture.dir.path().join("net");
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
        assert!(table.contains(pin.to_str().expect("text")), "it is mounted");
        let inside = fixture.output("a", "readlink /proc/self/ns/net").await;
        let number = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&pin).expect("there"));
        assert_eq!(inside, [format!("net:[{number}]")]);
        let names: Vec<String> = fixture
            .client
            .namespaces()
            .await
            .expect("namespaces")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["net", "ipc", "uts"]);
        fixture.shut_down().await;
        assert!(!pin.exists());
    });
}

pub(crate) fn mappings() -> IdMappings {
    let ranges = vec![IdRange { inside: 0, outside: 200_000, count: 65_536 }];
    IdMappings { users: ranges.clone(), groups: ranges }
}

#[test]
fn a_user_namespace_maps_root_to_an_unprivileged_id() {
    run(async {
        let mut fixture =
            PodFixture::with(PodSpec { user_namespace: Some(mappings()), ..pod() }).await;
        let volume = fixture.dir.path().join("volume");
        std::fs::create_dir(&volume).expect("made");
        std::fs::write(volume.join("theirs"), "x").expect("written");
        std::os::unix::fs::chown(volume.join("theirs"), Some(7), Some(8)).expect("given");
        let script = "cat /proc/self/uid_map | tr -s ' '; id -u; touch /made /vol/made; \
            stat -c '%u:%g %n' /vol/theirs /vol/made /made /bin/busybox; readlink /proc/self/ns/user; \
            echo 1 > /proc/sys/kernel/panic || echo kept; cat /dev/null && echo null; ls -ld /proc/kcore | cut -c1; \
            mount -t tmpfs none /tmp 2>/dev/null || echo no-mount; sleep 1000";
        let mut spec = fixture.spec("a", script);
        spec.root.as_mut().expect("root").map_ids = true;
        spec.mounts.push(pod_supervisor::spec::MountSpec {
            source: volume.display().to_string(),
            target: "/vol".into(),
            map_ids: true,
            ..Default::default()
        });
        let state = fixture.start(spec).await;
        for _ in 0..500 {
            if fixture.lines("a").last().is_some_and(|line| line == "no-mount") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let lines = fixture.lines("a");
        assert_eq!(lines[0].trim(), "0 200000 65536", "{lines:?}");
        assert_eq!(lines[1], "0");
        assert_eq!(
            lines[2..6],
            ["7:8 /vol/theirs", "0:0 /vol/made", "0:0 /made", "0:0 /bin/busybox"]
        );
        assert_ne!(lines[6], own_namespace("user"));
        assert!(lines[7..].iter().any(|line| line == "kept"), "{lines:?}");
        assert!(lines[7..].iter().any(|line| line == "null"), "{lines:?}");
        // On the host its user is another one, and files it creates in the volume have the ids of
        // the namespace.
        let owner = |path: &std::path::Path| {
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).expect("there"))
        };
        assert_eq!(owner(&volume.join("made")), 0);
        assert_eq!(owner(std::path::Path::new(&format!("/proc/{}", state.pid))), 200_000);
        // An exec is in the same user namespace.
        let (exit, out, err) = fixture
            .exec("a", "readlink /proc/self/ns/user; id -u; cat /proc/self/uid_map | tr -s ' '")
            .await;
        assert_eq!(exit.code, 0, "{err}");
        assert_eq!(out, format!("{}\n0\n 0 200000 65536\n", lines[6]));
        fixture.shut_down().await;
    });
}

#[test]
fn an_overlay_in_a_user_namespace() {
    run(async {
        let mut fixture =
            PodFixture::with(PodSpec { user_namespace: Some(mappings()), ..pod() }).await;
        let layers = fixture.dir.path().join("layers");
        for name in ["extra", "top/fs", "top/work"] {
            std::fs::create_dir_all(layers.join(name)).expect("made");
        }
        std::fs::write(layers.join("extra/file"), "lower").expect("written");
        let text = |name: &str| layers.join(name).display().to_string();
        let script = "cat /file; echo upper > /file; stat -c %u:%g /file; cat /file; grep -c ' / / ' /proc/self/mountinfo";
        let mut spec = fixture.spec("a", script);
        let root = spec.root.as_mut().expect("root");
        root.map_ids = true;
        root.overlay = Some(pod_supervisor::spec::OverlaySpec {
            lower: vec![text("extra"), fixture.root().display().to_string()],
            upper: text("top/fs"),
            work: text("top/work"),
            options: Vec::new(),
        });
        let (exit, lines) = fixture.complete(spec).await;
        assert_eq!(exit.code, 0, "{lines:?}");
        assert_eq!(lines, ["lower0:0", "upper", "1"]);
        assert_eq!(std::fs::read_to_string(layers.join("top/fs/file")).expect("there"), "upper\n");
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
        assert!(!table.contains("layers"), "the machine's mounts are as they were");
        fixture.shut_down().await;
    });
}
