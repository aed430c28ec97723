//! Hooks of devices: host programs run for a container that is being created.

use std::path::Path;

use pod_supervisor::spec::{ContainerSpec, HookSpec, NamespaceMode};

use super::fixture::{PodFixture, run};

fn hook(script: &str) -> HookSpec {
    HookSpec {
        point: "createContainer".to_owned(),
        path: "/bin/sh".to_owned(),
        arguments: ["sh", "-c", script].map(str::to_owned).into(),
        environment: vec!["PATH=/usr/bin:/bin".to_owned()],
        timeout: 10,
    }
}

fn with_hooks(fixture: &PodFixture, mut spec: ContainerSpec, scripts: &[&str]) -> ContainerSpec {
    let bundle = fixture.root().parent().unwrap_or(Path::new("/")).join("bundle");
    std::fs::create_dir_all(bundle.join("rootfs")).expect("made");
    spec.bundle = bundle.display().to_string();
    spec.hooks = scripts.iter().map(|script| hook(script)).collect();
    spec
}

#[test]
fn hooks_see_the_mounted_root_and_the_hosts_files() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture
            .spec("a", "readlink /made; cat /note; ls -d /old-root /bundle 2>/dev/null; echo end");
        let first = "cat > state; ln -s /bin/target rootfs/made; \
            [ -c rootfs/dev/null ] && [ -d rootfs/proc/self ] && echo mounted > rootfs/note; \
            [ -e /etc/passwd ] && echo machine >> rootfs/note";
        // In the container's namespaces, as its first process has them.
        let second = "readlink /proc/self/ns/net >> rootfs/note";
        let spec = with_hooks(&fixture, spec, &[first, second]);
        let bundle = spec.bundle.clone();
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines[..3], ["/bin/target", "mounted", "machine"], "{lines:?}");
        let own = std::fs::read_link("/proc/self/ns/net").expect("read").display().to_string();
        assert!(lines[3].starts_with("net:[") && lines[3] != own, "{lines:?}");
        assert_eq!(lines[4..], ["end"]);
        let state = std::fs::read_to_string(format!("{bundle}/state")).expect("read");
        assert!(state.contains(r#""id":"a","status":"creating","pid":1,"#), "{state}");
        let left = std::fs::read_dir(format!("{bundle}/rootfs")).expect("read").count();
        assert_eq!(left, 0, "the root is mounted where nobody else sees it");
        fixture.shut_down().await;
    });
}

#[test]
fn hooks_run_in_a_shared_pid_namespace() {
    run(async {
        let pod = pod_supervisor::spec::PodSpec {
            pid: NamespaceMode::Pod as i32,
            ..super::fixture::pod()
        };
        let mut fixture = PodFixture::with(pod).await;
        let mut spec = fixture.spec("a", "cat /note; [ -d /proc/self ] && echo proc");
        spec.namespaces.as_mut().expect("namespaces").pid = NamespaceMode::Pod as i32;
        let spec = with_hooks(&fixture, spec, &["echo noted > rootfs/note"]);
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines, ["noted", "proc"]);
        fixture.shut_down().await;
    });
}

#[test]
fn a_failing_hook_fails_the_container() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("a", "echo never");
        let spec = with_hooks(
            &fixture,
            spec,
            &["echo first >&2; echo no card >&2; exit 4", "touch never"],
        );
        let bundle = spec.bundle.clone();
        let refused = fixture.client.create(spec).await.expect_err("refused").to_string();
        for word in ["createContainer hook /bin/sh", "exit status: 4", ": no card"] {
            assert!(refused.contains(word), "{refused}");
        }
        assert!(!Path::new(&bundle).join("never").exists());
        let spec = fixture.spec("a", "echo never");
        let mut spec = with_hooks(&fixture, spec, &["true"]);
        spec.hooks[0].point = "poststop".to_owned();
        let refused = fixture.client.create(spec).await.expect_err("refused").to_string();
        assert!(refused.contains("poststop hooks are not run"), "{refused}");
        // The name is free again.
        let spec = fixture.spec("a", "echo ran");
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines, ["ran"]);
        fixture.shut_down().await;
    });
}
