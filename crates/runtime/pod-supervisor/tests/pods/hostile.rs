//! Malicious containers and images. Each is a known escape from other runtimes.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::time::Duration;

use pod_supervisor::ExecOptions;
use pod_supervisor::spec::{CgroupSpec, LimitsSpec, MountSpec, ProcessSpec};

use super::fixture::{PodFixture, new_program, process, run};

fn bind(source: &std::path::Path, target: &str) -> MountSpec {
    MountSpec {
        source: source.display().to_string(),
        target: target.into(),
        ..MountSpec::default()
    }
}

/// CVE-2019-5736: the runtime's own program is opened through `/proc/PID/exe` and overwritten. Ours
/// is a sealed memfd, and a process that enters the container cannot be inspected.
#[test]
fn the_supervisors_program_cannot_be_written() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let exe = format!("/proc/{}/exe", fixture.supervisor);
        let name = std::fs::read_link(&exe).expect("a link").display().to_string();
        assert!(name.starts_with("/memfd:keelson-pod"), "{name}");
        let file = std::fs::File::open(&exe).expect("root may read it");
        let seals = rustix::fs::fcntl_get_seals(&file).expect("seals");
        assert!(seals.contains(rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::SEAL));
        assert!(std::fs::OpenOptions::new().write(true).open(&exe).is_err());
        a_container_that_runs_the_runtime(&mut fixture).await;
        let spec = fixture.spec(
            "victim",
            "while :; do for p in /proc/[0-9]*; do \
            case $p in /proc/1|/proc/self) ;; *) cat $p/exe > /dev/null 2>/tmp/err && \
            readlink $p/exe | grep memfd && echo caught > /tmp/caught ;; esac; done; done",
        );
        let spec = pod_supervisor::spec::ContainerSpec { ..spec };
        fixture.start(spec).await;
        for number in 0..20 {
            let request = ExecOptions {
                container: "victim".into(),
                exec: format!("e{number}"),
                process: process("true"),
                ..ExecOptions::default()
            };
            fixture.client.exec(request).await.expect("an exec");
        }
        assert!(!fixture.root().join("tmp/caught").exists(), "a helper's program could be read");
        fixture.shut_down().await;
    });
}

/// Symlinks and interpreters that lead to the executing program, in the container's image and in a
/// command. If the program used a dynamic loader, it would be the image's.
async fn a_container_that_runs_the_runtime(fixture: &mut PodFixture) {
    symlink("/proc/self/exe", fixture.root().join("bin/itself")).expect("linked");
    let script = |name: &str, text: &str| {
        let path = fixture.root().join("bin").join(name);
        std::fs::write(&path, text).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(path, mode).expect("made a program");
    };
    script("script", "#!/proc/self/exe\n");
    script("by-link", "#! /bin/itself now\n");
    script("by-script", "#!/bin/script\n");
    let spec = fixture.spec("main", "sleep 1000");
    fixture.start(spec).await;
    let programs =
        ["/bin/itself", "itself", "/proc/self/exe", "/bin/script", "/bin/by-link", "by-script"];
    for (number, program) in programs.into_iter().enumerate() {
        let process = ProcessSpec { arguments: vec![program.into()], ..process("") };
        let mut spec = fixture.spec("itself", "");
        spec.process = Some(process.clone());
        // A script needs read permission to run; other users run it too.
        spec.security.as_mut().expect("security").uid = u32::try_from(number).expect("small");
        fixture.client.create(spec).await.expect("created");
        let error = fixture.client.start("itself").await.expect_err("refused").to_string();
        assert!(error.contains("runtime's own program"), "{program}: {error}");
        fixture.client.delete("itself").await.expect("deleted");
        let request = ExecOptions {
            container: "main".into(),
            exec: format!("itself-{number}"),
            process,
            ..ExecOptions::default()
        };
        let error = fixture.client.exec(request).await.expect_err("refused").to_string();
        assert!(error.contains("runtime's own program"), "{program}: {error}");
    }
    fixture.client.delete("main").await.expect("deleted");
}

/// Whatever path the container found to it: the next pod starts all the same.
#[test]
fn a_container_cannot_make_the_supervisors_program_unexecutable() {
    run(async {
        for (program, is_shared) in
            [(new_program(), true), (new_program().one_file_per_pod(), false)]
        {
            let mut first = PodFixture::bare_from(&program).await;
            let exe = format!("/proc/{}/exe", first.supervisor);
            let mode = |bits| std::os::unix::fs::PermissionsExt::from_mode(bits);
            let outcome = std::fs::set_permissions(&exe, mode(0o000));
            assert_eq!(outcome.is_err(), is_shared, "{outcome:?}");
            let _ = std::fs::set_permissions(&exe, mode(0o111));
            let _ = std::os::unix::fs::chown(&exe, Some(1000), Some(1000));
            let mut second = PodFixture::bare_from(&program).await;
            let file = |fixture: &PodFixture| {
                let of =
                    std::fs::metadata(format!("/proc/{}/exe", fixture.supervisor)).expect("there");
                (of.dev(), of.ino())
            };
            assert_eq!(file(&first) == file(&second), is_shared, "who shares it cannot change it");
            first.shut_down().await;
            second.shut_down().await;
        }
    });
}

/// CVE-2024-21626: a working directory or a program reached through a leaked descriptor.
#[test]
fn no_descriptor_of_the_machine_is_left_open() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let lines = fixture.output("fds", "ls /proc/self/fd | tr '\\n' ' '").await;
        // Three streams, and the directory that ls itself has open.
        assert_eq!(lines, ["0 1 2 3 "]);
        for number in 3..40 {
            let path = format!("/proc/self/fd/{number}");
            let mut spec = fixture.spec("cwd", "pwd; ls ..");
            spec.process.as_mut().expect("process").working_directory = path.clone();
            // Magic links are not followed: the create fails, or gets an empty directory inside the
            // container.
            if fixture.client.create(spec).await.is_ok() {
                fixture.client.delete("cwd").await.expect("deleted");
                panic!("{path} was taken as a working directory");
            }
        }
        let mut spec = fixture.spec("program", "");
        let escape = "/proc/self/fd/3/../../../../../../bin/sh".to_owned();
        spec.process = Some(ProcessSpec { arguments: vec![escape], ..process("") });
        fixture.client.create(spec).await.expect("created");
        assert!(fixture.client.start("program").await.is_err());
        let spec = fixture.spec("main", "sleep 1000");
        fixture.start(spec).await;
        let (_, out, _) = fixture.exec("main", "ls /proc/self/fd | tr '\\n' ' '").await;
        assert_eq!(out, "0 1 2 3 ");
        for number in 3..40 {
            let request = ExecOptions {
                container: "main".into(),
                exec: format!("cwd{number}"),
                process: ProcessSpec {
                    working_directory: format!("/proc/self/fd/{number}"),
                    ..process("true")
                },
                ..ExecOptions::default()
            };
            assert!(fixture.client.exec(request).await.is_err(), "{number}");
        }
        fixture.shut_down().await;
    });
}

/// CVE-2021-30465 and similar: mount targets that are symlinks out of the root.
#[test]
fn mount_targets_that_are_links_stay_inside_the_root() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let outside = fixture.dir.path().join("outside");
        let volume = fixture.dir.path().join("volume");
        std::fs::create_dir(&outside).expect("made");
        std::fs::create_dir(&volume).expect("made");
        std::fs::write(volume.join("file"), "x").expect("written");
        symlink(&outside, fixture.root().join("absolute")).expect("linked");
        symlink("../../../../../../../../../tmp", fixture.root().join("up")).expect("linked");
        // Other tests mount as well, but nothing related to this directory.
        let host_entries = || {
            let table = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
            let ours = fixture.dir.path().display().to_string();
            table.lines().filter(|line| line.contains(&ours)).count()
        };
        let before = host_entries();
        let mut spec = fixture.spec("a", "ls /absolute/in /up/in2");
        spec.mounts.extend([bind(&volume, "/absolute/in"), bind(&volume, "/up/in2")]);
        fixture.start(spec).await;
        assert_eq!(host_entries(), before, "mounted on the machine");
        let exit = fixture.ended("a").await;
        assert_eq!(exit.code, 0, "{:?}", fixture.lines("a"));
        assert_eq!(std::fs::read_dir(&outside).expect("read").count(), 0, "made outside");
        assert!(!std::path::Path::new("/tmp/in2").exists(), "made outside");
        fixture.shut_down().await;
    });
}

/// CVE-2025-31133, -52565, -52881: masks and writes that land elsewhere because `/proc`,
/// `/dev/null` or `/dev/console` were replaced.
#[test]
fn proc_and_dev_null_cannot_be_faked() {
    run(async {
        let mut fixture = PodFixture::new().await;
        // `/proc` as a symlink: masks would land elsewhere.
        std::fs::remove_dir(fixture.root().join("proc")).expect("removed");
        std::fs::create_dir(fixture.root().join("fake")).expect("made");
        symlink("/fake", fixture.root().join("proc")).expect("linked");
        let spec = fixture.spec("link", "true");
        let error = fixture.client.create(spec).await.expect_err("refused");
        assert!(error.to_string().contains("/proc"), "{error}");
        std::fs::remove_file(fixture.root().join("proc")).expect("removed");
        std::fs::create_dir(fixture.root().join("proc")).expect("made");
        // The image's own /dev/null, without our /dev: masks do not use it.
        std::fs::write(fixture.root().join("dev/null"), "not null").expect("written");
        symlink("/proc/sys/kernel/core_pattern", fixture.root().join("dev/console"))
            .expect("linked");
        let mut spec = fixture.spec("null", "cat /proc/keys | wc -c; cat /proc/timer_list | wc -c");
        spec.mounts.retain(|mount| !mount.target.starts_with("/dev"));
        let (_, lines) = fixture.complete(spec).await;
        assert!(lines.iter().all(|line| line == "0"), "{lines:?}");
        a_terminal_on_a_hostile_console(&mut fixture).await;
        let _ = std::fs::remove_file(fixture.root().join("dev/console"));
        // A mount over a part of /proc.
        let volume = fixture.dir.path().join("volume");
        std::fs::create_dir(&volume).expect("made");
        for target in ["/proc/sys", "/proc/self/attr", "/proc/1"] {
            let mut spec = fixture.spec("over", "true");
            spec.mounts.push(bind(&volume, target));
            let error = fixture.client.create(spec).await.expect_err("refused");
            assert!(error.to_string().contains("/proc"), "{error}");
        }
        a_volume_as_proc(&mut fixture, &volume).await;
        fixture.shut_down().await;
    });
}

/// A volume in place of `/proc` leaves nothing to mask, and a procfs of the host inside it undoes
/// masks; only the host's `/proc` as a whole is allowed.
async fn a_volume_as_proc(fixture: &mut PodFixture, volume: &std::path::Path) {
    symlink("/proc", fixture.root().join("to-proc")).expect("linked");
    for target in ["/proc", "//proc/.", "/tmp/../proc", "/to-proc", "/proc/sub/folder"] {
        let mut spec = fixture.spec("over", "true");
        spec.mounts.retain(|mount| mount.target != "/proc");
        spec.mounts.push(bind(volume, target));
        let error = fixture.client.create(spec).await.expect_err(target).to_string();
        assert!(error.contains("/proc; "), "{target}: {error}");
    }
    let mut spec = fixture.spec("over", "true");
    spec.mounts.push(bind(std::path::Path::new("/proc/sys"), "/proc/sys"));
    let error = fixture.client.create(spec).await.expect_err("refused").to_string();
    assert!(error.contains("/proc; "), "{error}");
    let mut spec = fixture.spec("whole", "cat /proc/1/comm; cat /proc/keys | wc -c");
    spec.mounts.retain(|mount| mount.target != "/proc");
    spec.mounts.push(bind(std::path::Path::new("/proc"), "/proc"));
    let (_, lines) = fixture.complete(spec).await;
    let first = std::fs::read_to_string("/proc/1/comm").expect("read");
    assert_eq!(lines, [first.trim(), "0"], "the machine's /proc is shown, with its masks");
}

/// The image's `/dev/console` tries to choose what the terminal is mounted over, and its
/// `/dev/pts/0` what the console shows.
async fn a_terminal_on_a_hostile_console(fixture: &mut PodFixture) {
    let pattern = "/proc/sys/kernel/core_pattern";
    let console = fixture.root().join("dev/console");
    let _ = std::fs::remove_dir_all(fixture.root().join("dev/pts"));
    std::fs::create_dir(fixture.root().join("dev/pts")).expect("made");
    symlink(pattern, fixture.root().join("dev/pts/0")).expect("linked");
    let with_terminal = |fixture: &PodFixture, id: &str, script: &str| {
        let mut spec = fixture.spec(id, script);
        spec.mounts.retain(|mount| !mount.target.starts_with("/dev") || mount.target == "/dev/pts");
        spec.process.as_mut().expect("process").terminal = true;
        spec
    };
    for target in [pattern, "/proc/self/attr/exec", "/dev/pts/0", "/nothing", "../etc/passwd"] {
        let _ = std::fs::remove_file(&console);
        symlink(target, &console).expect("linked");
        let error = fixture.client.create(with_terminal(fixture, "link", "true")).await;
        let error = error.expect_err("refused").to_string();
        assert!(error.contains("/dev/console"), "{target}: {error}");
    }
    // Without the link the terminal becomes the console, and the host's file does not.
    std::fs::remove_file(&console).expect("removed");
    let before = std::fs::read(pattern).expect("read");
    let script = "tty; echo to the console > /dev/console; \
        (echo '|/hostile' > /proc/sys/kernel/core_pattern) 2>&1";
    let (_, lines) = fixture.complete(with_terminal(fixture, "console", script)).await;
    if std::fs::read(pattern).expect("read") != before {
        let _ = std::fs::write(pattern, &before);
        panic!("the machine's {pattern} was written: {lines:?}");
    }
    let output = lines.join("\n").replace('\r', "");
    assert!(output.starts_with("/dev/pts/0\nto the console\n"), "{output}");
    assert!(output.contains("Read-only file system"), "{output}");
    std::fs::remove_file(fixture.root().join("dev/pts/0")).expect("removed");
}

/// A container at its process limit can neither block execs nor survive its deletion.
#[test]
fn a_fork_bomb_stops_neither_exec_nor_end() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let mut spec = fixture.spec("bomb", "f() { f | f & }; f; exec sleep 1000");
        let limits = LimitsSpec {
            pids: Some(40),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            ..LimitsSpec::default()
        };
        let cgroup = spec.cgroup.take().expect("a group");
        spec.cgroup = Some(CgroupSpec { limits: Some(limits), ..cgroup });
        fixture.start(spec).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        for number in 0..5 {
            let request = ExecOptions {
                container: "bomb".into(),
                exec: format!("e{number}"),
                process: ProcessSpec { arguments: vec!["true".into()], ..process("") },
                timeout: Some(Duration::from_secs(20)),
                ..ExecOptions::default()
            };
            fixture.client.exec(request).await.expect("an exec gets in");
            assert_eq!(fixture.exec_ended(&format!("e{number}")).await.code, 0);
        }
        fixture.client.kill("bomb", 9).await.expect("signalled");
        assert_eq!(fixture.ended("bomb").await.code, 137);
        fixture.client.delete("bomb").await.expect("deleted");
        fixture.shut_down().await;
    });
}

/// The exec's tree is a fork bomb itself: the timeout kills all of it.
#[test]
fn a_fork_bomb_in_an_exec_ends_at_its_deadline() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let mut spec = fixture.spec("main", "while :; do sleep 1; done");
        let limits = LimitsSpec {
            pids: Some(60),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            ..LimitsSpec::default()
        };
        let cgroup = spec.cgroup.take().expect("a group");
        spec.cgroup = Some(CgroupSpec { limits: Some(limits), ..cgroup });
        fixture.start(spec).await;
        let request = ExecOptions {
            container: "main".into(),
            exec: "bomb".into(),
            process: process("(f() { f | f & }; f) & exec sleep 777"),
            timeout: Some(Duration::from_secs(2)),
            ..ExecOptions::default()
        };
        fixture.client.exec(request).await.expect("an exec");
        assert!(fixture.exec_ended("bomb").await.timed_out);
        let group = fixture.group.child("main").expect("a path");
        // Bounded by the test's deadline.
        while group.stats().expect("stats").pids.current > Some(2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fixture.shut_down().await;
    });
}

/// A container can see a process that enters it, but cannot inspect it. The watcher is first tried
/// on a process that it may inspect, and must have seen some while they entered.
#[test]
fn a_container_that_watches_execs_finds_no_host_descriptors() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let script = "while :; do for p in /proc/[0-9]*; do cd $p 2>/dev/null || continue; \
            { read name < comm; } 2>/dev/null; \
            case $name in sh|ls|sleep) ;; *) echo $name >> /tmp/met;; esac; \
            ls -ld root cwd exe fd/* fd/*/1/roo[t]/etc/shadow fd/*/etc/shadow \
            >> /tmp/seen 2>/dev/null; \
            stat -L -c 'node %d:%i' fd/* >> /tmp/seen 2>/dev/null; done; done";
        let mut spec = fixture.spec("spy", script);
        let bits = super::fixture::DEFAULT_CAPABILITIES | 1 << 19;
        spec.security.as_mut().expect("security").capabilities =
            Some(super::fixture::capabilities(bits));
        fixture.start(spec).await;
        let exec = |exec: String, script: &str| ExecOptions {
            container: "spy".into(),
            exec,
            process: process(script),
            ..ExecOptions::default()
        };
        let read = |fixture: &PodFixture, name: &str| {
            std::fs::read_to_string(fixture.root().join("tmp").join(name)).unwrap_or_default()
        };
        // It finds a descriptor where it is allowed to.
        let open =
            exec("open".to_owned(), "echo > /tmp/known; exec 3< /tmp/known; exec sleep 1000");
        fixture.client.exec(open).await.expect("an exec");
        while !read(&fixture, "seen").contains("/tmp/known") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Bounded by the test's deadline.
        let mut number = 0;
        while number < 40 || read(&fixture, "met").lines().count() < 3 {
            number += 1;
            fixture.client.exec(exec(format!("e{number}"), "true")).await.expect("an exec");
        }
        let found_paths = read(&fixture, "seen");
        let dir = fixture.dir.path().display().to_string();
        // Nothing of the host: no file of the pod, no cgroup, no path to the host's root.
        let null = std::fs::metadata("/dev/null").expect("there");
        let null = format!("node {}:{}", null.dev(), null.ino());
        for word in [dir.as_str(), "cgroup", "shadow", "/ns/", &null] {
            let found: Vec<_> =
                found_paths.lines().filter(|line| line.contains(word)).take(5).collect();
            assert!(found.is_empty(), "{word}: {found:#?}");
        }
        fixture.shut_down().await;
    });
}
