//! Execs without their own cgroup that are killed with all their processes; descriptor limits.

use std::time::{Duration, Instant};

use pod_supervisor::ExecRequest;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::bed::{Bed, process, run};

async fn until_count(bed: &mut Bed, wanted: &str) {
    let begun = Instant::now();
    loop {
        let (_, out, _) = bed.exec("main", "ps | grep -c ' [s]leep 888$'").await;
        if out.trim() == wanted {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{out} instead of {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn an_exec_without_a_deadline_is_killed_with_all_it_started() {
    run(async {
        let mut bed = Bed::new().await;
        let spec = bed.spec("main", "while :; do sleep 1; done");
        bed.start(spec).await;
        // A child, an orphan, one with its own session; all ignore the signals.
        let script = "trap '' TERM HUP; sleep 888 & (sleep 888 &); setsid sleep 888 & wait";
        let request = ExecRequest {
            container: "main".into(),
            exec: "tree".into(),
            process: process(script),
            ..ExecRequest::default()
        };
        bed.client.exec(request).await.expect("an exec");
        until_count(&mut bed, "3").await;
        bed.client.kill_exec("main", "tree", 9, true).await.expect("killed");
        assert_eq!(bed.exec_ended("tree").await.code, 137);
        until_count(&mut bed, "0").await;
        let (exit, ..) = bed.exec("main", "true").await;
        assert_eq!(exit.code, 0, "the container stays");
        bed.shut_down().await;
    });
}

/// A server raises its own descriptor limit; pods do not inherit it.
#[test]
fn the_servers_limit_of_descriptors_is_not_the_pods() {
    run(async {
        let before = getrlimit(Resource::Nofile);
        let soft = before.maximum.map_or(4321, |hard| hard.min(4321) - 1);
        let low = Rlimit { current: Some(soft), maximum: before.maximum };
        setrlimit(Resource::Nofile, low).expect("lowered");
        pod_supervisor::descriptors::raise().expect("raised");
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        pod_supervisor::descriptors::raise().expect("raised again");
        let mut bed = Bed::new().await;
        assert_eq!(bed.output("limits", "ulimit -n").await, [soft.to_string()]);
        bed.shut_down().await;
    });
}
