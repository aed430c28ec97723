//! Which error is reported as what, and when.

use super::*;
use ports::runtime_objects::SandboxRecord;

fn told(call: &'static str, sandbox: Option<bool>, turn: Turn) -> Option<String> {
    let failure = LookFailure { why: "why".to_owned(), call };
    let pod = sandbox.map(|ready| ObservedPod {
        sandboxes: vec![SandboxRecord { ready, ..SandboxRecord::default() }].into(),
        ..ObservedPod::default()
    });
    let event = event(&failure, pod.as_ref(), turn)?;
    assert_eq!((event.kind, event.field_path), (EventKind::Warning, None));
    Some(format!("{}: {}", event.reason, event.message))
}

/// The call that failed, whether a sandbox was known and ready, and the event at each stage.
type Row<'a> = (&'static str, Option<bool>, [Option<&'a str>; 4]);

#[test]
fn a_new_sandbox_is_told_at_once_and_the_rest_when_it_lasts() {
    let status = Some("FailedPodSandBoxStatus: Unable to get pod sandbox status: why");
    let sync = Some("FailedSync: error determining status: why");
    let rows: [Row<'_>; 6] = [
        // No ready sandbox was known: this one is new.
        ("PodSandboxStatus", None, [status, None, None, status]),
        ("PodSandboxStatus", Some(false), [status, None, None, status]),
        // A ready sandbox was known: the pod is as it was, and cannot be read.
        ("PodSandboxStatus", Some(true), [None, sync, None, sync]),
        ("ContainerStatus", None, [None, sync, None, sync]),
        ("ContainerStatus", Some(true), [None, sync, None, sync]),
        ("", Some(true), [None, sync, None, sync]),
    ];
    for (call, sandbox, expected) in rows {
        let turns = [Turn::First, Turn::Second, Turn::Early, Turn::Slow];
        let got = turns.map(|turn| told(call, sandbox, turn));
        assert_eq!(got, expected.map(|text| text.map(str::to_owned)), "{call} {sandbox:?}");
    }
}
