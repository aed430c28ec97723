//! Execs without their own cgroup that are killed with all their processes; descriptor limits.

use std::time::{Duration, Instant};

use pod_supervisor::ExecOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::fixture::{PodFixture, process, run};

async fn until_count(fixture: &mut PodFixture, wanted: &str) {
    let begun = Instant::now();
    loop {
        let (_, out, _) = fixture.exec("main", "ps | grep -c ' [s]leep 888$'").await;
        if out.trim() == wanted {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{out} instead of {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn killing_an_exec_without_a_timeout_kills_its_children() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("main", "while :; do sleep 1; done");
        fixture.start(spec).await;
        // A child, an orphan, one with its own session; all ignore the signals.
        let script = "trap '' TERM HUP; sleep 888 & (sleep 888 &); setsid sleep 888 & wait";
        let request = ExecOptions {
            container: "main".into(),
            exec: "tree".into(),
            process: process(script),
            ..ExecOptions::default()
        };
        fixture.client.exec(request).await.expect("an exec");
        until_count(&mut fixture, "3").await;
        fixture.client.kill_exec("main", "tree", 9, true).await.expect("killed");
        assert_eq!(fixture.exec_ended("tree").await.code, 137);
        until_count(&mut fixture, "0").await;
        let (exit, ..) = fixture.exec("main", "true").await;
        assert_eq!(exit.code, 0, "the container stays");
        fixture.shut_down().await;
    });
}

/// A server raises its own descriptor limit; pods do not inherit it.
#[test]
fn the_servers_descriptor_limit_is_not_inherited_by_pods() {
    run(async {
        let before = getrlimit(Resource::Nofile);
        let soft = before.maximum.map_or(4321, |hard| hard.min(4321) - 1);
        let low = Rlimit { current: Some(soft), maximum: before.maximum };
        setrlimit(Resource::Nofile, low).expect("lowered");
        pod_supervisor::descriptors::raise().expect("raised");
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        pod_supervisor::descriptors::raise().expect("raised again");
        let mut fixture = PodFixture::new().await;
        assert_eq!(fixture.output("limits", "ulimit -n").await, [soft.to_string()]);
        fixture.shut_down().await;
    });
}
