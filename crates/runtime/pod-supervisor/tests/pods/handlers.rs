//! Containers of an OCI runtime that misbehaves. For real runtimes see `cri_behaviour`,
//! `handlers_behave`.

use std::os::unix::fs::PermissionsExt as _;

use pod_supervisor::spec::{ContainerSpec, HandlerSpec, NamespaceMode};

use super::fixture::{PodFixture, run};

/// A minimal OCI runtime: a container is a process that sleeps. While a file `stuck` exists beside
/// it, it deletes nothing.
const SCRIPT: &str = r#"#!/bin/sh
place=$(dirname "$0")
while [ $# -gt 0 ]; do
    case "$1" in
        create | start | kill | delete) command=$1 ;;
        --pid-file) pid_file=$2; shift ;;
        --log) log=$2; shift ;;
    esac
    shift
done
case "$command" in
    create) sleep 1000 & echo $! > "$pid_file" ;;
    delete)
        echo deleted >> "$place/asked"
        if [ -e "$place/stuck" ]; then
            echo '{"level":"error","msg":"it cannot be deleted"}' > "$log"
            exit 1
        fi ;;
esac
"#;

fn spec_with_handler(fixture: &PodFixture, id: &str) -> ContainerSpec {
    let program = fixture.dir.path().join("oci-runtime");
    std::fs::write(&program, SCRIPT).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("runnable");
    let handler = HandlerSpec { program: program.display().to_string(), ..HandlerSpec::default() };
    let mut spec = ContainerSpec { handler: Some(handler), ..fixture.spec(id, "") };
    spec.namespaces.as_mut().expect("namespaces").user = NamespaceMode::Node as i32;
    spec
}

#[test]
fn shutdown_reports_a_container_that_cannot_be_deleted_and_succeeds_later() {
    run(async {
        let mut fixture = PodFixture::new().await;
        fixture.start(spec_with_handler(&fixture, "a")).await;
        let stuck = fixture.dir.path().join("stuck");
        std::fs::write(&stuck, "").expect("written");
        for _ in 0..2 {
            let refused = fixture.client.shutdown().await.expect_err("it is stuck").to_string();
            assert!(refused.contains("it cannot be deleted"), "{refused}");
        }
        let known = fixture.client.list().await.expect("the supervisor is there");
        assert_eq!(known.containers.len(), 1, "{known:?}");
        std::fs::remove_file(&stuck).expect("removed");
        fixture.shut_down().await;
        let asked = std::fs::read_to_string(fixture.dir.path().join("asked")).expect("asked");
        assert_eq!(asked, "deleted\n".repeat(3));
    });
}
