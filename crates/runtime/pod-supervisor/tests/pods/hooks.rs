//! Hooks of devices: host programs run for a container that is being created.

use std::path::Path;

use pod_supervisor::spec::{ContainerSpec, HookSpec, NamespaceMode};

use super::bed::{Bed, run};

fn hook(script: &str) -> HookSpec {
    HookSpec {
        point: "createContainer".to_owned(),
        path: "/bin/sh".to_owned(),
        arguments: ["sh", "-c", script].map(str::to_owned).into(),
        environment: vec!["PATH=/usr/bin:/bin".to_owned()],
        timeout: 10,
    }
}

fn with_hooks(bed: &Bed, mut spec: ContainerSpec, scripts: &[&str]) -> ContainerSpec {
    let bundle = bed.root().parent().unwrap_or(Path::new("/")).join("bundle");
    std::fs::create_dir_all(bundle.join("rootfs")).expect("made");
    spec.bundle = bundle.display().to_string();
    spec.hooks = scripts.iter().map(|script| hook(script)).collect();
    spec
}

#[test]
fn hooks_find_the_root_with_everything_mounted_and_the_machines_files() {
    run(async {
        let mut bed = Bed::new().await;
        let spec = bed
            .spec("a", "readlink /made; cat /note; ls -d /old-root /bundle 2>/dev/null; echo end");
        let first = "cat > state; ln -s /bin/target rootfs/made; \
            [ -c rootfs/dev/null ] && [ -d rootfs/proc/self ] && echo mounted > rootfs/note; \
            [ -e /etc/passwd ] && echo machine >> rootfs/note";
        // In the container's namespaces, as its first process has them.
        let second = "readlink /proc/self/ns/net >> rootfs/note";
        let spec = with_hooks(&bed, spec, &[first, second]);
        let bundle = spec.bundle.clone();
        let (_, lines) = bed.complete(spec).await;
        assert_eq!(lines[..3], ["/bin/target", "mounted", "machine"], "{lines:?}");
        let own = std::fs::read_link("/proc/self/ns/net").expect("read").display().to_string();
        assert!(lines[3].starts_with("net:[") && lines[3] != own, "{lines:?}");
        assert_eq!(lines[4..], ["end"]);
        let state = std::fs::read_to_string(format!("{bundle}/state")).expect("read");
        assert!(state.contains(r#""id":"a","status":"creating","pid":1,"#), "{state}");
        let left = std::fs::read_dir(format!("{bundle}/rootfs")).expect("read").count();
        assert_eq!(left, 0, "the root is mounted where nobody else sees it");
        bed.shut_down().await;
    });
}

#[test]
fn hooks_run_where_processes_are_shared() {
    run(async {
        let pod =
            pod_supervisor::spec::PodSpec { pid: NamespaceMode::Pod as i32, ..super::bed::pod() };
        let mut bed = Bed::with(pod).await;
        let mut spec = bed.spec("a", "cat /note; [ -d /proc/self ] && echo proc");
        spec.namespaces.as_mut().expect("namespaces").pid = NamespaceMode::Pod as i32;
        let spec = with_hooks(&bed, spec, &["echo noted > rootfs/note"]);
        let (_, lines) = bed.complete(spec).await;
        assert_eq!(lines, ["noted", "proc"]);
        bed.shut_down().await;
    });
}

#[test]
fn a_hook_that_fails_is_the_end_of_it() {
    run(async {
        let mut bed = Bed::new().await;
        let spec = bed.spec("a", "echo never");
        let spec =
            with_hooks(&bed, spec, &["echo first >&2; echo no card >&2; exit 4", "touch never"]);
        let bundle = spec.bundle.clone();
        let refused = bed.client.create(spec).await.expect_err("refused").to_string();
        for word in ["createContainer hook /bin/sh", "exit status: 4", ": no card"] {
            assert!(refused.contains(word), "{refused}");
        }
        assert!(!Path::new(&bundle).join("never").exists());
        let spec = bed.spec("a", "echo never");
        let mut spec = with_hooks(&bed, spec, &["true"]);
        spec.hooks[0].point = "poststop".to_owned();
        let refused = bed.client.create(spec).await.expect_err("refused").to_string();
        assert!(refused.contains("poststop hooks are not run"), "{refused}");
        // The name is free again.
        let spec = bed.spec("a", "echo ran");
        let (_, lines) = bed.complete(spec).await;
        assert_eq!(lines, ["ran"]);
        bed.shut_down().await;
    });
}
