//! The root directory is full: exits of containers are reported, pods stop, exit codes survive
//! kills of the server, and what could not be written is written once there is room.
//!
//! The root is its own small file system. Full means: no free block, or no free inode.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;
use node_testkit::bed::BedTest;
use node_testkit::images;
use rustix::mount::{MountFlags, mount};

use crate::one_server::{SingleServer, until};
use crate::pods::RUNS;
use crate::server::{self, RuntimeHome};

const FULL: &str = "No space left on device";

#[test]
fn a_full_root_dir_stops_pods_and_loses_no_exit_code() -> Result<()> {
    let programs = server::build()?;
    let busybox = images::busybox()?.build()?;
    BedTest::new().deadline(Duration::from_secs(240)).run(|bed| {
        let archive = bed.dir().join("busybox.tar");
        busybox.write_docker_archive(&archive)?;
        let tasks =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let home = RuntimeHome::new(bed, programs)?;
        fs::create_dir_all(home.root())?;
        let options = c"size=48m,nr_inodes=4000,mode=755";
        mount("tmpfs", home.root(), "tmpfs", MountFlags::empty(), options)?;
        tasks.block_on(async {
            let mut server = SingleServer::start(bed, &home).await?;
            home.import_whole(&archive)?;
            Box::pin(no_room_for_ends(&mut server)).await.context("no room for ends")?;
            Box::pin(no_room_for_a_plan(&server)).await.context("no room for a plan")?;
            server.end()
        })
    })
}

async fn no_room_for_ends(server: &mut SingleServer<'_>) -> Result<()> {
    let root = server.home.root();
    let mut slot = server.slot(1, 0);
    let pod = slot.pod;
    let steady = slot.make(pod.steady(), (None, true)).await?;
    let wait = format!("while [ ! -e {RUNS}/late ]; do usleep 10000; done; exit 9");
    let late = slot.make(pod.container("late", &wait), (None, true)).await?;
    fill_blocks(&root)?;
    fs::write(Path::new(RUNS).join("late"), "")?;
    server.until_exited(&slot, &late, 9).await?;
    let stop = v1::StopContainerRequest { container_id: steady.clone(), timeout: 0 };
    server.caller.runtime().stop_container(stop).await.context("StopContainer")?;
    server.until_exited(&slot, &steady, 137).await?;
    // It was not written to disk; the next server learns it from the supervisor all the same.
    server.kill_and_restart().await.context("a server on a full disk")?;
    let check_exits = |server: &SingleServer<'_>| {
        let slot = server.slot(1, 0);
        let (late, steady) = (late.clone(), steady.clone());
        async move {
            for (id, code) in [(late, 9), (steady, 137)] {
                let status = slot.status(&id).await??;
                let over = status.state() == v1::ContainerState::ContainerExited;
                ensure!(over && status.exit_code == code, "{status:?}; expected {code}");
            }
            anyhow::Ok(())
        }
    };
    check_exits(server).await.context("after the first kill")?;
    let sandbox = slot.sandboxes().await?.pop().context("no sandbox")?;
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
    server.caller.runtime().stop_pod_sandbox(stop.clone()).await.context("StopPodSandbox")?;
    let found = slot.sandboxes().await?;
    ensure!(found[0].state() == v1::PodSandboxState::SandboxNotready, "{found:?}");
    server.kill_and_restart().await.context("a server after the stop")?;
    check_exits(server).await.context("after the second kill")?;
    server.caller.runtime().stop_pod_sandbox(stop).await.context("StopPodSandbox again")?;
    make_room(&root)?;
    let pods = server.home.state().join("pods");
    until("the end of the supervisor", || async { Ok(fs::read_dir(&pods)?.next().is_none()) })
        .await?;
    server.kill_and_restart().await?;
    check_exits(server).await.context("from the disk")?;
    let found = slot.sandboxes().await?;
    ensure!(found[0].state() == v1::PodSandboxState::SandboxNotready, "{found:?}");
    // What takes room can be removed where there is none.
    fill_blocks(&root)?;
    slot.remove().await.context("removing on a full disk")?;
    make_room(&root)
}

/// A sandbox's first record fits and the second does not: the address and the host port that were
/// reserved in between are released.
async fn no_room_for_a_plan(server: &SingleServer<'_>) -> Result<()> {
    let root = server.home.root();
    let mut slot = server.slot(0, 1);
    ensure!(!slot.pod.config().port_mappings.is_empty(), "a pod with a host port is needed");
    fill_inodes(&root, 1)?;
    let request = v1::RunPodSandboxRequest {
        config: Some(slot.pod.config()),
        runtime_handler: String::new(),
    };
    let mut runtime = server.caller.runtime();
    let Err(status) = Box::pin(runtime.run_pod_sandbox(request)).await else { bail!("it was run") };
    ensure!(status.message().contains(FULL), "{status}");
    make_room(&root)?;
    let id = slot.make(slot.pod.steady(), (None, true)).await.context("the same port again")?;
    ensure!(slot.status(&id).await??.state() == v1::ContainerState::ContainerRunning);
    slot.remove().await
}

fn filling(root: &Path) -> Result<std::path::PathBuf> {
    let dir = root.join("filling");
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn fill_blocks(root: &Path) -> Result<()> {
    let mut file = File::create(filling(root)?.join("blocks"))?;
    let mut part = vec![1; 1 << 20];
    while !part.is_empty() {
        match file.write_all(&part) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => part.truncate(part.len() / 2),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Uses all but this many inodes.
fn fill_inodes(root: &Path, spare: usize) -> Result<()> {
    let dir = filling(root)?;
    let mut count = 0;
    loop {
        match File::create(dir.join(format!("inode-{count}"))) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => return Err(error.into()),
        }
    }
    for number in count - spare..count {
        fs::remove_file(dir.join(format!("inode-{number}")))?;
    }
    Ok(())
}

fn make_room(root: &Path) -> Result<()> {
    fs::remove_dir_all(filling(root)?).context("making room")
}
