//! Starts, exits, signals, execs.

use std::time::Duration;

use pod_supervisor::protocol::{ContainerPhase, ExecUser, RequestErrorKind};
use pod_supervisor::spec::{CgroupSpec, LimitsSpec, ProcessLimit};
use pod_supervisor::{ClientError, ExecOptions};

use super::fixture::{PodFixture, process, run};

fn limited(
    fixture: &PodFixture,
    id: &str,
    script: &str,
    limits: LimitsSpec,
) -> pod_supervisor::spec::ContainerSpec {
    let mut spec = fixture.spec(id, script);
    let cgroup = spec.cgroup.take().unwrap_or_default();
    spec.cgroup = Some(CgroupSpec { limits: Some(limits), ..cgroup });
    spec
}

#[test]
fn a_container_runs_writes_its_log_and_exits() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("a", "echo $GREETING; echo $HOME; hostname; pwd; exit 3");
        let (exit, lines) = fixture.complete(spec).await;
        assert_eq!((exit.code, exit.signal), (3, 0));
        assert_eq!(lines, ["hello", "/root", "pod-name", "/"]);
        fixture.shut_down().await;
    });
}

#[test]
fn exit_codes_and_signals_are_reported() {
    run(async {
        let mut fixture = PodFixture::new().await;
        for (id, script, code, signal) in [
            ("zero", "true", 0, 0),
            ("one", "exit 1", 1, 0),
            ("most", "exit 255", 255, 0),
            ("bus", "sh -c 'kill -7 $$'; exit $?", 135, 0),
        ] {
            let spec = fixture.spec(id, script);
            let (exit, _) = fixture.complete(spec).await;
            assert_eq!((exit.code, exit.signal), (code, signal), "{id}");
            assert!(!exit.out_of_memory);
        }
        let state = fixture.client.list().await.expect("listed");
        assert_eq!(state.containers.len(), 4);
        assert!(state.containers.iter().all(|one| one.phase() == ContainerPhase::Exited));
        fixture.shut_down().await;
    });
}

#[test]
fn signals_reach_the_first_process() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
        let spec = fixture.spec("trap", script);
        fixture.start(spec).await;
        while !std::fs::read_to_string(fixture.log_path("trap"))
            .is_ok_and(|log| log.contains("ready"))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fixture.client.kill("trap", 15).await.expect("signalled");
        assert_eq!(fixture.ended("trap").await.code, 9);
        assert_eq!(fixture.lines("trap"), ["ready", "caught"]);
        // SIGRTMIN+3, the stop signal of many images, and the last signal.
        for (id, signal) in [("realtime", 37), ("last", 64)] {
            let spec = fixture.spec(id, &script.replace("TERM", &signal.to_string()));
            fixture.start(spec).await;
            while !std::fs::read_to_string(fixture.log_path(id))
                .is_ok_and(|log| log.contains("ready"))
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            fixture.client.kill(id, signal).await.expect("signalled");
            assert_eq!(fixture.ended(id).await.code, 9, "{id}");
        }
        // PID 1 ignores signals without a handler, but not SIGKILL.
        let spec = fixture.spec("deaf", "trap '' TERM; sleep 1000");
        fixture.start(spec).await;
        fixture.client.kill("deaf", 15).await.expect("signalled");
        fixture.client.kill("deaf", 9).await.expect("signalled");
        let exit = fixture.ended("deaf").await;
        assert_eq!((exit.code, exit.signal), (137, 9));
        // A second SIGKILL is no error, and an unknown signal number is one.
        fixture.client.kill("deaf", 9).await.expect("nothing to do");
        for number in [9999, 65, 0, -1] {
            assert!(fixture.client.kill("deaf", number).await.is_err(), "{number}");
        }
        assert!(fixture.client.kill("absent", 9).await.expect_err("absent").is_not_found());
        fixture.shut_down().await;
    });
}

#[test]
fn an_oom_kill_is_reported() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let limits = LimitsSpec { memory: Some(24 << 20), ..LimitsSpec::default() };
        let script = "dd if=/dev/zero of=/dev/null bs=200M count=1; echo dd: $?";
        let spec = limited(&fixture, "child", script, limits.clone());
        let (exit, lines) = fixture.complete(spec).await;
        assert_eq!(exit.code, 0, "only a child was killed");
        assert!(lines.iter().any(|line| line == "dd: 137"), "{lines:?}");
        assert!(fixture.out_of_memory("child").await > 0);
        let script = "exec dd if=/dev/zero of=/dev/null bs=200M count=1";
        let spec = limited(&fixture, "first", script, limits);
        let (exit, _) = fixture.complete(spec).await;
        assert_eq!((exit.code, exit.out_of_memory), (137, true));
        fixture.shut_down().await;
    });
}

#[test]
fn a_program_that_cannot_run_fails_the_start() {
    run(async {
        let mut fixture = PodFixture::new().await;
        for (id, program, wanted) in [
            ("missing", "no-such-program", "executable file not found in $PATH"),
            ("path", "/no/such", "no such file or directory"),
            ("denied", "/etc/passwd", "permission denied"),
        ] {
            let mut spec = fixture.spec(id, "");
            spec.process = Some(pod_supervisor::spec::ProcessSpec {
                arguments: vec![program.into()],
                ..process("")
            });
            fixture.client.create(spec).await.expect("created");
            let error = fixture.client.start(id).await.expect_err("cannot start");
            let ClientError::Refused { kind: RequestErrorKind::ProgramNotFound, message } = &error
            else {
                panic!("{id}: {error:?}");
            };
            assert!(message.contains(wanted) && message.contains(program), "{message}");
            fixture.ended(id).await;
            fixture.client.delete(id).await.expect("deleted");
        }
        fixture.shut_down().await;
    });
}

#[test]
fn requests_in_the_wrong_state_are_refused() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let kind = |error: ClientError| match error {
            ClientError::Refused { kind, .. } => kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            kind(fixture.client.start("a").await.expect_err("absent")),
            RequestErrorKind::NotFound
        );
        let spec = fixture.spec("a", "sleep 1000");
        fixture.start(spec.clone()).await;
        assert_eq!(
            kind(fixture.client.create(spec).await.expect_err("taken")),
            RequestErrorKind::Exists
        );
        assert_eq!(
            kind(fixture.client.start("a").await.expect_err("runs")),
            RequestErrorKind::WrongState
        );
        let odd = fixture.spec("../odd", "true");
        assert_eq!(
            kind(fixture.client.create(odd).await.expect_err("odd")),
            RequestErrorKind::InvalidSpec
        );
        let again = super::fixture::pod();
        assert_eq!(
            kind(fixture.client.create_pod(again).await.expect_err("made")),
            RequestErrorKind::Exists
        );
        // Deleting a running container kills it first.
        fixture.client.delete("a").await.expect("deleted");
        assert_eq!(
            kind(fixture.client.delete("a").await.expect_err("gone")),
            RequestErrorKind::NotFound
        );
        // Created, never started.
        let spec = fixture.spec("b", "true");
        fixture.client.create(spec).await.expect("created");
        fixture.client.delete("b").await.expect("deleted");
        fixture.shut_down().await;
    });
}

#[test]
fn an_exec_joins_the_container() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("main", "sleep 1000");
        fixture.start(spec).await;
        let script = "cat /proc/1/cmdline | tr '\\0' ' '; echo; hostname; for n in mnt pid ipc uts net; do \
            [ $(readlink /proc/1/ns/$n) = $(readlink /proc/self/ns/$n) ] && echo $n; done; \
            cat /proc/1/cgroup > /tmp/one; cat /proc/self/cgroup > /tmp/self; \
            cmp -s /tmp/one /tmp/self || { echo differs; cat /tmp/one /tmp/self; }; echo err >&2; exit 4";
        let (exit, out, err) = fixture.exec("main", script).await;
        assert_eq!(exit.code, 4);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].contains("sleep 1000"), "{out}");
        assert_eq!(lines[1..], ["pod-name", "mnt", "pid", "ipc", "uts", "net"], "{out}");
        assert_eq!(err, "err\n");
        let error = fixture
            .client
            .exec(ExecOptions {
                container: "main".into(),
                exec: "x".into(),
                process: pod_supervisor::spec::ProcessSpec {
                    arguments: vec!["absent".into()],
                    ..process("")
                },
                ..ExecOptions::default()
            })
            .await
            .expect_err("no such program");
        assert!(
            matches!(error, ClientError::Refused { kind: RequestErrorKind::ProgramNotFound, .. }),
            "{error}"
        );
        fixture.shut_down().await;
    });
}

#[test]
fn an_exec_as_another_user() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("main", "sleep 1000");
        fixture.start(spec).await;
        let request = ExecOptions {
            container: "main".into(),
            exec: "who".into(),
            process: process("[ $(id -u) = 7 ] && [ $(id -g) = 8 ] && id -G | grep -q 99"),
            user: Some(ExecUser { uid: 7, gid: 8, additional_gids: vec![8, 99] }),
            ..ExecOptions::default()
        };
        fixture.client.exec(request).await.expect("an exec");
        assert_eq!(fixture.exec_ended("who").await.code, 0);
        fixture.shut_down().await;
    });
}

#[test]
fn an_exec_timeout_kills_the_whole_tree() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("main", "while :; do sleep 1; done");
        fixture.start(spec).await;
        // Children that leave the session and ignore signals are killed too; the container stays.
        let script = "for i in 1 2 3; do (trap '' TERM HUP; setsid sh -c 'sleep 777; sleep 777' &) ; done; \
            trap '' TERM; sleep 777";
        let (exit, ..) = fixture.exec_within("main", script, Some(Duration::from_secs(2))).await;
        assert!(exit.timed_out);
        assert_eq!(exit.code, 137);
        let mut left = String::new();
        for _ in 0..100 {
            let (exit, out, _) =
                fixture.exec("main", "ps | grep -v grep | grep 'sleep 777' || true").await;
            assert_eq!(exit.code, 0);
            left = out;
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(left, "", "processes of the exec are left");
        let state = fixture.client.list().await.expect("listed");
        assert_eq!(state.containers[0].phase(), ContainerPhase::Running);
        // An exec that ends within its timeout is not touched and leaves no cgroup.
        let (exit, out, _) =
            fixture.exec_within("main", "echo fine", Some(Duration::from_secs(30))).await;
        assert_eq!((exit.code, exit.timed_out, out.as_str()), (0, false, "fine\n"));
        fixture.shut_down().await;
    });
}

#[test]
fn a_hundred_execs_leave_no_cgroup_or_process() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("main", "sleep 1000");
        fixture.start(spec).await;
        let dir = format!("/proc/{}/fd", fixture.supervisor);
        let descriptors = || std::fs::read_dir(&dir).expect("listed").count();
        let before = descriptors();
        let mut running = Vec::new();
        for number in 0..100 {
            let request = ExecOptions {
                container: "main".into(),
                exec: format!("e{number}"),
                process: process("exit 5"),
                timeout: Some(Duration::from_secs(20)),
                ..ExecOptions::default()
            };
            fixture.client.exec(request).await.expect("an exec");
            running.push(format!("e{number}"));
            if number % 10 == 9 {
                for exec in running.drain(..) {
                    assert_eq!(fixture.exec_ended(&exec).await.code, 5);
                }
            }
        }
        let state = fixture.client.list().await.expect("listed");
        assert_eq!(state.execs.len(), 64, "finished execs are kept, but not for ever");
        let after = descriptors();
        assert!(after <= before + 1, "descriptors leak: {before} before, {after} after");
        let groups = fixture.group.child("main").expect("a path").children().expect("listed");
        assert_eq!(groups, [], "groups leak");
        fixture.shut_down().await;
    });
}

#[test]
fn limits_of_the_process_hold_in_exec_too() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let mut spec = fixture.spec("main", "ulimit -n; ulimit -c; sleep 1000");
        let security = spec.security.as_mut().expect("security");
        security.limits = vec![
            ProcessLimit { name: "RLIMIT_NOFILE".into(), soft: 100, hard: 200 },
            ProcessLimit { name: "RLIMIT_CORE".into(), soft: 0, hard: 0 },
        ];
        security.oom_score_adjustment = Some(777);
        security.umask = Some(0o077);
        fixture.start(spec).await;
        let (_, out, _) = fixture
            .exec("main", "ulimit -n; ulimit -Hn; cat /proc/self/oom_score_adj; umask")
            .await;
        assert_eq!(out, "100\n200\n777\n0077\n");
        assert_eq!(fixture.lines("main"), ["100", "0"]);
        let mut odd = fixture.spec("odd", "true");
        odd.security.as_mut().expect("security").limits =
            vec![ProcessLimit { name: "RLIMIT_ODD".into(), soft: 1, hard: 1 }];
        assert!(
            fixture.client.create(odd).await.expect_err("odd").to_string().contains("RLIMIT_ODD")
        );
        fixture.shut_down().await;
    });
}

#[test]
fn group_limits_reach_the_kernel() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let limits = LimitsSpec {
            memory: Some(64 << 20),
            pids: Some(17),
            cpu_shares: Some(333),
            cpu_quota: Some(30_000),
            cpu_period: Some(100_000),
            ..LimitsSpec::default()
        };
        let spec = limited(&fixture, "main", "sleep 1000", limits);
        fixture.start(spec).await;
        let stats = fixture.group.child("main").expect("a path").stats().expect("stats");
        assert_eq!((stats.memory.limit, stats.pids.limit), (Some(64 << 20), Some(17)));
        assert_eq!(stats.pids.current, Some(1));
        fixture.shut_down().await;
    });
}
