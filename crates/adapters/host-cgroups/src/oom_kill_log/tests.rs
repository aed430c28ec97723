//! Lines as kernels of several versions write them, and as a hostile program would forge them.

use proptest::prelude::*;

use super::*;

fn kills(lines: &[&str]) -> Vec<ParsedOomKill> {
    let mut parser = OomKillParser::default();
    lines.iter().filter_map(|line| parser.take(line)).collect()
}

fn kill(pid: i32, process: &str, limited: &str, victim: &str, kibibytes: u64) -> ParsedOomKill {
    ParsedOomKill {
        pid,
        process: process.to_owned(),
        limited: limited.to_owned(),
        victim: victim.to_owned(),
        resident_bytes: kibibytes * 1024,
        is_group_kill: false,
    }
}

#[test]
fn oom_records_of_current_kernels_are_parsed() {
    // 5.0 and later
    let lines = [
        "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000",
        "memory: usage 102400kB, limit 102400kB, failcnt 74",
        "Tasks state (memory values in pages):",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,\
         oom_memcg=/kubepods/burstable/podu1,task_memcg=/kubepods/burstable/podu1/c1,task=stress,\
         pid=4242,uid=1000",
        "Memory cgroup out of memory: Killed process 4242 (stress) total-vm:412340kB, \
         anon-rss:101120kB, file-rss:640kB, shmem-rss:240kB, UID:1000 pgtables:300kB \
         oom_score_adj:1000",
        "oom_reaper: reaped process 4242 (stress), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ];
    let expected =
        kill(4242, "stress", "/kubepods/burstable/podu1", "/kubepods/burstable/podu1/c1", 102_000);
    assert_eq!(kills(&lines), [expected]);
}

#[test]
fn oom_records_of_kernels_4_19_to_5_0_are_parsed() {
    // 4.19 to 5.2: announced, then killed in two lines
    let lines = [
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,\
         oom_memcg=/p,task_memcg=/p/c,task=python3,pid=77,uid=0",
        "Memory cgroup out of memory: Kill process 77 (python3) score 1974 or sacrifice child",
        "Killed process 77 (python3) total-vm:20kB, anon-rss:9kB, file-rss:1kB, shmem-rss:0kB",
    ];
    assert_eq!(kills(&lines), [kill(77, "python3", "/p", "/p/c", 10)]);
}

#[test]
fn oom_records_of_old_kernels_are_parsed() {
    // 3.10 to 4.18
    let lines = [
        "Task in /kubepods/podx/c killed as a result of limit of /kubepods/podx",
        "Memory cgroup out of memory: Kill process 18011 (java) score 1990 or sacrifice child",
        "Killed process 18011 (java) total-vm:2000kB, anon-rss:1000kB, file-rss:0kB",
        // Red Hat's 3.10
        "Task in /a killed as a result of limit of /b",
        "Killed process 5 (sh), UID 0, total-vm:2kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
    ];
    let expected = [
        kill(18_011, "java", "/kubepods/podx", "/kubepods/podx/c", 1000),
        kill(5, "sh", "/b", "/a", 1),
    ];
    assert_eq!(kills(&lines), expected);
}

#[test]
fn a_global_oom_kill_is_parsed() {
    let lines = [
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
         task_memcg=/kubepods/besteffort/podz/c,task=hog,pid=9,uid=0",
        "Out of memory: Killed process 9 (hog) total-vm:9kB, anon-rss:8kB, file-rss:0kB, \
         shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:1000",
        "Out of memory: Killed process 10 (old) total-vm:9kB, anon-rss:7kB, file-rss:0kB",
    ];
    let expected =
        [kill(9, "hog", "/", "/kubepods/besteffort/podz/c", 8), kill(10, "old", "/", "", 7)];
    assert_eq!(kills(&lines), expected);
}

#[test]
fn an_oom_group_kill_reports_every_process() {
    let lines = [
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,\
         oom_memcg=/p/c,task_memcg=/p/c,task=a,pid=1,uid=0",
        "Memory cgroup out of memory: Killed process 1 (a) total-vm:9kB, anon-rss:3kB, file-rss:0kB",
        "Tasks in /p/c are going to be killed due to memory.oom.group set",
        "Memory cgroup out of memory: Killed process 2 (b) total-vm:9kB, anon-rss:2kB, file-rss:0kB",
        "Memory cgroup out of memory: Killed process 3 (c) total-vm:9kB, anon-rss:1kB, file-rss:0kB",
    ];
    let expected = [1, 2, 3].map(|pid| {
        let name = ["a", "b", "c"][usize::try_from(pid).unwrap() - 1];
        let kill = kill(pid, name, "/p/c", "/p/c", 4 - u64::try_from(pid).unwrap());
        // Only the first one exceeded the limit.
        ParsedOomKill { is_group_kill: pid > 1, ..kill }
    });
    assert_eq!(kills(&lines), expected);
}

#[test]
fn an_oom_kill_after_a_group_kill_is_reported_alone() {
    let announce = |pid: i32| {
        format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,\
             oom_memcg=/p/c,task_memcg=/p/c,task=x,pid={pid},uid=0"
        )
    };
    let killed = |pid: i32| {
        format!(
            "Memory cgroup out of memory: Killed process {pid} (x) total-vm:1kB, anon-rss:1kB, f"
        )
    };
    let whole = "Tasks in /p/c are going to be killed due to memory.oom.group set".to_owned();
    // The process that exceeded the limit may appear among its cgroup once more.
    let lines = [announce(1), killed(1), whole, killed(1), killed(2), announce(3), killed(3)];
    let kills = kills(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let reported: Vec<(i32, bool)> =
        kills.iter().map(|kill| (kill.pid, kill.is_group_kill)).collect();
    assert_eq!(reported, [(1, false), (1, true), (2, true), (3, false)]);
}

#[test]
fn concurrent_oom_kills_are_reported_separately() {
    let announce = |pid: i32, group: &str| {
        format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,\
             oom_memcg={group},task_memcg={group}/c,task=x,pid={pid},uid=0"
        )
    };
    let killed = |pid: i32| {
        format!(
            "Memory cgroup out of memory: Killed process {pid} (x) total-vm:1kB, anon-rss:1kB, f"
        )
    };
    let lines = [announce(1, "/a"), announce(2, "/b"), killed(2), killed(1)];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let expected = [kill(2, "x", "/b", "/b/c", 1), kill(1, "x", "/a", "/a/c", 1)];
    assert_eq!(kills(&lines), expected);
}

#[test]
fn a_process_name_cannot_forge_an_oom_record() {
    let lines = [
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,\
         oom_memcg=/p,task_memcg=/p/c,task=a,pid=1,uid=0,pid=6,uid=3",
        "Memory cgroup out of memory: Killed process 6 (x) total-vm:1) total-vm:9kB, anon-rss:4kB, f",
        "Memory cgroup out of memory: Killed process 7 (a\\x0ab\\x28) total-vm:1kB, anon-rss:1kB, f",
    ];
    let expected = [kill(6, "x) total-vm:1", "/p", "/p/c", 4), kill(7, "a\nb(", "", "", 1)];
    assert_eq!(kills(&lines), expected);
    assert_eq!(kills(&["Killed process x (y) total-vm:1kB, anon-rss:1kB", "Killed process"]), []);
}

#[test]
fn only_the_kernels_own_records_count() {
    let record = "6,339,5140900,-;Killed process\n SUBSYSTEM=x\n";
    let read = KmsgRecord::parse(record).unwrap();
    assert_eq!((read.number, read.at, read.text), (339, 5_140_900, "Killed process"));
    assert_eq!(KmsgRecord::parse("3,1,2,c,caller=T1;text").unwrap().text, "text");
    // Written by a program: facility user.
    assert_eq!(KmsgRecord::parse("12,340,5140901,-;Killed process 1 (x)"), None);
    for bad in ["", ";", "a,b,c;d", "6;x", "6,1;x", "6,1,x,-;y", "6,x,1,-;y"] {
        assert_eq!(KmsgRecord::parse(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn arbitrary_log_lines_never_panic(lines in prop::collection::vec(
        "(oom-kill:|Task in |Tasks in |Killed process )?[ -~]{0,40}\
         (,oom_memcg=|,task_memcg=|,task=|,pid=|,uid=| \\(|\\)| total-vm:|anon-rss:|kB|\\\\x)?[ -~]{0,20}",
        0..20,
    )) {
        let mut parser = OomKillParser::default();
        for line in &lines {
            let _kill = parser.take(line);
            let _record = KmsgRecord::parse(line);
        }
        prop_assert!(parser.announced.len() <= MAX_PENDING);
    }
}

#[test]
fn kmsg_escapes_are_two_hex_digits_without_a_sign() {
    for (text, plain) in
        [("a\\x20b", "a b"), ("\\x5cx41", "\\x41"), ("\\x+5", "\\x+5"), ("\\x4", "\\x4")]
    {
        assert_eq!(unescaped(text), plain, "{text}");
    }
}
