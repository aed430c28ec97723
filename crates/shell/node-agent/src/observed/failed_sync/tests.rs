//! Which error is reported as what, and when.

use super::*;
use ports::runtime_objects::SandboxRecord;

fn event_reason(call: &'static str, sandbox: Option<bool>, stage: FailureStage) -> Option<String> {
    let failure = RelistError { why: "why".to_owned(), call };
    let pod = sandbox.map(|ready| ObservedPod {
        sandboxes: vec![SandboxRecord { ready, ..SandboxRecord::default() }].into(),
        ..ObservedPod::default()
    });
    let event = event(&failure, pod.as_ref(), stage)?;
    assert_eq!((event.kind, event.field_path), (EventType::Warning, None));
    Some(format!("{}: {}", event.reason, event.message))
}

/// The call that failed, whether a sandbox was known and ready, and the event at each stage.
type Row<'a> = (&'static str, Option<bool>, [Option<&'a str>; 4]);

#[test]
fn a_failed_new_sandbox_is_reported_at_once_and_other_failures_when_they_last() {
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
        let stages =
            [FailureStage::First, FailureStage::Second, FailureStage::Early, FailureStage::Slow];
        let got = stages.map(|stage| event_reason(call, sandbox, stage));
        assert_eq!(got, expected.map(|text| text.map(str::to_owned)), "{call} {sandbox:?}");
    }
}
