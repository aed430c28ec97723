//! A pipe in place of the log: records arrive one by one, some of them odd.

use std::io::Write as _;
use std::time::Duration;

use super::*;

#[tokio::test]
async fn new_kernel_log_records_are_followed() {
    let fixture = tempfile::tempdir().unwrap();
    let path = fixture.path().join("kmsg");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut log = KernelLog::open_at(&path, KernelLogStart::Oldest).unwrap();
    let mut kernel = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut append = |record: &str| kernel.write_all(record.as_bytes()).unwrap();
    append("6,1,100,-;something else\n");
    let nothing = tokio::time::timeout(Duration::from_millis(50), log.next()).await;
    assert!(nothing.is_err());
    append(
        "6,2,200,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/p,task_memcg=/p/c,task=x,pid=5,uid=0\n",
    );
    let nothing = tokio::time::timeout(Duration::from_millis(50), log.next()).await;
    assert!(nothing.is_err());
    append("12,3,250,-;Killed process 5 (forged) total-vm:1kB, anon-rss:1kB, f\n");
    let nothing = tokio::time::timeout(Duration::from_millis(50), log.next()).await;
    assert!(nothing.is_err());
    append(
        "6,4,300,-;Memory cgroup out of memory: Killed process 5 (x) total-vm:9kB, anon-rss:2kB, f\n",
    );
    let kill = tokio::time::timeout(Duration::from_secs(5), log.next()).await.unwrap();
    assert_eq!((kill.process.as_str(), kill.pid, kill.resident_bytes), ("x", 5, 2048));
    assert_eq!(kill.order, 5, "the record that says so is the fifth");
    assert_eq!((kill.limited_cgroup.as_str(), kill.victim_cgroup.as_str()), ("/p", "/p/c"));
    // The timestamp is soon after boot; the record has just arrived.
    let seconds = (now(ClockId::Realtime) - kill.at) / NANOSECONDS;
    assert!((0..60).contains(&seconds), "{seconds} s ago");
}

#[test]
fn a_missing_kernel_log_is_an_error_with_its_path() {
    let error = KernelLog::open_at(Path::new("/nowhere/kmsg"), KernelLogStart::Now).unwrap_err();
    assert!(error.to_string().starts_with("open the kernel's log /nowhere/kmsg: "), "{error}");
}

#[tokio::test]
async fn records_from_before_the_start_are_dated_by_their_timestamp() {
    let fixture = tempfile::tempdir().unwrap();
    let path = fixture.path().join("kmsg");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut log = KernelLog::open_at(&path, KernelLogStart::Oldest).unwrap();
    let mut kernel = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let stamp = now(ClockId::Monotonic) / 1000 - 5_000_000;
    let kill = format!("6,1,{stamp},-;Killed process 5 (x) total-vm:9kB, anon-rss:2kB, f\n");
    kernel.write_all(kill.as_bytes()).unwrap();
    let kill = tokio::time::timeout(Duration::from_secs(5), log.next()).await.unwrap();
    let seconds = (now(ClockId::Realtime) - kill.at) / NANOSECONDS;
    assert!((5..60).contains(&seconds), "{seconds} s ago");
}
