//! A pod's sysctls: they apply to its own namespaces and to no others.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{Cri, code};

cases![
    sysctl_of_the_pods_network_is_set,
    sysctl_of_the_pods_memory_is_set,
    sysctl_is_the_same_in_every_container,
    sysctl_on_the_hosts_network_is_refused,
    sysctl_of_the_machine_is_refused,
];

const PORTS: &str = "net.ipv4.ip_unprivileged_port_start";
const SHOW_PORTS: &str = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start";

fn with(mut pod: v1::PodSandboxConfig, name: &str, value: &str) -> v1::PodSandboxConfig {
    let sysctls = &mut pod.linux.get_or_insert_default().sysctls;
    sysctls.insert(name.to_owned(), value.to_owned());
    pod
}

async fn sysctl_of_the_pods_network_is_set(cri: &Cri) -> Result<()> {
    let pod = with(cri.networked_pod(), PORTS, "1234");
    let (_, output) = cri.ran(pod, cri.container(SHOW_PORTS)).await?;
    ensure!(output == "1234\n", "{output:?}");
    let machine = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")?;
    ensure!(machine.trim() != "1234", "the machine has it too");
    Ok(())
}

async fn sysctl_of_the_pods_memory_is_set(cri: &Cri) -> Result<()> {
    let pod = with(cri.pod(), "kernel.shm_rmid_forced", "1");
    let show = "cat /proc/sys/kernel/shm_rmid_forced";
    let (_, output) = cri.ran(pod, cri.container(show)).await?;
    ensure!(output == "1\n", "{output:?}");
    Ok(())
}

async fn sysctl_is_the_same_in_every_container(cri: &Cri) -> Result<()> {
    let pod = with(cri.networked_pod(), PORTS, "4321");
    let first = cri.running_as(pod.clone(), cri.container("sleep 100")).await?;
    let second = cri.container(SHOW_PORTS);
    let id = cri.create(&first.sandbox, &pod, &second).await?;
    cri.start(&id).await?;
    cri.until_ended(&id).await?;
    let log = std::fs::read_to_string(cri.dir.join(&second.log_path))?;
    ensure!(log.trim_end().ends_with(" 4321"), "{log}");
    let answer = cri.exec(&first.id, &["sh", "-c", SHOW_PORTS], 10).await?;
    ensure!(answer.stdout == b"4321\n", "{answer:?}");
    Ok(())
}

async fn refused(cri: &Cri, pod: v1::PodSandboxConfig) -> Result<()> {
    let request = v1::RunPodSandboxRequest { config: Some(pod), ..Default::default() };
    let mut runtime = cri.rt();
    code(Box::pin(runtime.run_pod_sandbox(request)).await).map(drop)
}

async fn sysctl_on_the_hosts_network_is_refused(cri: &Cri) -> Result<()> {
    refused(cri, with(cri.pod(), PORTS, "1234")).await?;
    let machine = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")?;
    ensure!(machine.trim() != "1234", "the machine has it");
    Ok(())
}

async fn sysctl_of_the_machine_is_refused(cri: &Cri) -> Result<()> {
    let before = std::fs::read_to_string("/proc/sys/vm/swappiness")?;
    refused(cri, with(cri.networked_pod(), "vm.swappiness", "37")).await?;
    ensure!(std::fs::read_to_string("/proc/sys/vm/swappiness")? == before, "the machine has it");
    Ok(())
}
