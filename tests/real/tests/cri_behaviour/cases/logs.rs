//! Container logs: what containers write, and where it goes.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{Cri, code};

cases![
    log_has_stamp_stream_and_tag,
    log_keeps_both_streams_apart,
    log_of_a_line_without_an_end_is_partial,
    log_splits_long_lines,
    log_keeps_empty_lines,
    log_of_a_burst_is_whole,
    log_is_reopened_after_a_rename,
    log_reopen_of_ended_container_is_refused,
    log_reopen_of_unknown_is_refused,
    log_is_not_written_without_a_path,
    log_of_a_terminal_is_one_stream,
    log_is_appended_to,
];

async fn log_has_stamp_stream_and_tag(cri: &Cri) -> Result<()> {
    let running = cri.running("echo hello").await?;
    cri.until_ended(&running.id).await?;
    let lines = running.lines()?;
    ensure!(lines.len() == 1 && lines[0].text == "hello" && lines[0].stream == "stdout");
    let stamp = &lines[0].stamp;
    let digits = stamp.split('.').nth(1).unwrap_or_default();
    // Go leaves out zeros at the end, so that of nine digits now and then fewer are written.
    ensure!(stamp.contains('T') && digits.len() > 4, "nanoseconds and a zone: {stamp}");
    Ok(())
}

async fn log_keeps_both_streams_apart(cri: &Cri) -> Result<()> {
    let running = cri.running("echo out; echo err >&2").await?;
    cri.until_ended(&running.id).await?;
    let lines = running.lines()?;
    let of = |stream: &str| -> Vec<&str> {
        lines.iter().filter(|line| line.stream == stream).map(|line| &*line.text).collect()
    };
    ensure!(of("stdout") == ["out"] && of("stderr") == ["err"], "{lines:?}");
    Ok(())
}

async fn log_of_a_line_without_an_end_is_partial(cri: &Cri) -> Result<()> {
    let running = cri.running("printf 'no end'").await?;
    cri.until_ended(&running.id).await?;
    let lines = running.lines()?;
    ensure!(lines.len() == 1 && lines[0].text == "no end" && !lines[0].whole, "{lines:?}");
    Ok(())
}

async fn log_splits_long_lines(cri: &Cri) -> Result<()> {
    let running = cri.running("head -c 40000 /dev/zero | tr '\\0' x; echo").await?;
    cri.until_ended(&running.id).await?;
    let lines = running.lines()?;
    ensure!(lines.len() == 3, "{} parts", lines.len());
    let whole: Vec<bool> = lines.iter().map(|line| line.whole).collect();
    ensure!(whole == [false, false, true] && lines[0].text.len() == 16 * 1024, "{whole:?}");
    ensure!(lines.iter().map(|line| line.text.len()).sum::<usize>() == 40_000);
    Ok(())
}

async fn log_keeps_empty_lines(cri: &Cri) -> Result<()> {
    let running = cri.running("echo; echo a; echo").await?;
    cri.until_ended(&running.id).await?;
    let lines: Vec<String> = running.lines()?.into_iter().map(|line| line.text).collect();
    ensure!(lines == ["", "a", ""], "{lines:?}");
    Ok(())
}

async fn log_of_a_burst_is_whole(cri: &Cri) -> Result<()> {
    let running = cri.running("seq 1 200000").await?;
    cri.until_ended(&running.id).await?;
    let lines = running.lines()?;
    ensure!(lines.len() == 200_000, "{} lines", lines.len());
    let right = lines.iter().enumerate().all(|(at, line)| line.text == (at + 1).to_string());
    ensure!(right, "lines are missing or mixed up");
    Ok(())
}

async fn until_lines(path: &std::path::Path, count: usize) -> Result<()> {
    for _ in 0..1000 {
        if std::fs::read_to_string(path).unwrap_or_default().lines().count() >= count {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    anyhow::bail!("{} never had {count} lines", path.display())
}

async fn log_is_reopened_after_a_rename(cri: &Cri) -> Result<()> {
    let script = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done";
    let running = cri.running(script).await?;
    until_lines(&running.log, 4).await?;
    let old = running.log.with_extension("old");
    std::fs::rename(&running.log, &old)?;
    let request = v1::ReopenContainerLogRequest { container_id: running.id.clone() };
    cri.rt().reopen_container_log(request).await?;
    until_lines(&running.log, 3).await?;
    cri.stop(&running.id, 0).await?;
    let mut numbers = Vec::new();
    for path in [&old, &running.log] {
        for line in std::fs::read_to_string(path)?.lines() {
            numbers.push(line.rsplit(' ').next().unwrap_or_default().parse::<usize>()?);
        }
    }
    let right = numbers.iter().enumerate().all(|(at, number)| at + 1 == *number);
    ensure!(right && numbers.len() > 5, "{numbers:?}");
    Ok(())
}

async fn log_reopen_of_ended_container_is_refused(cri: &Cri) -> Result<()> {
    let running = cri.running("true").await?;
    cri.until_ended(&running.id).await?;
    let request = v1::ReopenContainerLogRequest { container_id: running.id };
    ensure!(code(cri.rt().reopen_container_log(request).await)? == tonic::Code::Unknown);
    Ok(())
}

async fn log_reopen_of_unknown_is_refused(cri: &Cri) -> Result<()> {
    let request = v1::ReopenContainerLogRequest { container_id: "unknown".to_owned() };
    ensure!(code(cri.rt().reopen_container_log(request).await)? == tonic::Code::NotFound);
    Ok(())
}

async fn log_is_not_written_without_a_path(cri: &Cri) -> Result<()> {
    let mut config = cri.container("echo lost");
    config.log_path.clear();
    let running = cri.running_as(cri.pod(), config).await?;
    let status = cri.until_ended(&running.id).await?;
    ensure!(status.log_path.is_empty() && status.exit_code == 0, "{status:?}");
    Ok(())
}

async fn log_of_a_terminal_is_one_stream(cri: &Cri) -> Result<()> {
    let mut config = cri.container("echo out; echo err >&2; test -t 1 && echo terminal");
    config.tty = true;
    let running = cri.running_as(cri.pod(), config).await?;
    cri.until_ended(&running.id).await?;
    let lines = running.lines()?;
    ensure!(lines.iter().all(|line| line.stream == "stdout"), "{lines:?}");
    let printed: Vec<&str> = lines.iter().map(|line| line.text.trim_end_matches('\r')).collect();
    ensure!(printed == ["out", "err", "terminal"], "{printed:?}");
    Ok(())
}

async fn log_is_appended_to(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let config = cri.container("echo new");
    std::fs::write(
        cri.dir.join(&config.log_path),
        "2020-01-01T00:00:00.000000000Z stdout F old\n",
    )?;
    let running = cri.running_as(pod, config).await?;
    cri.until_ended(&running.id).await?;
    ensure!(running.output()? == "old\nnew\n", "{}", running.output()?);
    Ok(())
}
