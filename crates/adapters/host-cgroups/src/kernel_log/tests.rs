//! A pipe in place of the log: records arrive one by one, some of them odd.

use std::io::Write as _;
use std::time::Duration;

use super::*;

#[tokio::test]
async fn records_are_followed_as_they_come() {
    let bed = tempfile::tempdir().unwrap();
    let path = bed.path().join("kmsg");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut log = KernelLog::open_at(&path, Since::TheOldest).unwrap();
    let mut kernel = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut say = |record: &str| kernel.write_all(record.as_bytes()).unwrap();
    say("6,1,100,-;something else\n");
    let nothing = tokio::time::timeout(Duration::from_millis(50), log.next()).await;
    assert!(nothing.is_err());
    say(
        "6,2,200,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/p,task_memcg=/p/c,task=x,pid=5,uid=0\n",
    );
    let nothing = tokio::time::timeout(Duration::from_millis(50), log.next()).await;
    assert!(nothing.is_err());
    say("12,3,250,-;Killed process 5 (forged) total-vm:1kB, anon-rss:1kB, f\n");
    let nothing = tokio::time::timeout(Duration::from_millis(50), log.next()).await;
    assert!(nothing.is_err());
    say(
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
fn a_log_that_is_not_there_is_named() {
    let error = KernelLog::open_at(Path::new("/nowhere/kmsg"), Since::Now).unwrap_err();
    assert!(error.to_string().starts_with("open the kernel's log /nowhere/kmsg: "), "{error}");
}

#[tokio::test]
async fn what_was_there_before_is_dated_by_its_stamp() {
    let bed = tempfile::tempdir().unwrap();
    let path = bed.path().join("kmsg");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut log = KernelLog::open_at(&path, Since::TheOldest).unwrap();
    let mut kernel = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let stamp = now(ClockId::Monotonic) / 1000 - 5_000_000;
    let kill = format!("6,1,{stamp},-;Killed process 5 (x) total-vm:9kB, anon-rss:2kB, f\n");
    kernel.write_all(kill.as_bytes()).unwrap();
    let kill = tokio::time::timeout(Duration::from_secs(5), log.next()).await.unwrap();
    let seconds = (now(ClockId::Realtime) - kill.at) / NANOSECONDS;
    assert!((5..60).contains(&seconds), "{seconds} s ago");
}
