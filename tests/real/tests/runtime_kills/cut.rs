//! A connection to a supervisor is cut while both sides live: the pod keeps running, and nothing is
//! lost.
//!
//! The test takes the server's own socket with pidfd_getfd and shuts it down.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cri_wire::v1;
use node_testkit::bed::BedTest;
use node_testkit::images;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::one_server::{SingleServer, until};
use crate::pods::RUNS;
use crate::server::{self, RuntimeHome};

const ROUNDS: usize = 5;

#[test]
fn a_cut_supervisor_connection_does_not_affect_the_pod() -> Result<()> {
    let programs = server::build()?;
    let busybox = images::busybox()?.build()?;
    BedTest::new().deadline(Duration::from_secs(240)).run(|bed| {
        let archive = bed.dir().join("busybox.tar");
        busybox.write_docker_archive(&archive)?;
        let tasks =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let home = RuntimeHome::new(bed, programs)?;
        tasks.block_on(async {
            let server = SingleServer::start(bed, &home).await?;
            home.import_whole(&archive)?;
            Box::pin(cut_and_look(&server)).await?;
            server.end()
        })
    })
}

/// Waits for a file of its own and exits with a code.
fn script(name: &str, code: i32) -> String {
    format!(
        "echo > {RUNS}/{name}-waits; while [ ! -e {RUNS}/{name} ]; do usleep 10000; done; \
             echo heard; exit {code}"
    )
}

async fn cut_and_look(server: &SingleServer<'_>) -> Result<()> {
    let mut slot = server.slot(1, 0);
    let pod = slot.pod;
    let steady = slot.make(pod.steady(), (None, true)).await?;
    // A supervisor's forked child looks like a supervisor until it executes.
    until("one supervisor", || async { Ok(supervisors(server)?.len() == 1) }).await?;
    let supervisors = supervisors(server)?;
    for round in 0..ROUNDS {
        let name = format!("late-{round}");
        let late = pod.container(&name, &script(&name, 9));
        let late = slot.make(late, (None, true)).await?;
        let (bounded, free) = (format!("bounded-{round}"), format!("free-{round}"));
        let waiting = [&name, &bounded, &free];
        let (one, two, middle) = (script(&bounded, 5), script(&free, 6), async {
            until("all of them", || async {
                let there = |name: &&String| Path::new(RUNS).join(format!("{name}-waits")).exists();
                Ok(waiting.iter().all(there))
            })
            .await?;
            let cut = cut(server.process_id())?;
            ensure!(cut >= 1, "there was no connection to cut");
            // They exit while no server may be connected.
            for name in waiting {
                fs::write(Path::new(RUNS).join(name), "")?;
            }
            anyhow::Ok(())
        });
        let one = server.exec(&steady, &one, 100);
        let two = server.exec(&steady, &two, 0);
        let (one, two, middle) = tokio::join!(one, two, middle);
        middle?;
        ensure!(one? == (5, "heard\n".to_owned()) && two? == (6, "heard\n".to_owned()));
        server.until_exited(&slot, &late, 9).await.with_context(|| name.clone())?;
        ensure!(slot.status(&steady).await??.state() == v1::ContainerState::ContainerRunning);
    }
    ensure!(pod.truth("steady")?.0 == 1, "it was run again");
    until("no other supervisor", || async { Ok(self::supervisors(server)? == supervisors) })
        .await?;
    let found = slot.sandboxes().await?;
    ensure!(found.len() == 1 && found[0].state() == v1::PodSandboxState::SandboxReady, "{found:?}");
    // A stop finds its way over whatever connection there is.
    cut(server.process_id())?;
    let stop = v1::StopContainerRequest { container_id: steady.clone(), timeout: 0 };
    server.caller.runtime().stop_container(stop).await?;
    server.until_exited(&slot, &steady, 137).await?;
    slot.remove().await?;
    until("none is left", || async { Ok(self::supervisors(server)?.is_empty()) }).await
}

/// Shuts down the server's connections to supervisors; returns how many.
fn cut(server: u32) -> Result<usize> {
    let pid = Pid::from_raw(i32::try_from(server)?).context("no process")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut cut = 0;
    for entry in fs::read_dir(format!("/proc/{server}/fd"))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok()).context("a descriptor")?;
        // It may be closed by now.
        let Ok(descriptor) = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) else {
            continue;
        };
        let socket = UnixStream::from(descriptor);
        let Ok(peer) = socket.peer_addr() else { continue };
        if peer.as_pathname().is_some_and(|path| path.ends_with("supervisor.sock")) {
            socket.shutdown(std::net::Shutdown::Both)?;
            cut += 1;
        }
    }
    Ok(cut)
}

/// The supervisors of this bed.
fn supervisors(server: &SingleServer<'_>) -> Result<Vec<u32>> {
    let pods = server.home.state().join("pods");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        let of_pod = |word: &[u8]| word.starts_with(pods.as_os_str().as_encoded_bytes());
        if words.next() == Some(b"keelson-pod") && words.next().is_some_and(of_pod) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}
