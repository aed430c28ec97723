//! Commands in running containers.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tonic::Code;

use super::cases;
use crate::support::{Cri, code, security};

cases![
    exec_gives_output_and_code,
    exec_of_a_missing_program_reports_an_error,
    exec_in_unknown_container_is_not_found,
    exec_in_created_container_is_refused,
    exec_in_ended_container_is_refused,
    exec_sees_the_containers_files_and_processes,
    exec_has_the_containers_environment_and_dir,
    exec_has_the_containers_user,
    exec_ends_at_its_limit,
    exec_at_its_limit_kills_the_whole_tree,
    exec_output_of_many_mebibytes_is_whole,
    exec_output_beyond_a_message_is_refused,
    exec_keeps_both_streams_apart,
    exec_has_empty_input,
    exec_many_at_once,
    exec_has_the_containers_capabilities,
    exec_needs_a_command,
];

async fn exec_gives_output_and_code(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let answer = cri.exec(&running.id, &["sh", "-c", "echo out; exit 3"], 10).await?;
    ensure!(answer.exit_code == 3 && answer.stdout == b"out\n" && answer.stderr.is_empty());
    Ok(())
}

async fn exec_of_a_missing_program_reports_an_error(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    ensure!(code(cri.exec(&running.id, &["/no/such/program"], 10).await)? == Code::Unknown);
    Ok(())
}

async fn exec_in_unknown_container_is_not_found(cri: &Cri) -> Result<()> {
    ensure!(code(cri.exec("unknown", &["true"], 10).await)? == Code::NotFound);
    Ok(())
}

async fn exec_in_created_container_is_refused(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &cri.container("true")).await?;
    ensure!(code(cri.exec(&id, &["true"], 10).await)? == Code::Unknown);
    Ok(())
}

async fn exec_in_ended_container_is_refused(cri: &Cri) -> Result<()> {
    let running = cri.running("true").await?;
    cri.until_ended(&running.id).await?;
    ensure!(code(cri.exec(&running.id, &["true"], 10).await)? == Code::Unknown);
    Ok(())
}

async fn exec_sees_the_containers_files_and_processes(cri: &Cri) -> Result<()> {
    let running = cri.running("echo mine > /mark; exec sleep 1234").await?;
    let until = "until grep -q '^sleep' /proc/1/cmdline; do sleep 0.1; done";
    let look = "cat /mark; tr '\\0' ' ' < /proc/1/cmdline";
    let answer = cri.exec(&running.id, &["sh", "-c", &format!("{until}; {look}")], 30).await?;
    let output = String::from_utf8_lossy(&answer.stdout).into_owned();
    ensure!(output == "mine\nsleep 1234 ", "{output:?}");
    Ok(())
}

async fn exec_has_the_containers_environment_and_dir(cri: &Cri) -> Result<()> {
    let mut config = cri.container("sleep 100");
    config.working_dir = "/tmp".to_owned();
    config.envs = vec![cri_wire::v1::KeyValue { key: "A".to_owned(), value: b"1".to_vec() }];
    let running = cri.running_as(cri.pod(), config).await?;
    let answer = cri.exec(&running.id, &["sh", "-c", "echo $A; pwd"], 10).await?;
    ensure!(answer.stdout == b"1\n/tmp\n");
    Ok(())
}

async fn exec_has_the_containers_user(cri: &Cri) -> Result<()> {
    let mut config = cri.container("sleep 100");
    security(&mut config).run_as_user = Some(cri_wire::v1::Int64Value { value: 1234 });
    let running = cri.running_as(cri.pod(), config).await?;
    let answer = cri.exec(&running.id, &["id", "-u"], 10).await?;
    ensure!(answer.stdout == b"1234\n");
    Ok(())
}

async fn exec_ends_at_its_limit(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let begun = Instant::now();
    ensure!(code(cri.exec(&running.id, &["sleep", "50"], 1).await)? == Code::DeadlineExceeded);
    ensure!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    Ok(())
}

async fn exec_at_its_limit_kills_the_whole_tree(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let refused = cri.exec(&running.id, &["sh", "-c", "sleep 4321 & wait"], 1).await;
    ensure!(code(refused)? == Code::DeadlineExceeded);
    let begun = Instant::now();
    loop {
        let left = cri.exec(&running.id, &["sh", "-c", "ps | grep -c '[s]leep 4321'"], 10).await?;
        if left.stdout == b"0\n" {
            return Ok(());
        }
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        ensure!(begun.elapsed() < Duration::from_secs(10), "{left}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn exec_output_of_many_mebibytes_is_whole(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let answer = cri
        .exec(&running.id, &["sh", "-c", "head -c 15000000 /dev/zero; echo end >&2"], 60)
        .await?;
    ensure!(answer.stdout.len() == 15_000_000 && answer.stderr == b"end\n");
    Ok(())
}

/// Each stream is cut at 16 MiB, which with the rest of the response is more than a gRPC message
/// may have: the client gets an error, the runtime keeps nothing for it, and the command runs to
/// its end.
async fn exec_output_beyond_a_message_is_refused(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let script = "head -c 40000000 /dev/zero; echo end > /mark";
    let Err(status) = cri.exec(&running.id, &["sh", "-c", script], 60).await else {
        bail!("more than a message was answered")
    };
    ensure!(status.code() == Code::ResourceExhausted, "{status}");
    let words = "trying to send message larger than max (16777221 vs. 16777216)";
    ensure!(status.message().contains(words), "{status}");
    let mark = cri.exec(&running.id, &["cat", "/mark"], 10).await?;
    ensure!(mark.stdout == b"end\n", "{mark:?}");
    Ok(())
}

async fn exec_keeps_both_streams_apart(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let answer = cri.exec(&running.id, &["sh", "-c", "echo a; echo b >&2; echo c"], 10).await?;
    ensure!(answer.stdout == b"a\nc\n" && answer.stderr == b"b\n");
    Ok(())
}

async fn exec_has_empty_input(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let answer = cri.exec(&running.id, &["sh", "-c", "cat; echo end"], 10).await?;
    ensure!(answer.stdout == b"end\n");
    Ok(())
}

async fn exec_many_at_once(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let mut all = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (mut runtime, id) = (cri.rt(), running.id.clone());
        all.spawn(async move {
            let request = cri_wire::v1::ExecSyncRequest {
                container_id: id,
                cmd: vec!["echo".to_owned(), number.to_string()],
                timeout: 30,
            };
            let answer = runtime.exec_sync(request).await?.into_inner();
            Ok::<_, tonic::Status>((number, answer))
        });
    }
    while let Some(done) = all.join_next().await {
        let (number, answer) = done??;
        ensure!(answer.stdout == format!("{number}\n").into_bytes(), "{number}: {answer:?}");
    }
    Ok(())
}

async fn exec_has_the_containers_capabilities(cri: &Cri) -> Result<()> {
    let mut config = cri.container("grep CapBnd /proc/self/status; sleep 100");
    security(&mut config).capabilities = Some(cri_wire::v1::Capability {
        drop_capabilities: vec!["ALL".to_owned()],
        add_capabilities: vec!["NET_BIND_SERVICE".to_owned()],
        ..Default::default()
    });
    let running = cri.running_as(cri.pod(), config).await?;
    let answer = cri.exec(&running.id, &["grep", "CapBnd", "/proc/self/status"], 10).await?;
    ensure!(answer.stdout == b"CapBnd:\t0000000000000400\n", "{answer:?}");
    Ok(())
}

async fn exec_needs_a_command(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    ensure!(code(cri.exec(&running.id, &[], 10).await)? != Code::Ok);
    Ok(())
}
