//! Servers that die, supervisors that die.

use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use pod_supervisor::orphans::{self, OrphanStatus};
use pod_supervisor::protocol::{ContainerPhase, ContainerState};

use super::fixture::{PodFixture, run};

/// A small random number generator: the seed is printed, so that a failure can be reproduced.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn a_server_that_comes_back_finds_everything() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("long", "while :; do echo tick; sleep 0.05; done");
        let long = fixture.start(spec).await;
        let spec = fixture.spec("short", "sleep 0.3; exit 42");
        fixture.start(spec).await;
        let spec = fixture.spec("made", "exit 43");
        fixture.client.create(spec).await.expect("created");
        fixture.reconnect().await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        fixture.reconnect().await;
        let begun = std::time::Instant::now();
        let state = loop {
            let state = fixture.client.list().await.expect("listed");
            let mut all = state.containers.iter();
            let ended = all.any(|one| one.id == "short" && one.exit.is_some());
            if ended && fixture.lines("long").len() > 5 {
                break state;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{state:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let of =
            |id: &str| state.containers.iter().find(|one| one.id == id).expect("listed").clone();
        assert_eq!((of("long").phase(), of("long").pid), (ContainerPhase::Running, long.pid));
        assert_eq!(
            of("short").exit.expect("ended").code,
            42,
            "the exit came while nobody listened"
        );
        assert_eq!(of("made").phase(), ContainerPhase::Created);
        assert!(fixture.lines("long").len() > 5, "the log went on");
        fixture.client.start("made").await.expect("started by another server");
        assert_eq!(fixture.ended("made").await.code, 43);
        fixture.shut_down().await;
    });
}

#[test]
fn no_container_is_lost_when_twenty_servers_die_at_random() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let seed = u64::from(std::process::id()) | 1 << 40;
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let mut wanted = Vec::new();
        for number in 0..20 {
            let id = format!("c{number}");
            let code = i32::try_from(rng.below(200)).expect("small");
            let spec = fixture.spec(
                &id,
                &format!("echo run >> /tmp/{id}; sleep 0.0{}; exit {code}", rng.below(10)),
            );
            // The server dies at some point of create and start, without reading the response.
            let client = fixture.client.clone();
            let call = async {
                client.create(spec.clone()).await?;
                client.start(&id).await
            };
            let timeout = Duration::from_micros(rng.below(60_000));
            let _ = tokio::time::timeout(timeout, call).await;
            fixture.reconnect().await;
            wanted.push((id, code, spec));
        }
        // The last server finishes whatever was interrupted, as a real one would.
        for (id, code, spec) in &wanted {
            loop {
                let state = fixture.client.list().await.expect("listed");
                let phase =
                    state.containers.iter().find(|one| one.id == *id).map(ContainerState::phase);
                match phase {
                    None => drop(fixture.client.create(spec.clone()).await),
                    Some(ContainerPhase::Creating) => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Some(ContainerPhase::Created) => drop(fixture.client.start(id).await),
                    Some(ContainerPhase::Running) => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Some(ContainerPhase::Exited) => {
                        let found = state.containers.iter().find(|one| one.id == *id);
                        assert_eq!(
                            found.and_then(|one| one.exit).map(|exit| exit.code),
                            Some(*code),
                            "{id}"
                        );
                        break;
                    }
                }
            }
            let runs =
                std::fs::read_to_string(fixture.root().join("tmp").join(id)).expect("it ran");
            assert_eq!(runs, "run\n", "{id} ran once");
        }
        fixture.shut_down().await;
    });
}

/// A new server deletes its predecessor's half-created container, at whatever point it is.
#[test]
fn a_container_can_be_deleted_while_it_is_being_created() {
    run(async {
        let fixture = PodFixture::new().await;
        let seed = u64::from(std::process::id()) | 1 << 40;
        println!("seed {seed}");
        let mut rng = Rng(seed);
        for number in 0..20 {
            let id = format!("c{number}");
            let spec = fixture.spec(&id, &format!("echo ran > /tmp/{id}"));
            let creating = fixture.client.create(spec);
            let ending = async {
                tokio::time::sleep(Duration::from_micros(rng.below(15_000))).await;
                // Before the create request has arrived there is nothing to delete.
                while let Err(error) = fixture.client.delete(&id).await {
                    assert!(error.is_not_found(), "{error}");
                    tokio::task::yield_now().await;
                }
            };
            let (_, ()) = tokio::join!(creating, ending);
            let gone = fixture.client.delete(&id).await.expect_err("it is gone");
            assert!(gone.is_not_found(), "{gone}");
            let state = fixture.client.list().await.expect("listed");
            assert!(state.containers.iter().all(|one| one.id != id), "{id} is still there");
            assert!(!fixture.root().join("tmp").join(&id).exists(), "{id} ran");
        }
        let left = fixture.group.children().expect("listed");
        assert!(left.is_empty(), "groups are left: {left:?}");
        // Two servers, one after the other, delete the same container: both get a success.
        let spec = fixture.spec("twice", "sleep 1000");
        fixture.client.create(spec).await.expect("created");
        let (one, other) =
            tokio::join!(fixture.client.delete("twice"), fixture.client.delete("twice"));
        one.expect("gone");
        other.expect("gone, too");
        // The same for a whole pod.
        let spec = fixture.spec("last", "sleep 1000");
        let (_, ended) = tokio::join!(fixture.client.create(spec), fixture.client.shutdown());
        ended.expect("shut down");
    });
}

/// If a launcher dies before its supervisor listens, the supervisor exits.
#[test]
fn a_launcher_that_dies_early_leaves_no_supervisor() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_keelson-pod");
    let status = std::process::Command::new(program)
        .arg0("keelson-pod")
        .arg(dir.path())
        // No cgroup, and a launcher that is not its parent.
        .args(["", "1"])
        .status()
        .expect("run");
    assert!(!status.success());
    assert!(!dir.path().join("supervisor.sock").exists());
}

#[test]
fn containers_of_a_dead_supervisor_are_reported_truthfully() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("over", "exit 12");
        fixture.complete(spec).await;
        let spec = fixture.spec("runs", "while [ ! -e /tmp/end ]; do usleep 5000; done; exit 34");
        fixture.start(spec).await;
        let spec = fixture.spec("lost", "sleep 1000");
        fixture.start(spec).await;
        let spec = fixture.spec("waits", "exit 1");
        let waits = fixture.client.create(spec).await.expect("created");
        let waiting = orphans::open_pidfd(&waits).expect("it waits to be started");
        let pid = rustix::process::Pid::from_raw(i32::try_from(fixture.supervisor).expect("small"))
            .expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        let error = loop {
            match fixture.client.list().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => break error,
            }
        };
        assert!(error.is_disconnected(), "{error}");
        // The kernel closes its descriptors one after the other.
        for _ in 0..200 {
            if !orphans::supervisor_is_alive(fixture.dir.path()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!orphans::supervisor_is_alive(fixture.dir.path()));
        let states: Vec<_> = orphans::records(fixture.dir.path())
            .expect("read")
            .into_iter()
            .map(|state| state.expect("whole"))
            .collect();
        let of = |id: &str| states.iter().find(|one| one.id == id).expect("recorded");
        assert!(
            matches!(orphans::orphan_status(of("over"), None), OrphanStatus::Exited(exit) if exit.code == 12)
        );
        let pidfd = orphans::open_pidfd(of("runs")).expect("it runs");
        assert_eq!(orphans::orphan_status(of("runs"), Some(&pidfd)), OrphanStatus::Running);
        std::fs::write(fixture.root().join("tmp/end"), "").expect("written");
        let orphan_status = loop {
            match orphans::orphan_status(of("runs"), Some(&pidfd)) {
                OrphanStatus::Running => tokio::time::sleep(Duration::from_millis(10)).await,
                orphan_status => break orphan_status,
            }
        };
        assert!(
            matches!(orphan_status, OrphanStatus::Exited(exit) if exit.code == 34),
            "{orphan_status:?}"
        );
        // Its program never ran, so no exit of the program may be reported.
        let orphan_status = loop {
            match orphans::orphan_status(&waits, Some(&waiting)) {
                OrphanStatus::Running => tokio::time::sleep(Duration::from_millis(10)).await,
                orphan_status => break orphan_status,
            }
        };
        let is_truthful = matches!(orphan_status, OrphanStatus::Exited(exit) if exit.code == 128)
            || orphan_status == OrphanStatus::Unknown;
        assert!(is_truthful, "{orphan_status:?}");
        let lost = orphans::open_pidfd(of("lost")).expect("it runs");
        orphans::kill(of("lost")).expect("killed");
        while orphans::orphan_status(of("lost"), Some(&lost)) == OrphanStatus::Running {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let orphan_status = orphans::orphan_status(of("lost"), None);
        let is_truthful = matches!(orphan_status, OrphanStatus::Exited(exit) if exit.code == 137)
            || orphan_status == OrphanStatus::Unknown;
        assert!(is_truthful, "nothing is made up: {orphan_status:?}");
    });
}

#[test]
fn a_supervisor_runs_in_the_cgroup_it_was_given() {
    run(async {
        let dir = tempfile::tempdir().expect("a folder");
        let path = format!("/keelson-supervisors-{}", std::process::id());
        let group = cgroup_files::CgroupHierarchies::detect()
            .expect("groups")
            .group(&path)
            .expect("a path");
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_keelson-pod"));
        let program =
            pod_supervisor::launch::SupervisorProgram::from_file(program).expect("a program");
        program.launch(dir.path(), Some(&path)).expect("launched");
        let connection =
            pod_supervisor::SupervisorClient::connect(dir.path()).await.expect("connected");
        let pid = connection.supervisor_pid;
        let driver = tokio::spawn(connection.driver.run());
        assert_eq!(group.processes().expect("listed"), [pid]);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let fields: Vec<&str> =
            stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        assert_ne!(fields[1], std::process::id().to_string(), "it is nobody's child here");
        assert_ne!(fields[3], "0", "it has a session");
        // Signals of a terminal or a service manager do not end it.
        let target =
            rustix::process::Pid::from_raw(i32::try_from(pid).expect("small")).expect("a pid");
        for signal in [
            rustix::process::Signal::TERM,
            rustix::process::Signal::INT,
            rustix::process::Signal::HUP,
        ] {
            rustix::process::kill_process(target, signal).expect("signalled");
        }
        connection.client.list().await.expect("it lives");
        connection.client.shutdown().await.expect("shut down");
        drop(driver);
        group.remove_within(Duration::from_secs(10)).expect("it is gone");
    });
}
