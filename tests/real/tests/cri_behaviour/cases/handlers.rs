//! Pods whose containers another OCI runtime creates (a RuntimeClass handler), and CDI devices.
//!
//! On the embedded runtime only: the handler `oci` is the real runc, by configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{Cri, StartedContainer, pod_options, security, texts};

const HANDLER: &str = "oci";

cases![
    handler_is_listed_with_its_features,
    handler_that_is_not_configured_is_refused,
    handler_refuses_user_namespaces,
    handler_keeps_output_and_exit_code,
    handler_execs_with_output_and_exit_code,
    handler_exec_at_its_limit_is_killed,
    handler_stops_with_the_signal_and_then_kills,
    handler_reports_a_missing_program,
    handler_gives_a_terminal,
    handler_shares_the_pods_namespaces,
    handler_applies_the_requested_confinement,
    handler_limits_its_group,
    handler_leaves_nothing,
    handler_and_built_in_live_side_by_side,
    named_devices_on_the_built_in_handler,
    named_devices_and_hooks_on_a_handler,
    hooks_of_named_devices_on_the_built_in_handler,
    named_devices_that_are_not_there_are_refused,
];

async fn run_sandbox(
    cri: &Cri,
    pod: &v1::PodSandboxConfig,
    handler: &str,
) -> Result<String, tonic::Status> {
    let request =
        v1::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: handler.to_owned() };
    Ok(cri.rt().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
}

async fn running(
    cri: &Cri,
    pod: v1::PodSandboxConfig,
    container: v1::ContainerConfig,
) -> Result<StartedContainer> {
    let sandbox = run_sandbox(cri, &pod, HANDLER).await.context("RunPodSandbox")?;
    let id = cri.create(&sandbox, &pod, &container).await.context("CreateContainer")?;
    cri.start(&id).await.context("StartContainer")?;
    Ok(StartedContainer { pod, sandbox, id, log: cri.dir.join(&container.log_path) })
}

async fn ran(cri: &Cri, container: v1::ContainerConfig) -> Result<(i32, String)> {
    let running = running(cri, cri.pod(), container).await?;
    let status = cri.until_ended(&running.id).await?;
    Ok((status.exit_code, running.output()?))
}

async fn wait_for_output(running: &StartedContainer, word: &str) -> Result<()> {
    for _ in 0..500 {
        if running.output().is_ok_and(|text| text.contains(word)) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    bail!("it never said {word:?}, but {:?}", running.output())
}

/// The server's own directory.
fn server_dir(cri: &Cri) -> PathBuf {
    cri.dir.join("../../k")
}

async fn handler_is_listed_with_its_features(cri: &Cri) -> Result<()> {
    let answer = cri.rt().status(v1::StatusRequest { verbose: true }).await?.into_inner();
    let of = |name: &str| {
        let found = answer.runtime_handlers.iter().find(|handler| handler.name == name);
        found.and_then(|handler| handler.features).with_context(|| format!("no handler {name:?}"))
    };
    let (own, other) = (of("")?, of(HANDLER)?);
    ensure!(own.user_namespaces && own.recursive_read_only_mounts, "{own:?}");
    ensure!(!other.user_namespaces && other.recursive_read_only_mounts, "{other:?}");
    Ok(())
}

async fn handler_that_is_not_configured_is_refused(cri: &Cri) -> Result<()> {
    let Err(status) = run_sandbox(cri, &cri.pod(), "nobody").await else { bail!("it was run") };
    ensure!(status.message().contains("no runtime for \"nobody\" is configured"), "{status}");
    Ok(())
}

async fn handler_refuses_user_namespaces(cri: &Cri) -> Result<()> {
    let mut pod = cri.networked_pod();
    let range = v1::IdMapping { host_id: 100_000, container_id: 0, length: 65_536 };
    pod_options(&mut pod).userns_options = Some(v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: vec![range],
        gids: vec![range],
    });
    let Err(status) = run_sandbox(cri, &pod, HANDLER).await else { bail!("it was run") };
    ensure!(status.message().contains("does not support user namespaces"), "{status}");
    Ok(())
}

async fn handler_keeps_output_and_exit_code(cri: &Cri) -> Result<()> {
    let container = cri.container("echo out; echo err >&2; echo $WORD; exit 7");
    let container = v1::ContainerConfig {
        envs: vec![v1::KeyValue { key: "WORD".into(), value: b"from env".to_vec() }],
        ..container
    };
    let running = running(cri, cri.pod(), container).await?;
    let status = cri.until_ended(&running.id).await?;
    ensure!(status.exit_code == 7 && status.reason == "Error", "{status:?}");
    ensure!(status.started_at > 0 && status.finished_at >= status.started_at, "{status:?}");
    ensure!(running.output()? == "out\nfrom env\n", "{:?}", running.output());
    let errors = running.lines()?.into_iter().filter(|line| line.stream == "stderr");
    ensure!(errors.map(|line| line.text).collect::<Vec<_>>() == ["err"]);
    Ok(())
}

async fn handler_execs_with_output_and_exit_code(cri: &Cri) -> Result<()> {
    let mut container = cri.container("sleep 1000");
    security(&mut container).run_as_user = Some(v1::Int64Value { value: 1234 });
    let running = running(cri, cri.pod(), container).await?;
    let answer = cri.exec(&running.id, &["sh", "-c", "id -u; echo err >&2; exit 5"], 20).await?;
    ensure!((answer.exit_code, answer.stdout.as_slice()) == (5, b"1234\n"), "{answer:?}");
    ensure!(answer.stderr == b"err\n", "{answer:?}");
    // A command that ends before it can be observed.
    for _ in 0..5 {
        let answer = cri.exec(&running.id, &["true"], 20).await?;
        ensure!(answer.exit_code == 0, "{answer:?}");
    }
    let Err(status) = cri.exec(&running.id, &["no-such-program"], 20).await else {
        bail!("a missing program was run");
    };
    ensure!(status.message().contains("executable file not found"), "{status}");
    Ok(())
}

async fn handler_exec_at_its_limit_is_killed(cri: &Cri) -> Result<()> {
    let running = running(cri, cri.pod(), cri.container("sleep 1000")).await?;
    let Err(status) = cri.exec(&running.id, &["sleep", "1000"], 1).await else {
        bail!("it had no limit");
    };
    ensure!(status.code() == tonic::Code::DeadlineExceeded, "{status}");
    Ok(())
}

async fn handler_stops_with_the_signal_and_then_kills(cri: &Cri) -> Result<()> {
    let polite = cri.container("trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done");
    let one = running(cri, cri.pod(), polite).await?;
    wait_for_output(&one, "ready").await?;
    cri.stop(&one.id, 30).await?;
    ensure!(cri.status(&one.id).await?.exit_code == 3);
    let deaf = cri.container("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    let two = running(cri, cri.pod(), deaf).await?;
    wait_for_output(&two, "ready").await?;
    cri.stop(&two.id, 1).await?;
    ensure!(cri.status(&two.id).await?.exit_code == 137);
    cri.stop(&two.id, 1).await.context("a second stop")?;
    Ok(())
}

async fn handler_reports_a_missing_program(cri: &Cri) -> Result<()> {
    let mut container = cri.container("");
    container.command = texts(&["no-such-program"]);
    let pod = cri.pod();
    let sandbox = run_sandbox(cri, &pod, HANDLER).await?;
    let id = cri.create(&sandbox, &pod, &container).await?;
    let Err(status) = cri.start(&id).await else { bail!("it was started") };
    ensure!(status.message().contains("OCI runtime create failed"), "{status}");
    ensure!(status.message().contains("executable file not found"), "{status}");
    let status = cri.status(&id).await?;
    ensure!(status.exit_code == 128 && status.reason == "StartError", "{status:?}");
    Ok(())
}

async fn handler_gives_a_terminal(cri: &Cri) -> Result<()> {
    let mut container = cri.container("tty; test -t 0 && test -t 1 && echo yes");
    container.tty = true;
    container.stdin = true;
    let (code, output) = ran(cri, container).await?;
    ensure!(code == 0 && output.contains("/dev/pts/") && output.contains("yes"), "{output:?}");
    Ok(())
}

async fn handler_shares_the_pods_namespaces(cri: &Cri) -> Result<()> {
    let mut pod = cri.networked_pod();
    pod_options(&mut pod).pid = v1::NamespaceMode::Pod.into();
    let with = |script: &str| {
        let mut container = cri.container(script);
        let options = security(&mut container).namespace_options.get_or_insert_default();
        options.pid = v1::NamespaceMode::Pod.into();
        container
    };
    let kinds = "for kind in net ipc uts pid; do readlink /proc/self/ns/$kind; done";
    let first =
        running(cri, pod, with(&format!("hostname; {kinds}; echo done; sleep 1000"))).await?;
    wait_for_output(&first, "done").await?;
    let second =
        with(&format!("hostname; {kinds}; echo done; ps | grep -q 'sleep 100[0]' && echo seen"));
    let id = cri.create(&first.sandbox, &first.pod, &second).await?;
    cri.start(&id).await?;
    cri.until_ended(&id).await?;
    let other = StartedContainer {
        pod: first.pod.clone(),
        sandbox: first.sandbox.clone(),
        id,
        log: cri.dir.join(&second.log_path),
    };
    let (one, two) = (first.output()?, other.output()?);
    ensure!(one.starts_with("pod-host\n"), "{one:?}");
    let same = one.trim_end_matches("done\n");
    ensure!(two.starts_with(same) && two.ends_with("seen\n"), "{one:?} and {two:?}");
    let mine = fs::read_link("/proc/self/ns/net")?.display().to_string();
    ensure!(!one.contains(&mine), "the machine's network");
    Ok(())
}

async fn handler_applies_the_requested_confinement(cri: &Cri) -> Result<()> {
    let mut container = cri.container(
        "grep -E '^(Seccomp|NoNewPrivs|CapBnd):' /proc/self/status; \
         touch /x 2>/dev/null && echo written; cat /proc/sys/kernel/keyme 2>/dev/null; \
         ls -d /data/there; touch /data/y 2>/dev/null && echo written; exit 0",
    );
    let dir = cri.dir.join("data");
    fs::create_dir_all(dir.join("there"))?;
    container.mounts.push(v1::Mount {
        container_path: "/data".to_owned(),
        host_path: dir.display().to_string(),
        readonly: true,
        ..Default::default()
    });
    let context = security(&mut container);
    context.readonly_rootfs = true;
    context.no_new_privs = true;
    context.capabilities = Some(v1::Capability {
        drop_capabilities: texts(&["ALL"]),
        add_capabilities: texts(&["CHOWN"]),
        ..Default::default()
    });
    let profile = v1::security_profile::ProfileType::RuntimeDefault;
    context.seccomp =
        Some(v1::SecurityProfile { profile_type: profile.into(), ..Default::default() });
    let (code, output) = ran(cri, container).await?;
    let expected = "CapBnd:\t0000000000000001\nNoNewPrivs:\t1\nSeccomp:\t2\n/data/there\n";
    ensure!(code == 0 && output == expected, "{output:?}");
    Ok(())
}

async fn handler_limits_its_group(cri: &Cri) -> Result<()> {
    let mut container = cri.container("sleep 1000");
    container.linux.get_or_insert_default().resources =
        Some(v1::LinuxContainerResources { memory_limit_in_bytes: 64 << 20, ..Default::default() });
    let running = running(cri, cri.pod(), container).await?;
    let request = v1::ContainerStatsRequest { container_id: running.id.clone() };
    let stats = cri.rt().container_stats(request).await?.into_inner().stats;
    let memory = stats.unwrap_or_default().memory.context("no memory stats")?;
    let available = memory.available_bytes.context("no available bytes")?.value;
    ensure!(available > 0 && available <= 64 << 20, "{memory:?}");
    Ok(())
}

async fn handler_leaves_nothing(cri: &Cri) -> Result<()> {
    let running = running(cri, cri.pod(), cri.container("sleep 1000")).await?;
    let state = server_dir(cri).join("state");
    let pods = || -> Result<usize> { Ok(fs::read_dir(state.join("pods"))?.count()) };
    let mounts = || -> Result<usize> {
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(table.lines().filter(|line| line.contains(&running.id[..32])).count())
    };
    ensure!(pods()? == 1 && mounts()? == 1, "{} pods, {} mounts", pods()?, mounts()?);
    cri.remove(&running.id).await?;
    ensure!(mounts()? == 0, "a mount is left");
    let dir = fs::read_dir(state.join("pods"))?.next().context("no pod")??.path();
    for name in ["bundles", "oci"] {
        let left = fs::read_dir(dir.join(name)).map_or(0, Iterator::count);
        ensure!(left == 0, "{left} entries are left in {name}");
    }
    cri.remove_pod(&running.sandbox).await?;
    ensure!(pods()? == 0, "the pod's directory is left");
    Ok(())
}

async fn handler_and_built_in_live_side_by_side(cri: &Cri) -> Result<()> {
    let other = running(cri, cri.pod(), cri.container("sleep 1000")).await?;
    let own = cri.running("sleep 1000").await?;
    for (sandbox, handler) in [(&other.sandbox, HANDLER), (&own.sandbox, "")] {
        let status = cri.pod_status(sandbox).await?;
        ensure!(status.runtime_handler == handler, "{:?}", status.runtime_handler);
    }
    for id in [&other.id, &own.id] {
        ensure!(cri.exec(id, &["true"], 20).await?.exit_code == 0);
    }
    Ok(())
}

/// Writes a CDI file where the server looks for it.
fn describe(cri: &Cri, name: &str, text: &str) -> Result<()> {
    let dir = server_dir(cri).join("cdi");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(name), text).context("write a description")
}

fn with_device(mut container: v1::ContainerConfig, name: &str) -> v1::ContainerConfig {
    container.cdi_devices.push(v1::CdiDevice { name: name.to_owned() });
    container
}

const LOOK: &str = "echo $NAMED $ALL; cat /named/file; echo x > /dev/named && echo written; \
                    stat -c '%t:%T' /dev/named";

fn description(cri: &Cri, kind: &str, hooks: &serde_json::Value) -> Result<serde_json::Value> {
    let dir = cri.dir.join("named");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("file"), "of the host\n")?;
    Ok(serde_json::json!({
        "cdiVersion": "0.6.0",
        "kind": kind,
        "containerEdits": {"env": ["ALL=all"]},
        "devices": [{"name": "one", "containerEdits": {
            "env": ["NAMED=one"],
            "deviceNodes": [{"path": "/dev/named", "hostPath": "/dev/null"}],
            "mounts": [{"hostPath": dir, "containerPath": "/named", "options": ["ro", "bind"]}],
            "hooks": hooks,
        }}],
    }))
}

const LOOKED: &str = "one all\nof the host\nwritten\n1:3\n";

async fn named_devices_on_the_built_in_handler(cri: &Cri) -> Result<()> {
    let none = serde_json::json!([]);
    describe(cri, "own.json", &description(cri, "own.test/thing", &none)?.to_string())?;
    let container = with_device(cri.container(LOOK), "own.test/thing=one");
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!(code == 0 && output == LOOKED, "{output:?}");
    Ok(())
}

async fn named_devices_and_hooks_on_a_handler(cri: &Cri) -> Result<()> {
    let (script, mark) = (cri.dir.join("hook.sh"), cri.dir.join("hooked"));
    fs::write(&script, format!("#!/bin/sh\necho \"$1\" >> {}\n", mark.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let hook = |point: &str| serde_json::json!({"hookName": point, "path": script, "args": ["hook", point]});
    let hooks = serde_json::json!([hook("createRuntime"), hook("poststop")]);
    describe(cri, "hooked.json", &description(cri, "hooked.test/thing", &hooks)?.to_string())?;
    let container = with_device(cri.container(LOOK), "hooked.test/thing=one");
    let running = running(cri, cri.pod(), container.clone()).await?;
    let status = cri.until_ended(&running.id).await?;
    ensure!(status.exit_code == 0 && running.output()? == LOOKED, "{:?}", running.output());
    ensure!(fs::read_to_string(&mark)? == "createRuntime\n");
    cri.remove(&running.id).await?;
    ensure!(fs::read_to_string(&mark)? == "createRuntime\npoststop\n");
    // Ours runs none at these points, and says so.
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let Err(status) = cri.create(&sandbox, &pod, &container).await else { bail!("created") };
    ensure!(status.message().contains("createRuntime hook"), "{status}");
    Ok(())
}

/// As in CDI files of graphics cards: a link in the container's root, which the hook finds by the
/// bundle's configuration.
async fn hooks_of_named_devices_on_the_built_in_handler(cri: &Cri) -> Result<()> {
    let script = "bundle=$(sed 's/.*\"bundle\":\"\\([^\"]*\\)\".*/\\1/'); \
                  root=$(sed 's/.*\"path\":\"\\([^\"]*\\)\".*/\\1/' \"$bundle/config.json\"); \
                  cat \"$root/named/file\" >&2; ln -s \"$1\" \"$root/linked\"";
    let hook = |script: &str| {
        serde_json::json!({"hookName": "createContainer", "path": "/bin/sh",
            "args": ["sh", "-c", script, "sh", "/named/file"], "env": ["PATH=/usr/bin:/bin"]})
    };
    let hooks = serde_json::json!([hook(script)]);
    describe(cri, "linked.json", &description(cri, "linked.test/thing", &hooks)?.to_string())?;
    let container = with_device(cri.container("cat /linked"), "linked.test/thing=one");
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!(code == 0 && output == "of the host\n", "{code} {output:?}");
    let hooks = serde_json::json!([hook("echo no card >&2; exit 3")]);
    describe(cri, "lost.json", &description(cri, "lost.test/thing", &hooks)?.to_string())?;
    let container = with_device(cri.container("true"), "lost.test/thing=one");
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &container).await?;
    let Err(status) = cri.start(&id).await else { bail!("started") };
    for word in ["createContainer hook /bin/sh", "exit status: 3", "no card"] {
        ensure!(status.message().contains(word), "{status}");
    }
    Ok(())
}

async fn named_devices_that_are_not_there_are_refused(cri: &Cri) -> Result<()> {
    describe(cri, "broken.yaml", "cdiVersion: 0.6.0\nkind: broken.test/thing\ndevices: []\n")?;
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let container = with_device(cri.container("true"), "broken.test/thing=one");
    let Err(status) = cri.create(&sandbox, &pod, &container).await else { bail!("created") };
    for word in ["CDI device injection failed", "unresolvable", "broken.yaml"] {
        ensure!(status.message().contains(word), "{status}");
    }
    Ok(())
}
