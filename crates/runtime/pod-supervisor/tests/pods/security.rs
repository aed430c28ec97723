//! Capabilities, seccomp filters and users of a container and of an exec.

use pod_supervisor::spec::{CapabilitySpec, ContainerSpec, SeccompSpec, SecuritySpec};
use seccomp_filter::{Architecture, SeccompAction, SeccompProfile, SyscallRule, compile};

use super::fixture::{DEFAULT_CAPABILITIES, PodFixture, capabilities, run};

const PRINT_STATUS: &str =
    "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status";

fn spec_with(
    fixture: &PodFixture,
    id: &str,
    script: &str,
    change: impl FnOnce(&mut SecuritySpec),
) -> ContainerSpec {
    let mut spec = fixture.spec(id, script);
    change(spec.security.as_mut().expect("security"));
    spec
}

/// The capabilities of this process: the host may not grant all of the default ones.
fn own_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read");
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).expect("a line");
    u64::from_str_radix(line, 16).expect("a number")
}

fn filter_without_syscall(name: &str) -> SeccompSpec {
    let profile = SeccompProfile {
        default_action: SeccompAction::Allow,
        architectures: vec![Architecture::native().expect("known")],
        rules: vec![SyscallRule {
            syscalls: vec![name.to_owned()],
            action: SeccompAction::Errno(38),
            conditions: Vec::new(),
        }],
        flags: None,
    };
    SeccompSpec::from_program(&compile(&profile).expect("compiled"))
}

#[test]
fn a_container_has_exactly_the_requested_capabilities() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let default = format!("{:016x}", DEFAULT_CAPABILITIES & own_capabilities());
        let lines = fixture.output("default", PRINT_STATUS).await;
        assert_eq!(lines[1], format!("CapPrm:\t{default}"));
        assert_eq!(lines[2], format!("CapEff:\t{default}"));
        assert_eq!(lines[3], format!("CapBnd:\t{default}"));
        let spec =
            spec_with(&fixture, "none", PRINT_STATUS, |security| security.capabilities = None);
        let (_, lines) = fixture.complete(spec).await;
        assert!(lines[..5].iter().all(|line| line.ends_with("\t0000000000000000")), "{lines:?}");
        let spec = spec_with(&fixture, "user", PRINT_STATUS, |security| {
            security.uid = 1000;
            let net_bind_service = 1 << 10;
            security.capabilities = Some(CapabilitySpec {
                bounding: net_bind_service,
                effective: net_bind_service,
                permitted: net_bind_service,
                inheritable: net_bind_service,
                ambient: net_bind_service,
            });
        });
        let (_, lines) = fixture.complete(spec).await;
        assert!(lines[..5].iter().all(|line| line.ends_with("\t0000000000000400")), "{lines:?}");
        let all = u64::MAX;
        let spec = spec_with(&fixture, "all", PRINT_STATUS, |security| {
            security.capabilities = Some(capabilities(all));
        });
        let (exit, lines) = fixture.complete(spec).await;
        assert_eq!(exit.code, 0, "{lines:?}");
        fixture.shut_down().await;
    });
}

#[test]
fn a_container_runs_with_the_requested_user_and_groups() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = spec_with(
            &fixture,
            "a",
            "id -u; id -g; id -G; touch /file 2>&1 || echo denied",
            |security| {
                security.uid = 1234;
                security.gid = 5678;
                security.additional_gids = vec![5678, 9, 10];
            },
        );
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines[..3], ["1234", "5678", "5678 9 10"]);
        assert_eq!(lines.last().map(String::as_str), Some("denied"));
        // Any user in the container can reopen standard output.
        let spec =
            spec_with(&fixture, "b", "echo again > /dev/stdout", |security| security.uid = 1234);
        let (exit, lines) = fixture.complete(spec).await;
        assert_eq!((exit.code, lines), (0, vec!["again".to_owned()]));
        fixture.shut_down().await;
    });
}

/// setuid(-1) means "unchanged" to the kernel, so the process would stay root.
#[test]
fn the_reserved_user_id_is_refused_and_leaves_no_process_root() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let changes: [fn(&mut SecuritySpec); 3] = [
            |security| security.uid = u32::MAX,
            |security| security.gid = u32::MAX,
            |security| security.additional_gids = vec![5, u32::MAX],
        ];
        for change in changes {
            let spec = spec_with(&fixture, "a", "id", change);
            let refused = fixture.client.create(spec).await.expect_err("refused").to_string();
            assert!(refused.contains("4294967295 is no user"), "{refused}");
        }
        let spec = spec_with(&fixture, "a", "id -u", |security| security.uid = u32::MAX - 1);
        assert_eq!(fixture.complete(spec).await.1, ["4294967294"]);
        fixture.shut_down().await;
    });
}

#[test]
fn a_seccomp_filter_applies_to_the_container_and_to_its_execs() {
    run(async {
        let mut fixture = PodFixture::new().await;
        for (id, no_new_privileges) in [("with", true), ("without", false)] {
            let script = format!("{PRINT_STATUS}; mkdir /tmp/x-$$ 2>&1; sleep 1000");
            let spec = spec_with(&fixture, id, &script, |security| {
                security.no_new_privileges = no_new_privileges;
                security.seccomp = Some(filter_without_syscall("mkdir"));
            });
            fixture.start(spec).await;
            let (exit, out, err) = fixture.exec(id, &format!("{PRINT_STATUS}; mkdir /tmp/y")).await;
            assert_ne!(exit.code, 0, "mkdir is refused in an exec");
            assert!(err.contains("not implemented"), "{err}");
            assert!(out.contains("Seccomp:\t2"), "{out}");
            assert!(
                out.contains(&format!("NoNewPrivs:\t{}", u8::from(no_new_privileges))),
                "{out}"
            );
            let mut lines = fixture.lines(id).join("\n");
            while !lines.contains("not implemented") {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                lines = fixture.lines(id).join("\n");
            }
            assert!(lines.contains("Seccomp:\t2"), "{lines}");
            // The exec has the same capabilities as the container.
            let capability_lines = |text: &str| {
                text.lines()
                    .filter(|line| line.starts_with("Cap"))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(capability_lines(&out), capability_lines(&lines));
            fixture.client.delete(id).await.expect("deleted");
        }
        let broken = spec_with(&fixture, "broken", "true", |security| {
            security.seccomp = Some(SeccompSpec { program: vec![1, 2, 3], ..Default::default() });
        });
        fixture.client.create(broken).await.expect("created");
        let error = fixture
            .client
            .start("broken")
            .await
            .expect_err("a container whose filter is broken must not start");
        assert!(error.to_string().contains("filter"), "{error}");
        fixture.shut_down().await;
    });
}

#[test]
fn a_security_feature_that_the_kernel_lacks_is_named_in_the_error() {
    run(async {
        let fixture = PodFixture::new().await;
        if std::fs::metadata("/sys/module/apparmor").is_err() {
            let spec = spec_with(&fixture, "a", "true", |security| {
                security.apparmor_profile = "profile".into();
            });
            let error = fixture.client.create(spec).await.expect_err("no AppArmor");
            assert!(error.to_string().contains("AppArmor"), "{error}");
        }
        if std::fs::metadata("/sys/fs/selinux/enforce").is_err() {
            let spec = spec_with(&fixture, "b", "true", |security| {
                security.selinux_label = "label".into();
            });
            let error = fixture.client.create(spec).await.expect_err("no SELinux");
            assert!(error.to_string().contains("SELinux"), "{error}");
        }
    });
}

#[test]
fn only_devices_allowed_by_the_cgroup_can_be_opened() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let script = "mknod /tmp/disk b 7 0 && echo made; head -c1 /tmp/disk 2>&1; \
            head -c1 /dev/full | od -An -tx1; echo x > /dev/full; mknod /tmp/mem c 1 1; head -c1 /tmp/mem 2>&1; \
            ls /dev | tr '\\n' ' '";
        let lines = fixture.output("a", script).await.join("\n");
        assert!(lines.contains("made"), "CAP_MKNOD is a default capability: {lines}");
        assert!(lines.contains("/tmp/disk: Operation not permitted"), "{lines}");
        assert!(lines.contains("/tmp/mem: Operation not permitted"), "{lines}");
        for name in
            ["null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "ptmx", "pts"]
        {
            assert!(lines.split_whitespace().any(|word| word == name), "{name}: {lines}");
        }
        let mut spec =
            fixture.spec("b", "ls -l /dev/ours | cut -c1-10; head -c1 /dev/ours | od -An -tx1");
        spec.devices = vec![pod_supervisor::spec::DeviceNode {
            path: "/dev/ours".into(),
            kind: "c".into(),
            major: 1,
            minor: 5,
            mode: 0o640,
            ..Default::default()
        }];
        let (_, lines) = fixture.complete(spec).await;
        assert_eq!(lines, ["crw-r-----", " 00"]);
        fixture.shut_down().await;
    });
}
