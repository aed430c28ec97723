//! States of containers.

use crate::testing::{PlanCaseRow, check};

const STATES_AND_LAST_STATES: &[PlanCaseRow] = &[
    (
        "not made yet",
        "pod: Always app:a\nseen: s0",
        "a: waiting ContainerCreating r0\na.last: none",
    ),
    (
        "not made yet, with init containers",
        "pod: Always init:i app:a\nseen: s0",
        "a: waiting PodInitializing r0\ni: waiting PodInitializing r0",
    ),
    ("made", "pod: Always app:a\nseen: s0; a#0 created", "a: waiting r0"),
    (
        "runs",
        "pod: Always app:a\nseen: s0; a#3 running",
        "a: running r3 started ready\na.last: none",
    ),
    (
        "runs, and its postStart hook too",
        "pod: Always app:a(post,live)\nseen: s0; a#0 running made=0\nmemory: flight -1 start a 0",
        "a: waiting ContainerCreating r0\nprobes:\nphase: Pending\nwhy: container a is being started",
    ),
    (
        "runs again, and its postStart hook too",
        "pod: Always app:a(post)\nseen: s0; a#0 exited 3; a#1 running made=0\nmemory: flight -1 start a 1",
        "a: ended 3 Error r0",
    ),
    (
        "runs without a hook while its start is in flight",
        "pod: Always app:a\nseen: s0; a#0 running made=0\nmemory: flight -1 start a 0",
        "a: running r0 started ready",
    ),
    (
        "exited with a message",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 1 said=no_such_file; b#0 running",
        "a: ended 1 Error no such file r0",
    ),
    (
        "the runtime's word and the container's",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 1 runtime=it_fell said=no_such_file; b#0 running",
        "a: ended 1 Error it fell: no such file r0",
    ),
    (
        "the one before",
        "pod: Always app:a\nseen: s0; a#0 exited 1; a#1 running",
        "a: running r1 started ready\na.last: ended 1 Error",
    ),
    (
        "only the one before, not the one before that",
        "pod: Always app:a\nseen: s0; a#0 exited 1; a#1 exited 2; a#2 running",
        "a.last: ended 2 Error",
    ),
    (
        "the one before is remembered",
        "pod: Always app:a\nseen: s0; a#1 running\nmemory: was a exited 0 9",
        "a: running r1 started ready\na.last: ended 9 Error last words",
    ),
    (
        "and the one before that",
        "pod: Always app:a\nseen: s0; a#1 running\nmemory: was a running 1; before a 0 9",
        "a.last: ended 9 Error last words",
    ),
    (
        "the same container is not its own last state",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 9; b#0 running\nmemory: was a exited 0 9",
        "a: ended 9 Error last words r0\na.last: none",
    ),
    (
        "last words stay when their file is gone",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 9; b#0 running\nmemory: was a exited 0 9",
        "a: ended 9 Error last words r0",
    ),
    (
        "last words are those of one container",
        "pod: Never app:a app:b\nseen: s0; a#1 exited 9; b#0 running\nmemory: was a exited 0 9",
        "a: ended 9 Error r1\na.last: ended 9 Error last words",
    ),
    (
        "an ephemeral container is never waiting to be started again",
        "pod: Always app:a eph:e\nseen: s0; a#0 running; e#0 exited 1 done=-1\nmemory: backoff e 10 -5",
        "e: ended 1 Error r0",
    ),
    (
        "nor is an init container that succeeded",
        "pod: Always init:i app:a\nseen: s0; i#0 exited 0 done=-1\nmemory: backoff i 10 -5",
        "i: ended 0 Completed r0 ready",
    ),
    (
        "newer and longer words are taken",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 9 said=much_longer_last_words; b#0 running\nmemory: was a exited 0 9",
        "a: ended 9 Error much longer last words r0",
    ),
    (
        "of two words of one length the newer are taken",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 9 said=more_words; b#0 running\nmemory: was a exited 0 9",
        "a: ended 9 Error more words r0",
    ),
    (
        "it ran and vanished",
        "pod: Always app:a\nseen: s0\nmemory: was a running 2",
        "a: waiting ContainerCreating r3\na.last: ended 137 ContainerStatusUnknown The container could not be located when the pod was deleted.  The container used to be Running\nphase: Running",
    ),
    (
        "it vanished while the pod ends",
        "pod: Always app:a\nseen: s0\nmemory: was a running 2\nwish: deleted",
        "a: ended 137 ContainerStatusUnknown The container could not be located when the pod was terminated r2",
    ),
    (
        "its record was collected",
        "pod: Never app:a app:b\nseen: s0; b#0 running\nmemory: was a exited 2 0",
        "a: ended 0 Error last words r2\nphase: Running",
    ),
    (
        "it waited",
        "pod: Always app:a\nseen: s0\nmemory: was a waiting 4; before a 3 1",
        "a: waiting ContainerCreating r4\na.last: ended 1 Error last words",
    ),
    ("unknown, never told to run", "pod: Always app:a\nseen: s0; a#0 unknown", "a: waiting r0"),
    (
        "unknown, told to run",
        "pod: Always app:a\nseen: s0; a#0 unknown\nmemory: was a running 0",
        "a: ended 137 ContainerStatusUnknown The container could not be located when the pod was terminated r1",
    ),
    (
        "a count never falls",
        "pod: Always app:a\nseen: s0; a#1 running\nmemory: was a running 5",
        "a: running r5 started ready",
    ),
    (
        "a start after its record was removed counts",
        "pod: Always app:a\nseen: s0; a#0 running\nmemory: was a exited 3 1",
        "a: running r4 started ready",
    ),
];

#[test]
fn states_and_last_states() {
    check(STATES_AND_LAST_STATES);
}

const A_CONTAINER_KILLED_FOR_MEMORY_IS_OOM_KILLED: &[PlanCaseRow] = &[
    (
        "the container itself",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 oom=200; b#0 running",
        "a: ended 137 OOMKilled the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes r0",
    ),
    (
        "only a child of it",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 1 oom=200; b#0 running",
        "a: ~ended 1 Error the kernel killed process eater",
    ),
    (
        "the limit is not known",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 oom=x; b#0 running",
        "a: ~it used 100 bytes r0",
    ),
    (
        "nobody names the process, and the runtime does not say that it was the main one",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 ooms=1; b#0 running",
        "a: ended 137 Error the kernel killed a process of the container for want of memory; the limit is 200 bytes; which is not known, since the kernel's log cannot be read here r0",
    ),
    (
        "the runtime says so",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 reason=OOMKilled; b#0 running",
        "a: ended 137 OOMKilled r0",
    ),
    (
        "nobody names the process, and the runtime says that it was the main one",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 reason=OOMKilled ooms=1; b#0 running",
        "a: ~ended 137 OOMKilled the kernel killed a process of the container",
    ),
    (
        "the runtime says so of one that ended by itself",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 9 reason=OOMKilled; b#0 running",
        "a: ended 9 Error the kernel killed a process of it for want of memory, not the first one r0",
    ),
    (
        "and of one that did well",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 0 reason=OOMKilled; b#0 running",
        "a: ended 0 Completed the kernel killed a process of it for want of memory, not the first one r0",
    ),
    (
        "the runtime says so for a child that is named",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 9 reason=OOMKilled oom=200; b#0 running",
        "a: ended 9 Error the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes r0",
    ),
    (
        "a child long before the container was killed for another reason",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-43205; b#0 running",
        "a: ended 137 Error the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes, 43200 s before the container ended r0",
    ),
    (
        "the same, and the runtime remembers the child",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 reason=OOMKilled killed=-43205; b#0 running",
        "a: ~ended 137 Error the kernel killed process eater",
    ),
    (
        "a child a minute before: the runtime's word stands",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-65; b#0 running",
        "a: ~ended 137 Error the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes, 60 s before",
    ),
    (
        "a minute before, and the runtime's word is that",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 reason=OOMKilled killed=-65; b#0 running",
        "a: ~ended 137 OOMKilled the kernel killed process eater",
    ),
    (
        "dated a little after the end",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-3; b#0 running",
        "a: ~ended 137 OOMKilled the kernel killed process eater",
    ),
    (
        "a child long before, and then the container itself: both are told",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-43205 killed=-5; b#0 running",
        "a: ended 137 OOMKilled the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes, 43200 s before the container ended; the kernel killed process eater (pid 8) for want of memory: it used 100 bytes of a limit of 200 bytes r0",
    ),
    (
        "the container itself, and then one that is dated long after it by a clock that was set",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-6 killed=4000; b#0 running",
        "a: ~ended 137 OOMKilled the kernel killed process eater (pid 7)",
    ),
    (
        "two children, and it went on until it ended by itself",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 1 killed=-65 killed=-35; b#0 running",
        "a: ended 1 Error the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes, 60 s before the container ended; the kernel killed process eater (pid 8) for want of memory: it used 100 bytes of a limit of 200 bytes, 30 s before the container ended r0",
    ),
    (
        "ten seconds before the end is the end",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-15; b#0 running",
        "a: ended 137 OOMKilled the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes r0",
    ),
    (
        "ten minutes before, and the runtime says so: its word stands",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 reason=OOMKilled killed=-605; b#0 running",
        "a: ~ended 137 OOMKilled the kernel killed",
    ),
    (
        "nobody knows when it was killed",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 killed=-1000000; b#0 running",
        "a: ended 137 OOMKilled the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes r0",
    ),
    (
        "nobody knows when the container ended",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 done=-1000000 killed=-500; b#0 running",
        "a: ended 137 OOMKilled the kernel killed process eater (pid 7) for want of memory: it used 100 bytes of a limit of 200 bytes r0",
    ),
    (
        "more than are kept",
        "pod: Never app:a app:b\nseen: s0; a#0 exited 137 oom=1 oom=1 oom=1 oom=1 oom=1 oom=1 oom=1 oom=1 oom=1 oom=1; b#0 running",
        "a: ~ended 137 OOMKilled the kernel killed more processes of the container for want of memory, at most 2, before the last 8; the kernel killed process eater (pid 9)",
    ),
];

#[test]
fn a_container_killed_for_memory_is_oom_killed() {
    check(A_CONTAINER_KILLED_FOR_MEMORY_IS_OOM_KILLED);
}

#[test]
fn order_and_flags() {
    use crate::testing::PlanCase;
    let case = PlanCase::read("pod: Always init:z init:y app:c app:a eph:e eph:d\nseen: s0");
    let status = case.plan().status;
    let names = |list: &[pod_model::pod::status::ContainerStatus]| -> Vec<String> {
        list.iter().map(|each| each.name.to_string()).collect()
    };
    assert_eq!(names(&status.init_container_statuses), ["z", "y"], "as specified");
    assert_eq!(names(&status.container_statuses), ["a", "c"], "by name");
    assert_eq!(names(&status.ephemeral_container_statuses), ["d", "e"], "by name");
    assert_eq!(status.ephemeral_container_statuses[0].started, None);
    assert_eq!(status.container_statuses[0].started, Some(false));
}

#[test]
fn identity_of_a_container() {
    use crate::testing::PlanCase;
    let case = PlanCase::read("pod: Always app:a\nseen: s0; a#0 running id=x");
    let status = case.plan().status;
    let container = status.container("a").unwrap();
    assert_eq!(&*container.container_id, "containerd://x");
    assert_eq!((&*container.image, &*container.image_id), ("img", "ref-img"));
    // Before it is created, its image is the requested one.
    let status = PlanCase::read("pod: Always app:a(image=new)\nseen: s0").plan().status;
    let container = status.container("a").unwrap();
    assert_eq!((&*container.image, &*container.image_id), ("new", ""));
}

#[test]
fn times_of_a_container_are_the_runtime_s_in_seconds() {
    use crate::testing::{NOW, PlanCase};
    let times = |text: &str| {
        let status = PlanCase::read(text).plan().status;
        let state = status.container("a").unwrap().state.clone();
        let running = state.running.map(|running| (running.started_at, None));
        let ended = state.terminated.map(|ended| (ended.started_at, ended.finished_at));
        let (started, finished) = running.or(ended).unwrap();
        let relative = |at: pod_model::pod::Timestamp| at.0 - NOW;
        (started.map(relative), finished.map(relative))
    };
    let never = -NOW;
    assert_eq!(times("pod: Always app:a\nseen: s0; a#0 running"), (Some(-100), None));
    let ended = "pod: Never app:a\nseen: s0; a#0 exited 1";
    assert_eq!(times(ended), (Some(-100), Some(-5)));
    // An event that has not happened has no time.
    assert_eq!(times(&format!("{ended} started={never}")), (None, Some(-5)));
    assert_eq!(times(&format!("{ended} done={never}")), (Some(-100), None));
}

#[test]
fn all_messages_together_have_a_cap() {
    use crate::testing::PlanCase;
    for (pod, most) in
        [("Never app:a app:b", 6 * 1024), ("Never app:a app:b eph:e init:i", 3 * 1024)]
    {
        let mut case = PlanCase::read(&format!("pod: {pod}\nseen: s0; a#0 exited 1; b#0 running"));
        case.observed.containers[0].termination_message = Some("\u{e9}".repeat(10_000));
        let status = case.plan().status;
        let ended = status.container("a").unwrap().state.terminated.clone().unwrap();
        assert!(ended.message.len() <= most && ended.message.len() > most - 4, "{pod}");
    }
}

#[test]
fn the_status_shows_the_user_that_the_runtime_reports() {
    use crate::testing::PlanCase;
    use ports::runtime_objects::LinuxUser;

    let mut case = PlanCase::read("pod: Always app:a\nseen: s0; a#0 running");
    assert_eq!(case.plan().status.container("a").unwrap().user, None);
    let supplemental_groups = vec![7, 8];
    case.observed.containers[0].record.user =
        Some(LinuxUser { uid: 5, gid: 6, supplemental_groups });
    let status = case.plan().status;
    let user = status.container("a").unwrap().user.as_ref().unwrap();
    let linux = user.linux.as_ref().unwrap();
    assert_eq!((linux.uid, linux.gid), (5, 6));
    assert_eq!(linux.supplemental_groups, [7, 8]);
}

#[test]
fn the_status_shows_whether_read_only_is_recursive() {
    use crate::testing::PlanCase;
    use crate::view::PodLifecycleSettings;
    use pod_model::pod::container::{RecursiveReadOnly, VolumeMount};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    for (desired_state, read_only, able, expected) in [
        (None, false, true, None),
        (None, true, true, Some(RecursiveReadOnly::Disabled)),
        (Some(RecursiveReadOnly::IfPossible), true, true, Some(RecursiveReadOnly::Enabled)),
        (Some(RecursiveReadOnly::IfPossible), true, false, Some(RecursiveReadOnly::Disabled)),
        (Some(RecursiveReadOnly::Enabled), true, true, Some(RecursiveReadOnly::Enabled)),
        (Some(RecursiveReadOnly::Disabled), true, true, Some(RecursiveReadOnly::Disabled)),
    ] {
        let mut case = PlanCase::read("pod: Always app:a\nseen: s0");
        let mut pod = (*case.desired.pod).clone();
        pod.spec.containers[0].volume_mounts = vec![VolumeMount {
            name: "v".into(),
            mount_path: "/v".into(),
            read_only,
            recursive_read_only: desired_state.clone(),
            ..VolumeMount::default()
        }];
        case.desired.pod = Arc::new(pod);
        let recursive_read_only = BTreeMap::from([(String::new(), able)]);
        case.facts.settings = Arc::new(PodLifecycleSettings {
            recursive_read_only,
            ..PodLifecycleSettings::default()
        });
        let status = case.plan().status;
        let mount = &status.container("a").unwrap().volume_mounts[0];
        assert_eq!(mount.recursive_read_only, expected, "{desired_state:?} {read_only} {able}");
    }
}
