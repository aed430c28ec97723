//! Roots, mounts, masks.

use pod_supervisor::spec::{MountKind, MountSpec, OverlaySpec, Propagation};

use super::fixture::{PodFixture, run};

fn bind(source: &std::path::Path, target: &str) -> MountSpec {
    MountSpec {
        source: source.display().to_string(),
        target: target.into(),
        ..MountSpec::default()
    }
}

#[test]
fn masked_and_read_only_paths() {
    run(async {
        let mut fixture = PodFixture::new().await;
        std::fs::write(fixture.root().join("etc/secret"), "secret").expect("written");
        std::fs::create_dir(fixture.root().join("etc/folder")).expect("made");
        std::fs::write(fixture.root().join("etc/folder/secret"), "secret").expect("written");
        let script = "cat /etc/secret /proc/keys; ls /etc/folder; \
            touch /etc/folder/x 2>/dev/null || echo folder-ro; \
            echo 1 > /proc/sys/kernel/panic || echo sys-ro; \
            touch /proc/bus/x 2>/dev/null || echo bus-ro; \
            umount /etc/secret 2>/dev/null || echo stays";
        let mut spec = fixture.spec("a", script);
        spec.masked_paths.extend(["/etc/secret", "/etc/folder", "/absent"].map(str::to_owned));
        let (_, lines) = fixture.complete(spec).await;
        let text = lines.join(" ");
        for wanted in ["folder-ro", "sys-ro", "bus-ro", "stays"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
        fixture.shut_down().await;
    });
}

#[test]
fn a_read_only_root_with_writable_places() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let script = "touch /x 2>/dev/null || echo root-ro; touch /made/here/x && echo tmpfs; \
            touch /dev/x && echo dev; touch /sys/x 2>/dev/null || echo sys-ro; df -k /made/here | tail -1; pwd";
        let mut spec = fixture.spec("a", script);
        spec.root.as_mut().expect("root").read_only = true;
        spec.process.as_mut().expect("process").working_directory = "/work/dir".into();
        spec.mounts.push(MountSpec {
            kind: MountKind::Tmpfs as i32,
            target: "/made/here".into(),
            options: vec!["size=64k".into(), "mode=1777".into()],
            ..MountSpec::default()
        });
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines[..4], ["root-ro", "tmpfs", "dev", "sys-ro"]);
        assert!(lines[4].split_whitespace().any(|word| word == "64"), "{lines:?}");
        assert_eq!(lines[5], "/work/dir");
        fixture.shut_down().await;
    });
}

#[test]
fn binds_of_files_and_dirs() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let volume = fixture.dir.path().join("volume");
        std::fs::create_dir_all(volume.join("inner")).expect("made");
        std::fs::write(volume.join("file"), "content\n").expect("written");
        std::os::unix::fs::symlink(
            "/run/elsewhere/resolv.conf",
            fixture.root().join("etc/resolv.conf"),
        )
        .expect("linked");
        let script = "cat /etc/resolv.conf /deep/er/file; touch /rw/made && echo rw; \
            touch /ro/x 2>/dev/null || echo ro; cp /bin/busybox /rw/echo; /rw/echo no 2>/dev/null || echo noexec; \
            ls /sub";
        let mut spec = fixture.spec("a", script);
        spec.mounts.extend([
            bind(&volume.join("file"), "/etc/resolv.conf"),
            bind(&volume.join("file"), "/deep/er/file"),
            MountSpec { no_exec: true, ..bind(&volume, "/rw") },
            MountSpec { read_only: true, ..bind(&volume, "/ro") },
            MountSpec { sub_path: "inner".into(), ..bind(&volume, "/sub") },
        ]);
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines, ["content", "content", "rw", "ro", "noexec"]);
        assert!(volume.join("made").exists());
        for (target, wanted) in [("/etc/passwd/x", "/etc/passwd/x"), ("/bin", "/bin")] {
            let mut spec = fixture.spec("odd", "true");
            spec.mounts.push(bind(&volume.join("file"), target));
            let error = fixture.client.create(spec).await.expect_err("cannot be mounted");
            assert!(error.to_string().contains(wanted), "{error}");
        }
        fixture.shut_down().await;
    });
}

/// A directory with a mount below it, unmounted at the end.
struct MountedTree(std::path::PathBuf);

impl MountedTree {
    fn new(path: std::path::PathBuf) -> Self {
        std::fs::create_dir(&path).expect("made");
        rustix::mount::mount("none", &path, "tmpfs", rustix::mount::MountFlags::empty(), None)
            .expect("mounted");
        let shared = rustix::mount::MountPropagationFlags::SHARED;
        rustix::mount::mount_change(&path, shared).expect("shared");
        let inner = path.join("inner");
        std::fs::create_dir(&inner).expect("made");
        rustix::mount::mount("none", &inner, "tmpfs", rustix::mount::MountFlags::empty(), None)
            .expect("mounted");
        Self(path)
    }
}

impl Drop for MountedTree {
    fn drop(&mut self) {
        for _ in 0..8 {
            for name in ["late", "back", "inner", ""] {
                let path = self.0.join(name);
                let _ = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

#[test]
fn recursive_read_only_reaches_what_is_mounted_beneath() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let tree = MountedTree::new(fixture.dir.path().join("tree"));
        let script = "touch /plain/inner/x && echo inner-rw; touch /plain/x 2>/dev/null || echo top-ro; \
            touch /deep/inner/x 2>/dev/null || echo inner-ro; ls /alone/inner; touch /alone/inner/y && echo alone";
        let mut spec = fixture.spec("a", script);
        spec.mounts.extend([
            MountSpec { read_only: true, ..bind(&tree.0, "/plain") },
            MountSpec { read_only: true, recursive_read_only: true, ..bind(&tree.0, "/deep") },
            MountSpec { not_recursive: true, ..bind(&tree.0, "/alone") },
        ]);
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines, ["inner-rw", "top-ro", "inner-ro", "alone"]);
        fixture.shut_down().await;
    });
}

#[test]
fn mounts_propagate_as_specified() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let tree = MountedTree::new(fixture.dir.path().join("tree"));
        for name in ["late", "back"] {
            std::fs::create_dir(tree.0.join(name)).expect("made");
        }
        let spread = |target: &str, how: Propagation| MountSpec {
            propagation: how as i32,
            ..bind(&tree.0, target)
        };
        let script = "touch /ready; while [ ! -e /slave/late/mounted ]; do sleep 0.02; done; echo slave; \
            [ -e /private/late/mounted ] || echo private; \
            mount -t tmpfs none /shared/back && touch /shared/back/ours && echo shared; sleep 1000";
        let mut spec = fixture.spec("a", script);
        let all = (1 << 21) | super::fixture::DEFAULT_CAPABILITIES;
        spec.security.as_mut().expect("security").capabilities =
            Some(super::fixture::capabilities(all));
        spec.mounts.extend([
            spread("/private", Propagation::Private),
            spread("/slave", Propagation::Slave),
            spread("/shared", Propagation::Shared),
        ]);
        fixture.start(spec).await;
        while !fixture.root().join("ready").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let late = tree.0.join("late");
        rustix::mount::mount("none", &late, "tmpfs", rustix::mount::MountFlags::empty(), None)
            .expect("mounted");
        std::fs::write(late.join("mounted"), "").expect("written");
        while fixture.lines("a").len() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(fixture.lines("a"), ["slave", "private", "shared"]);
        assert!(tree.0.join("back/ours").exists(), "the container's mount is seen on the machine");
        fixture.shut_down().await;
    });
}

#[test]
fn an_overlay_for_one_container() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let layers = fixture.dir.path().join("layers");
        for name in ["top/fs", "top/work"] {
            std::fs::create_dir_all(layers.join(name)).expect("made");
        }
        let script = "echo new > /etc/passwd; cat /etc/passwd; rm /bin/yes; grep -c ' / / ' /proc/self/mountinfo";
        let mut spec = fixture.spec("a", script);
        spec.root.as_mut().expect("root").overlay = Some(OverlaySpec {
            lower: vec![fixture.root().display().to_string()],
            upper: layers.join("top/fs").display().to_string(),
            work: layers.join("top/work").display().to_string(),
            options: vec!["index=off".into()],
        });
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines, ["new", "1"], "only one root is mounted");
        assert!(
            fixture.root().join("bin/yes").symlink_metadata().is_ok(),
            "the layer below is as it was"
        );
        assert!(layers.join("top/fs/etc/passwd").exists());
        fixture.shut_down().await;
    });
}

#[test]
fn a_container_sees_its_own_cgroups() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let script = "ls /sys/fs/cgroup | tr '\\n' ' '; echo; f=/sys/fs/cgroup/memory/cgroup.procs; \
            [ -e $f ] || f=/sys/fs/cgroup/cgroup.procs; wc -l < $f; (echo 1 > $f) 2>/dev/null || echo ro";
        let lines = fixture.output("a", script).await;
        let text = lines.join("\n");
        assert!(text.ends_with("ro"), "{text}");
        let count: u32 = lines[1].parse().expect("a number");
        assert!(count <= 3, "only the container's own processes: {text}");
        fixture.shut_down().await;
    });
}
