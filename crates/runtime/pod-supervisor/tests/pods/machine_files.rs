//! The inodes that a container can write to or change are never the host's.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use pod_supervisor::ExecOptions;
use pod_supervisor::spec::{ContainerSpec, DeviceNode, PodSpec};

use super::fixture::{PodFixture, pod, process, run};
use super::namespaces::mappings;

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The host's devices, restored at the end: a failing test would leave every program on the host
/// without its null device.
struct HostDevices(Vec<(String, std::fs::Metadata)>);

impl HostDevices {
    fn snapshot() -> Self {
        let paths = DEVICES.map(|name| format!("/dev/{name}"));
        Self(paths.map(|path| (path.clone(), std::fs::metadata(path).expect("there"))).into())
    }

    fn assert_unchanged(&self) {
        for (path, before) in &self.0 {
            let now = std::fs::metadata(path).expect("there");
            let of = |one: &std::fs::Metadata| {
                (one.mode(), one.uid(), one.gid(), one.mtime(), one.mtime_nsec(), one.ino())
            };
            assert_eq!(of(&now), of(before), "{path} of the machine was changed");
        }
    }

    /// As `stat -c %d:%i` prints it.
    fn inodes(&self) -> Vec<String> {
        self.0.iter().map(|(_, of)| format!("{}:{}", of.dev(), of.ino())).collect()
    }
}

impl Drop for HostDevices {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            let _ = std::os::unix::fs::chown(path, Some(before.uid()), Some(before.gid()));
            let mode = std::fs::Permissions::from_mode(before.mode() & 0o7777);
            let _ = std::fs::set_permissions(path, mode);
        }
    }
}

/// Prints the inode of each file and changes what it can.
const CHANGE: &str = "for f in /proc/keys /proc/timer_list /proc/kcore /proc/self/fd/0 \
    /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/given; do \
    [ -e $f ] || continue; echo node $f $(stat -L -c %d:%i $f); \
    touch -h -d 2001-01-01 $f; touch -d 2001-01-01 $f; touch $f; \
    chown 1000:1000 $f; chmod 640 $f; done 2>/dev/null; true";

/// The null device still works for every process, by every path.
const USE: &str =
    "cat /proc/keys /proc/self/fd/0 < /dev/null | wc -c; echo gone > /proc/keys && echo written";

async fn change_everything(fixture: &mut PodFixture, spec: ContainerSpec) {
    let devices = HostDevices::snapshot();
    let id = spec.id.clone();
    let (exit, lines) = fixture.complete(spec).await;
    assert_eq!(exit.code, 0, "{lines:?}");
    devices.assert_unchanged();
    let nodes: Vec<&String> = lines.iter().filter(|line| line.starts_with("node ")).collect();
    assert!(nodes.len() >= 8, "{lines:?}");
    for inode in devices.inodes() {
        let of_machine = nodes.iter().find(|line| line.ends_with(&format!(" {inode}")));
        assert_eq!(of_machine, None, "{id} has an inode of the machine");
    }
    assert_eq!(lines.last().map(String::as_str), Some("written"), "{lines:?}");
    assert_eq!(lines[lines.len() - 2], "0", "{lines:?}");
}

/// A mask or a standard input that is the host's `/dev/null` gives root in the container control of
/// its mode and owner.
#[test]
fn a_default_container_changes_no_device_of_the_machine() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("a", &format!("{USE}; {CHANGE}; {USE}"));
        change_everything(&mut fixture, spec).await;
        // Masks without our `/dev`.
        let mut spec = fixture.spec("b", &format!("{CHANGE}; {USE}").replace("< /dev/null", ""));
        spec.mounts.retain(|mount| !mount.target.starts_with("/dev"));
        let devices = HostDevices::snapshot();
        let (_, lines) = fixture.complete(spec).await;
        devices.assert_unchanged();
        assert_eq!(lines.last().map(String::as_str), Some("written"), "{lines:?}");
        fixture.shut_down().await;
    });
}

/// In a user namespace it could only set times to the present, as any process with write permission
/// can.
#[test]
fn a_user_namespace_changes_no_device_of_the_machine() {
    run(async {
        let mut fixture =
            PodFixture::with(PodSpec { user_namespace: Some(mappings()), ..pod() }).await;
        let script = format!(
            "{USE}; stat -c '%a %u %n' /dev/null /dev/given; head -c1 /dev/given | wc -c; {CHANGE}; {USE}"
        );
        let mut spec = fixture.spec("a", &script);
        spec.root.as_mut().expect("root").map_ids = true;
        spec.devices = vec![DeviceNode {
            path: "/dev/given".into(),
            source: "/dev/zero".into(),
            kind: "c".into(),
            major: 1,
            minor: 5,
            ..DeviceNode::default()
        }];
        change_everything(&mut fixture, spec).await;
        let lines = fixture.lines("a");
        // A node of the container belongs to its root; a given device stays as on the host.
        assert_eq!(lines[2..5], ["666 0 /dev/null", "666 65534 /dev/given", "1"], "{lines:?}");
        fixture.shut_down().await;
    });
}

/// `runc exec` passes the host's device here as well.
#[test]
fn a_command_without_streams_changes_no_device_of_the_machine() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("main", "sleep 1000");
        fixture.start(spec).await;
        let devices = HostDevices::snapshot();
        let script = "cat <&0 > /tmp/input; echo gone > /dev/stdout && echo gone >&2 \
            && echo written > /tmp/said; exec 3>&1; for f in 0 2 3; do f=/proc/self/fd/$f; \
            readlink $f >> /tmp/said; stat -L -c 'node %d:%i' $f >> /tmp/said; \
            touch $f; chown 1000 $f; chmod 0 $f; done";
        let request = ExecOptions {
            container: "main".into(),
            exec: "silent".into(),
            process: process(script),
            ..ExecOptions::default()
        };
        fixture.client.exec(request).await.expect("an exec");
        fixture.exec_ended("silent").await;
        devices.assert_unchanged();
        let read = |name: &str| std::fs::read_to_string(fixture.root().join(name)).expect("read");
        assert_eq!(read("tmp/input"), "");
        let output = read("tmp/said");
        assert!(output.starts_with("written\n/dev/null\nnode "), "{output}");
        assert_eq!(output.matches("/dev/null\nnode ").count(), 3, "{output}");
        for inode in devices.inodes() {
            assert!(!output.contains(&format!("node {inode}\n")), "{output}");
        }
        // The next exec finds it unchanged.
        let (exit, out, err) = fixture.exec("main", "cat <&0; stat -L -c %a /proc/self/fd/0").await;
        assert_eq!((exit.code, out.as_str()), (0, "666\n"), "{err}");
        fixture.shut_down().await;
    });
}

/// The supervisor is protected from OOM kills; its containers must not inherit that score.
#[test]
fn a_container_inherits_no_score_of_its_supervisor() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let score = format!("/proc/{}/oom_score_adj", fixture.supervisor);
        // Raised, because the host may not let us lower it.
        std::fs::write(&score, "300").expect("raised");
        let script = "cat /proc/self/oom_score_adj; sleep 1000";
        let spec = fixture.spec("a", script);
        fixture.start(spec).await;
        while fixture.lines("a").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(fixture.lines("a"), ["0"]);
        let (_, out, _) = fixture.exec("a", "cat /proc/self/oom_score_adj").await;
        assert_eq!(out, "0\n");
        fixture.shut_down().await;
    });
}
