//! Servers that die, supervisors that die.

use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use pod_supervisor::afterwards::{self, Fate};
use pod_supervisor::protocol::{ContainerState, Phase};

use super::bed::{Bed, run};

/// A small random number generator: the seed is printed, so that a failure can be reproduced.
struct Dice(u64);

impl Dice {
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
        let mut bed = Bed::new().await;
        let spec = bed.spec("long", "while :; do echo tick; sleep 0.05; done");
        let long = bed.start(spec).await;
        let spec = bed.spec("short", "sleep 0.3; exit 42");
        bed.start(spec).await;
        let spec = bed.spec("made", "exit 43");
        bed.client.create(spec).await.expect("created");
        bed.reconnect().await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        bed.reconnect().await;
        let begun = std::time::Instant::now();
        let state = loop {
            let state = bed.client.list().await.expect("listed");
            let mut all = state.containers.iter();
            let ended = all.any(|one| one.id == "short" && one.exit.is_some());
            if ended && bed.lines("long").len() > 5 {
                break state;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{state:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let of =
            |id: &str| state.containers.iter().find(|one| one.id == id).expect("listed").clone();
        assert_eq!((of("long").phase(), of("long").pid), (Phase::Running, long.pid));
        assert_eq!(
            of("short").exit.expect("ended").code,
            42,
            "the exit came while nobody listened"
        );
        assert_eq!(of("made").phase(), Phase::Created);
        assert!(bed.lines("long").len() > 5, "the log went on");
        bed.client.start("made").await.expect("started by another server");
        assert_eq!(bed.ended("made").await.code, 43);
        bed.shut_down().await;
    });
}

#[test]
fn twenty_servers_die_at_random_and_nothing_is_lost() {
    run(async {
        let mut bed = Bed::new().await;
        let seed = u64::from(std::process::id()) | 1 << 40;
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let mut wanted = Vec::new();
        for number in 0..20 {
            let id = format!("c{number}");
            let code = i32::try_from(dice.below(200)).expect("small");
            let spec = bed.spec(
                &id,
                &format!("echo run >> /tmp/{id}; sleep 0.0{}; exit {code}", dice.below(10)),
            );
            // The server dies at some point of create and start, without reading the response.
            let client = bed.client.clone();
            let call = async {
                client.create(spec.clone()).await?;
                client.start(&id).await
            };
            let patience = Duration::from_micros(dice.below(60_000));
            let _ = tokio::time::timeout(patience, call).await;
            bed.reconnect().await;
            wanted.push((id, code, spec));
        }
        // The last server finishes whatever was interrupted, as a real one would.
        for (id, code, spec) in &wanted {
            loop {
                let state = bed.client.list().await.expect("listed");
                let phase =
                    state.containers.iter().find(|one| one.id == *id).map(ContainerState::phase);
                match phase {
                    None => drop(bed.client.create(spec.clone()).await),
                    Some(Phase::Creating) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Some(Phase::Created) => drop(bed.client.start(id).await),
                    Some(Phase::Running) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Some(Phase::Exited) => {
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
            let runs = std::fs::read_to_string(bed.root().join("tmp").join(id)).expect("it ran");
            assert_eq!(runs, "run\n", "{id} ran once");
        }
        bed.shut_down().await;
    });
}

/// A new server deletes its predecessor's half-created container, at whatever point it is.
#[test]
fn what_is_wanted_gone_before_it_is_there_goes() {
    run(async {
        let bed = Bed::new().await;
        let seed = u64::from(std::process::id()) | 1 << 40;
        println!("seed {seed}");
        let mut dice = Dice(seed);
        for number in 0..20 {
            let id = format!("c{number}");
            let spec = bed.spec(&id, &format!("echo ran > /tmp/{id}"));
            let making = bed.client.create(spec);
            let ending = async {
                tokio::time::sleep(Duration::from_micros(dice.below(15_000))).await;
                // Before the create request has arrived there is nothing to delete.
                while let Err(error) = bed.client.delete(&id).await {
                    assert!(error.is_not_found(), "{error}");
                    tokio::task::yield_now().await;
                }
            };
            let (_, ()) = tokio::join!(making, ending);
            let gone = bed.client.delete(&id).await.expect_err("it is gone");
            assert!(gone.is_not_found(), "{gone}");
            let state = bed.client.list().await.expect("listed");
            assert!(state.containers.iter().all(|one| one.id != id), "{id} is still there");
            assert!(!bed.root().join("tmp").join(&id).exists(), "{id} ran");
        }
        let left = bed.group.children().expect("listed");
        assert!(left.is_empty(), "groups are left: {left:?}");
        // Two servers, one after the other, delete the same container: both get a success.
        let spec = bed.spec("twice", "sleep 1000");
        bed.client.create(spec).await.expect("created");
        let (one, other) = tokio::join!(bed.client.delete("twice"), bed.client.delete("twice"));
        one.expect("gone");
        other.expect("gone, too");
        // The same for a whole pod.
        let spec = bed.spec("last", "sleep 1000");
        let (_, ended) = tokio::join!(bed.client.create(spec), bed.client.shutdown());
        ended.expect("shut down");
    });
}

/// If a launcher dies before its supervisor listens, the supervisor exits.
#[test]
fn a_launch_without_a_launcher_leaves_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_keelson-pod");
    let status = std::process::Command::new(program)
        .arg0("keelson-pod")
        .arg(folder.path())
        // No cgroup, and a launcher that is not its parent.
        .args(["", "1"])
        .status()
        .expect("run");
    assert!(!status.success());
    assert!(!folder.path().join("supervisor.sock").exists());
}

#[test]
fn a_dead_supervisors_containers_are_told_truthfully() {
    run(async {
        let mut bed = Bed::new().await;
        let spec = bed.spec("over", "exit 12");
        bed.complete(spec).await;
        let spec = bed.spec("runs", "while [ ! -e /tmp/end ]; do usleep 5000; done; exit 34");
        bed.start(spec).await;
        let spec = bed.spec("lost", "sleep 1000");
        bed.start(spec).await;
        let spec = bed.spec("waits", "exit 1");
        let waits = bed.client.create(spec).await.expect("created");
        let waiting = afterwards::hold(&waits).expect("it waits to be started");
        let pid = rustix::process::Pid::from_raw(i32::try_from(bed.supervisor).expect("small"))
            .expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        let error = loop {
            match bed.client.list().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => break error,
            }
        };
        assert!(error.is_gone(), "{error}");
        // The kernel closes its descriptors one after the other.
        for _ in 0..200 {
            if !afterwards::supervisor_lives(bed.folder.path()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!afterwards::supervisor_lives(bed.folder.path()));
        let states: Vec<_> = afterwards::records(bed.folder.path())
            .expect("read")
            .into_iter()
            .map(|state| state.expect("whole"))
            .collect();
        let of = |id: &str| states.iter().find(|one| one.id == id).expect("recorded");
        assert!(
            matches!(afterwards::fate(of("over"), None), Fate::Exited(exit) if exit.code == 12)
        );
        let held = afterwards::hold(of("runs")).expect("it runs");
        assert_eq!(afterwards::fate(of("runs"), Some(&held)), Fate::Running);
        std::fs::write(bed.root().join("tmp/end"), "").expect("written");
        let fate = loop {
            match afterwards::fate(of("runs"), Some(&held)) {
                Fate::Running => tokio::time::sleep(Duration::from_millis(10)).await,
                fate => break fate,
            }
        };
        assert!(matches!(fate, Fate::Exited(exit) if exit.code == 34), "{fate:?}");
        // Its program never ran, so no exit of the program may be reported.
        let fate = loop {
            match afterwards::fate(&waits, Some(&waiting)) {
                Fate::Running => tokio::time::sleep(Duration::from_millis(10)).await,
                fate => break fate,
            }
        };
        let told = matches!(fate, Fate::Exited(exit) if exit.code == 128) || fate == Fate::Unknown;
        assert!(told, "{fate:?}");
        let lost = afterwards::hold(of("lost")).expect("it runs");
        afterwards::kill(of("lost")).expect("killed");
        while afterwards::fate(of("lost"), Some(&lost)) == Fate::Running {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let fate = afterwards::fate(of("lost"), None);
        let told = matches!(fate, Fate::Exited(exit) if exit.code == 137) || fate == Fate::Unknown;
        assert!(told, "nothing is made up: {fate:?}");
    });
}

#[test]
fn a_supervisor_lives_where_it_was_put() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = format!("/keelson-supervisors-{}", std::process::id());
        let group =
            cgroup_files::Hierarchy::detect().expect("groups").group(&path).expect("a path");
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_keelson-pod"));
        let program = pod_supervisor::launch::Program::from_file(program).expect("a program");
        program.launch(folder.path(), Some(&path)).expect("launched");
        let connection = pod_supervisor::Client::connect(folder.path()).await.expect("connected");
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
