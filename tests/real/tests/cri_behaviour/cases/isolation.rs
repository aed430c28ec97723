//! What a container can see and do.

use anyhow::{Result, ensure};
use cri_wire::v1;
use cri_wire::v1::security_profile::ProfileType;

use super::cases;
use crate::support::{CONFIGURED, Cri, StartedContainer, code, pod_options, security};

cases![
    user_by_number,
    user_by_name,
    user_and_group,
    user_group_without_user_is_refused,
    user_unknown_name_is_refused,
    user_groups_are_merged,
    user_groups_strict_are_only_those_asked_for,
    user_is_shown_in_the_status,
    user_is_the_same_at_every_start,
    capabilities_are_the_usual_ones,
    capabilities_can_be_added_and_dropped,
    capabilities_unknown_are_ignored,
    privileged_needs_a_privileged_pod,
    privileged_sees_devices_and_writes_to_sys,
    seccomp_default_is_a_filter,
    seccomp_unconfined_is_none,
    seccomp_from_a_file_is_applied,
    seccomp_from_a_missing_file_is_refused,
    seccomp_from_no_file_is_refused,
    no_new_privileges_is_set,
    masked_paths_are_empty,
    read_only_paths_cannot_be_written,
    mount_of_a_dir_is_seen,
    mount_read_only_cannot_be_written,
    mount_of_a_missing_dir_makes_it,
    mount_of_a_file_is_a_file,
    mount_over_another_is_seen,
    mount_bidirectional_of_a_private_mount_is_refused,
    device_is_there_and_usable,
    pid_namespace_of_its_own,
    pid_namespace_of_the_pod,
    pid_namespace_of_a_target,
    ipc_namespace_shares_memory_in_the_pod,
    memory_limit_is_set,
    cpu_shares_are_set,
    shared_files_are_mounted,
    resolver_is_written,
    out_of_memory_is_reported,
];

async fn output(cri: &Cri, container: v1::ContainerConfig) -> Result<String> {
    Ok(cri.ran(cri.pod(), container).await?.1)
}

fn user(cri: &Cri, script: &str, uid: i64) -> v1::ContainerConfig {
    let mut config = cri.container(script);
    security(&mut config).run_as_user = Some(v1::Int64Value { value: uid });
    config
}

async fn refused(cri: &Cri, config: v1::ContainerConfig) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    ensure!(code(cri.create(&sandbox, &pod, &config).await)? != tonic::Code::Ok);
    Ok(())
}

async fn user_by_number(cri: &Cri) -> Result<()> {
    ensure!(output(cri, user(cri, "id -u; id -g", 1234)).await? == "1234\n0\n");
    Ok(())
}

async fn user_by_name(cri: &Cri) -> Result<()> {
    let mut config = cri.container("id -u");
    security(&mut config).run_as_username = "nobody".to_owned();
    ensure!(output(cri, config).await? == "65534\n");
    Ok(())
}

async fn user_and_group(cri: &Cri) -> Result<()> {
    let mut config = user(cri, "id -u; id -g", 7);
    security(&mut config).run_as_group = Some(v1::Int64Value { value: 8 });
    ensure!(output(cri, config).await? == "7\n8\n");
    Ok(())
}

async fn user_group_without_user_is_refused(cri: &Cri) -> Result<()> {
    let mut config = cri.container("true");
    security(&mut config).run_as_group = Some(v1::Int64Value { value: 8 });
    refused(cri, config).await
}

async fn user_unknown_name_is_refused(cri: &Cri) -> Result<()> {
    let mut config = cri.container("true");
    security(&mut config).run_as_username = "ghost".to_owned();
    refused(cri, config).await
}

async fn user_groups_are_merged(cri: &Cri) -> Result<()> {
    let mut config = user(cri, "id -G | tr ' ' '\\n' | sort -n | tr '\\n' ' '", 1234);
    security(&mut config).supplemental_groups = vec![500, 600];
    let printed = output(cri, config).await?;
    ensure!(printed.trim() == "0 500 600", "{printed:?}");
    Ok(())
}

async fn user_groups_strict_are_only_those_asked_for(cri: &Cri) -> Result<()> {
    let mut config = user(cri, "id -G", 1234);
    security(&mut config).supplemental_groups = vec![500];
    security(&mut config).set_supplemental_groups_policy(v1::SupplementalGroupsPolicy::Strict);
    let printed = output(cri, config).await?;
    ensure!(printed.trim() == "0 500", "{printed:?}");
    Ok(())
}

async fn user_is_shown_in_the_status(cri: &Cri) -> Result<()> {
    let mut config = user(cri, "sleep 100", 1234);
    security(&mut config).run_as_group = Some(v1::Int64Value { value: 8 });
    security(&mut config).supplemental_groups = vec![500];
    let running = cri.running_as(cri.pod(), config).await?;
    let user = cri.status(&running.id).await?.user.and_then(|user| user.linux);
    let expected = v1::LinuxContainerUser { uid: 1234, gid: 8, supplemental_groups: vec![8, 500] };
    ensure!(user.as_ref() == Some(&expected), "{user:?}");
    Ok(())
}

/// CVE-2019-11245: the image's user applies at every start, also when the image is present already
/// and another container of it has run.
async fn user_is_the_same_at_every_start(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    for attempt in 0..3 {
        let mut config = cri.container("id -u");
        config.image = Some(v1::ImageSpec { image: CONFIGURED.to_owned(), ..Default::default() });
        config.metadata = Some(v1::ContainerMetadata { name: "again".to_owned(), attempt });
        let id = cri.create(&sandbox, &pod, &config).await?;
        cri.start(&id).await?;
        cri.until_ended(&id).await?;
        let log = cri.dir.join(&config.log_path);
        let running = StartedContainer { pod: pod.clone(), sandbox: sandbox.clone(), id, log };
        let printed = running.output()?;
        ensure!(printed == "65534\n", "attempt {attempt}: {printed:?}");
    }
    Ok(())
}

const SHOW: &str = "grep -E 'CapBnd|CapEff' /proc/self/status | cut -f2 | tr '\\n' ' '";

async fn capabilities_are_the_usual_ones(cri: &Cri) -> Result<()> {
    let printed = output(cri, cri.container(SHOW)).await?;
    ensure!(printed.trim() == "00000000a80425fb 00000000a80425fb", "{printed:?}");
    Ok(())
}

async fn capabilities_can_be_added_and_dropped(cri: &Cri) -> Result<()> {
    let mut config = cri.container(SHOW);
    security(&mut config).capabilities = Some(v1::Capability {
        add_capabilities: vec!["SYS_ADMIN".to_owned()],
        drop_capabilities: vec!["CHOWN".to_owned()],
        ..Default::default()
    });
    let printed = output(cri, config).await?;
    ensure!(printed.trim() == "00000000a82425fa 00000000a82425fa", "{printed:?}");
    Ok(())
}

async fn capabilities_unknown_are_ignored(cri: &Cri) -> Result<()> {
    let mut config = cri.container(SHOW);
    security(&mut config).capabilities =
        Some(v1::Capability { add_capabilities: vec!["FLY".to_owned()], ..Default::default() });
    let printed = output(cri, config).await?;
    ensure!(printed.trim() == "00000000a80425fb 00000000a80425fb", "{printed:?}");
    Ok(())
}

async fn privileged_needs_a_privileged_pod(cri: &Cri) -> Result<()> {
    let mut config = cri.container("true");
    security(&mut config).privileged = true;
    refused(cri, config).await
}

async fn privileged_sees_devices_and_writes_to_sys(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    let linux = pod.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    let script = "grep -q ' /sys sysfs rw' /proc/mounts && echo writable; ls /dev | wc -l";
    let mut config = cri.container(script);
    security(&mut config).privileged = true;
    let (exit, printed) = cri.ran(pod, config).await?;
    ensure!(exit == 0 && printed.starts_with("writable\n"), "{printed:?}");
    Ok(())
}

fn profile(kind: ProfileType, path: &str) -> Option<v1::SecurityProfile> {
    Some(v1::SecurityProfile { profile_type: kind.into(), localhost_ref: path.to_owned() })
}

const FILTERED: &str = "grep Seccomp: /proc/self/status | cut -f2";

async fn seccomp_default_is_a_filter(cri: &Cri) -> Result<()> {
    let mut config = cri.container(&format!("{FILTERED}; unshare -m true 2>/dev/null; echo $?"));
    security(&mut config).seccomp = profile(ProfileType::RuntimeDefault, "");
    security(&mut config).capabilities =
        Some(v1::Capability { drop_capabilities: vec!["ALL".to_owned()], ..Default::default() });
    let printed = output(cri, config).await?;
    ensure!(printed.starts_with("2\n") && printed.trim_end().ends_with('1'), "{printed:?}");
    Ok(())
}

async fn seccomp_unconfined_is_none(cri: &Cri) -> Result<()> {
    let mut config = cri.container(FILTERED);
    security(&mut config).seccomp = profile(ProfileType::Unconfined, "");
    ensure!(output(cri, config).await? == "0\n");
    Ok(())
}

async fn seccomp_from_a_file_is_applied(cri: &Cri) -> Result<()> {
    let path = cri.dir.join("profile.json");
    let text = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[
        {"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#;
    std::fs::write(&path, text)?;
    let mut config = cri.container(&format!("{FILTERED}; mkdir /tmp/x 2>/dev/null; echo $?"));
    security(&mut config).seccomp = profile(ProfileType::Localhost, &path.display().to_string());
    let printed = output(cri, config).await?;
    ensure!(printed.starts_with("2\n") && printed.ends_with("1\n"), "{printed:?}");
    Ok(())
}

async fn seccomp_from_a_missing_file_is_refused(cri: &Cri) -> Result<()> {
    let mut config = cri.container("true");
    security(&mut config).seccomp = profile(ProfileType::Localhost, "/no/such/profile.json");
    refused(cri, config).await
}

/// CVE-2023-2431: a localhost profile without a name is refused; it never means unconfined.
async fn seccomp_from_no_file_is_refused(cri: &Cri) -> Result<()> {
    let mut config = cri.container("true");
    security(&mut config).seccomp = profile(ProfileType::Localhost, "");
    refused(cri, config).await
}

async fn no_new_privileges_is_set(cri: &Cri) -> Result<()> {
    for (wanted, expected) in [(true, "1\n"), (false, "0\n")] {
        let mut config = cri.container("grep NoNewPrivs /proc/self/status | cut -f2");
        security(&mut config).no_new_privs = wanted;
        let printed = output(cri, config).await?;
        ensure!(printed == expected, "{wanted}: {printed:?}");
    }
    Ok(())
}

async fn masked_paths_are_empty(cri: &Cri) -> Result<()> {
    let mut config =
        cri.container("wc -c < /proc/meminfo; ls /proc/scsi /proc/acpi 2>/dev/null | wc -l");
    security(&mut config).masked_paths =
        vec!["/proc/meminfo".to_owned(), "/proc/not-there".to_owned()];
    let printed = output(cri, config).await?;
    ensure!(printed.starts_with("0\n"), "{printed:?}");
    Ok(())
}

async fn read_only_paths_cannot_be_written(cri: &Cri) -> Result<()> {
    let mut config = cri.container("echo 1 > /proc/sys/kernel/domainname; echo $?; cat /proc/sys/kernel/domainname > /dev/null && echo readable");
    security(&mut config).readonly_paths = vec!["/proc/sys".to_owned()];
    let printed = output(cri, config).await?;
    ensure!(printed.contains("1\n") && printed.ends_with("readable\n"), "{printed:?}");
    Ok(())
}

fn mounted(cri: &Cri, script: &str, host: &str, target: &str) -> v1::ContainerConfig {
    let mut config = cri.container(script);
    config.mounts.push(v1::Mount {
        host_path: cri.dir.join(host).display().to_string(),
        container_path: target.to_owned(),
        ..Default::default()
    });
    config
}

async fn mount_of_a_dir_is_seen(cri: &Cri) -> Result<()> {
    std::fs::create_dir_all(cri.dir.join("shared"))?;
    std::fs::write(cri.dir.join("shared/file"), "inside\n")?;
    let config = mounted(cri, "cat /data/file; echo back > /data/answer", "shared", "/data");
    ensure!(output(cri, config).await? == "inside\n");
    ensure!(std::fs::read_to_string(cri.dir.join("shared/answer"))? == "back\n");
    Ok(())
}

async fn mount_read_only_cannot_be_written(cri: &Cri) -> Result<()> {
    let mut config = mounted(cri, "touch /data/x; echo $?", "folder", "/data");
    config.mounts[0].readonly = true;
    let printed = output(cri, config).await?;
    ensure!(printed.ends_with("1\n"), "{printed:?}");
    Ok(())
}

async fn mount_of_a_missing_dir_makes_it(cri: &Cri) -> Result<()> {
    let config = mounted(cri, "test -d /data && echo folder", "not/there/yet", "/data");
    ensure!(output(cri, config).await? == "folder\n");
    ensure!(cri.dir.join("not/there/yet").is_dir());
    Ok(())
}

async fn mount_of_a_file_is_a_file(cri: &Cri) -> Result<()> {
    std::fs::write(cri.dir.join("one"), "content\n")?;
    ensure!(output(cri, mounted(cri, "cat /etc/one", "one", "/etc/one")).await? == "content\n");
    Ok(())
}

async fn mount_over_another_is_seen(cri: &Cri) -> Result<()> {
    std::fs::create_dir_all(cri.dir.join("outer"))?;
    std::fs::create_dir_all(cri.dir.join("inner"))?;
    std::fs::write(cri.dir.join("inner/mark"), "inner\n")?;
    let mut config = mounted(cri, "cat /a/b/mark", "inner", "/a/b");
    config.mounts.push(v1::Mount {
        host_path: cri.dir.join("outer").display().to_string(),
        container_path: "/a".to_owned(),
        ..Default::default()
    });
    ensure!(output(cri, config).await? == "inner\n");
    Ok(())
}

async fn mount_bidirectional_of_a_private_mount_is_refused(cri: &Cri) -> Result<()> {
    let place = cri.dir.join("plain");
    std::fs::create_dir_all(&place)?;
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &place, "tmpfs", flags, None)?;
    rustix::mount::mount_change(&place, rustix::mount::MountPropagationFlags::PRIVATE)?;
    let mut config = mounted(cri, "true", "plain", "/data");
    config.mounts[0].set_propagation(v1::MountPropagation::PropagationBidirectional);
    refused(cri, config).await
}

async fn device_is_there_and_usable(cri: &Cri) -> Result<()> {
    let mut config =
        cri.container("head -c 3 /dev/nothing | wc -c; test -c /dev/nothing && echo device");
    config.devices.push(v1::Device {
        host_path: "/dev/zero".to_owned(),
        container_path: "/dev/nothing".to_owned(),
        permissions: "rwm".to_owned(),
    });
    let printed = output(cri, config).await?;
    ensure!(printed == "3\ndevice\n", "{printed:?}");
    Ok(())
}

async fn pid_namespace_of_its_own(cri: &Cri) -> Result<()> {
    ensure!(output(cri, cri.container("echo $$")).await? == "1\n");
    Ok(())
}

async fn pid_namespace_of_the_pod(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    pod_options(&mut pod).set_pid(v1::NamespaceMode::Pod);
    let mut first = cri.container("exec sleep 7777");
    let mut second = cri.container("sleep 0.2; ps | grep -c '[s]leep 7777'");
    for config in [&mut first, &mut second] {
        security(config).namespace_options.get_or_insert_default().set_pid(v1::NamespaceMode::Pod);
    }
    let running = cri.running_as(pod.clone(), first).await?;
    let id = cri.create(&running.sandbox, &pod, &second).await?;
    cri.start(&id).await?;
    cri.until_ended(&id).await?;
    let log = std::fs::read_to_string(cri.dir.join(&second.log_path))?;
    ensure!(log.trim_end().ends_with(" 1"), "{log}");
    Ok(())
}

async fn pid_namespace_of_a_target(cri: &Cri) -> Result<()> {
    let running = cri.running("exec sleep 8888").await?;
    let mut debug = cri.container("ps | grep -c '[s]leep 8888'");
    let options = security(&mut debug).namespace_options.get_or_insert_default();
    options.set_pid(v1::NamespaceMode::Target);
    options.target_id.clone_from(&running.id);
    let id = cri.create(&running.sandbox, &running.pod, &debug).await?;
    cri.start(&id).await?;
    cri.until_ended(&id).await?;
    let log = std::fs::read_to_string(cri.dir.join(&debug.log_path))?;
    ensure!(log.trim_end().ends_with(" 1"), "{log}");
    Ok(())
}

async fn ipc_namespace_shares_memory_in_the_pod(cri: &Cri) -> Result<()> {
    let running = cri.running("echo shared > /dev/shm/mark; sleep 100").await?;
    let second = cri.container("sleep 0.3; cat /dev/shm/mark");
    let id = cri.create(&running.sandbox, &running.pod, &second).await?;
    cri.start(&id).await?;
    cri.until_ended(&id).await?;
    let log = std::fs::read_to_string(cri.dir.join(&second.log_path))?;
    ensure!(log.trim_end().ends_with("shared"), "{log}");
    Ok(())
}

fn limited(cri: &Cri, script: &str, resources: v1::LinuxContainerResources) -> v1::ContainerConfig {
    let mut config = cri.container(script);
    config.linux.get_or_insert_default().resources = Some(resources);
    config
}

/// The container's own value on either cgroup version.
const MEMORY: &str =
    "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null";
const SHARES: &str = "cat /sys/fs/cgroup/cpu.weight /sys/fs/cgroup/cpu/cpu.shares 2>/dev/null";

async fn memory_limit_is_set(cri: &Cri) -> Result<()> {
    let resources =
        v1::LinuxContainerResources { memory_limit_in_bytes: 64 << 20, ..Default::default() };
    let printed = output(cri, limited(cri, MEMORY, resources)).await?;
    ensure!(printed == "67108864\n", "{printed:?}");
    Ok(())
}

async fn cpu_shares_are_set(cri: &Cri) -> Result<()> {
    let resources = v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() };
    let printed = output(cri, limited(cri, SHARES, resources)).await?;
    ensure!(printed == "512\n" || printed == "20\n" || printed == "59\n", "{printed:?}");
    Ok(())
}

async fn shared_files_are_mounted(cri: &Cri) -> Result<()> {
    let config = cri.container("cat /etc/hostname; test -s /etc/hosts && echo hosts");
    let (_, printed) = cri.ran(cri.networked_pod(), config).await?;
    ensure!(printed == "pod-host\nhosts\n", "{printed:?}");
    Ok(())
}

async fn resolver_is_written(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    pod.dns_config = Some(v1::DnsConfig {
        servers: vec!["10.9.8.7".to_owned()],
        searches: vec!["a.test".to_owned(), "b.test".to_owned()],
        options: vec!["ndots:5".to_owned()],
    });
    let (_, printed) = cri.ran(pod, cri.container("cat /etc/resolv.conf")).await?;
    ensure!(
        printed == "search a.test b.test\nnameserver 10.9.8.7\noptions ndots:5\n",
        "{printed:?}"
    );
    Ok(())
}

async fn out_of_memory_is_reported(cri: &Cri) -> Result<()> {
    let resources =
        v1::LinuxContainerResources { memory_limit_in_bytes: 16 << 20, ..Default::default() };
    let config = limited(cri, "exec tail /dev/zero", resources);
    let running = cri.running_as(cri.pod(), config).await?;
    let status = cri.until_ended(&running.id).await?;
    ensure!(status.exit_code == 137 && status.reason == "OOMKilled", "{status:?}");
    Ok(())
}
