//! Pods with a user namespace of their own.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{Cri, FILLED, pod_options, security};

cases![
    user_namespace_is_of_its_own,
    user_namespace_with_shared_processes,
    user_namespace_shows_a_defined_volume_with_its_owners,
];

const FIRST: u32 = 200_000;

fn ranges() -> v1::UserNamespace {
    let range = v1::IdMapping { host_id: FIRST, container_id: 0, length: 65_536 };
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![range], gids: vec![range] }
}

pub(super) fn pod(cri: &Cri, pid: v1::NamespaceMode) -> v1::PodSandboxConfig {
    let mut pod = cri.networked_pod();
    let options = pod_options(&mut pod);
    options.userns_options = Some(ranges());
    options.pid = pid.into();
    pod
}

pub(super) fn container(cri: &Cri, script: &str, pid: v1::NamespaceMode) -> v1::ContainerConfig {
    let mut container = cri.container(script);
    let options = security(&mut container).namespace_options.get_or_insert_default();
    options.userns_options = Some(ranges());
    options.pid = pid.into();
    container
}

async fn user_namespace_is_of_its_own(cri: &Cri) -> Result<()> {
    let own = v1::NamespaceMode::Container;
    let script = "tr -s ' ' < /proc/self/uid_map; id -u; stat -c %u:%g /bin/busybox";
    let (code, output) = cri.ran(pod(cri, own), container(cri, script, own)).await?;
    ensure!(code == 0 && output == format!(" 0 {FIRST} 65536\n0\n0:0\n"), "{code}: {output}");
    Ok(())
}

async fn user_namespace_with_shared_processes(cri: &Cri) -> Result<()> {
    let shared = v1::NamespaceMode::Pod;
    let first = container(cri, "sleep 1717", shared);
    let running = cri.running_as(pod(cri, shared), first).await?;
    let script = "until ps -o args | grep -v grep | grep -q 'sleep 1717'; do sleep 0.1; done; \
        tr -s ' ' < /proc/self/uid_map; test $$ != 1 && echo not the first";
    let second = container(cri, script, shared);
    let id = cri.create(&running.sandbox, &running.pod, &second).await?;
    cri.start(&id).await?;
    ensure!(cri.until_ended(&id).await?.exit_code == 0);
    let log = std::fs::read_to_string(cri.dir.join(&second.log_path))?;
    ensure!(log.contains(&format!(" 0 {FIRST} 65536\n")), "{log}");
    ensure!(log.contains("not the first"), "{log}");
    let answer = cri.exec(&running.id, &["id", "-u"], 10).await?;
    ensure!(answer.stdout == b"0\n", "{answer:?}");
    Ok(())
}

async fn user_namespace_shows_a_defined_volume_with_its_owners(cri: &Cri) -> Result<()> {
    let own = v1::NamespaceMode::Container;
    let script = "cd /filled; stat -c '%n %u:%g' . file deep; touch mine; stat -c '%u:%g' mine";
    let mut container = container(cri, script, own);
    container.image = Some(v1::ImageSpec { image: FILLED.to_owned(), ..Default::default() });
    let (code, output) = cri.ran(pod(cri, own), container).await?;
    let expected = ". 1000:1001\nfile 1002:1003\ndeep 0:0\n0:1001\n";
    ensure!(code == 0 && output == expected, "{code}: {output}");
    Ok(())
}
