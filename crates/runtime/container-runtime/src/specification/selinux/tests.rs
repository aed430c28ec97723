//! The labels that follow from a policy and from options, as text.

use super::*;

const POD: &str = "0123456789abcdef";

fn option(user: &str, role: &str, kind: &str, level: &str) -> v1::SeLinuxOption {
    let [user, role, kind, level] = [user, role, kind, level].map(str::to_owned);
    v1::SeLinuxOption { user, role, r#type: kind, level }
}

fn chosen(
    of_pod: Option<&v1::SeLinuxOption>,
    of_container: Option<&v1::SeLinuxOption>,
    privileged: bool,
) -> (String, String) {
    let request = LabelRequest { pod: POD, of_pod, of_container, privileged };
    let SelinuxLabels { process, file } = choose(&defaults(""), &request);
    (process, file)
}

#[test]
fn options_change_the_defaults_part_by_part() {
    let own = level_of(POD);
    let level = option("", "", "", "s0:c1,c2");
    let kind = option("", "", "spc_t", "");
    let whole = option("u", "r", "t", "s0");
    let nothing = option("", "", "", "");
    let process = |text: &str| format!("system_u:system_r:{text}");
    let file = |level: &str| format!("system_u:object_r:container_file_t:{level}");
    for (of_pod, of_container, wanted) in [
        (None, None, (process(&format!("container_t:{own}")), file(&own))),
        (None, Some(&level), (process("container_t:s0:c1,c2"), file("s0:c1,c2"))),
        (Some(&level), None, (process("container_t:s0:c1,c2"), file("s0:c1,c2"))),
        // Its own type at the pod's level: the pod's containers share files.
        (Some(&level), Some(&kind), (process("spc_t:s0:c1,c2"), file("s0:c1,c2"))),
        (None, Some(&kind), (process(&format!("spc_t:{own}")), file(&own))),
        (Some(&kind), Some(&nothing), (process(&format!("spc_t:{own}")), file(&own))),
        (Some(&kind), Some(&level), (process("container_t:s0:c1,c2"), file("s0:c1,c2"))),
        (None, Some(&whole), ("u:r:t:s0".into(), "u:object_r:container_file_t:s0".into())),
    ] {
        assert_eq!(chosen(of_pod, of_container, false), wanted, "{of_pod:?} {of_container:?}");
    }
}

#[test]
fn a_privileged_container_has_labels_for_its_files_only() {
    let level = option("", "", "", "s0:c1");
    let (process, file) = chosen(None, Some(&level), true);
    assert_eq!((&*process, &*file), ("", "system_u:object_r:container_file_t:s0:c1"));
}

#[test]
fn defaults_come_from_the_policy() {
    let text = "# process = \"no:no:no:s0\"\nprocess = \"system_u:system_r:own_t:s0\"\n\
                file=\"system_u:object_r:own_file_t:s0\"\nro_file = \"x:y:z:s0\"\n";
    let found = defaults(text);
    assert_eq!(found.process.write(), "system_u:system_r:own_t:s0");
    assert_eq!(found.file.write(), "system_u:object_r:own_file_t:s0");
    for broken in ["", "process", "process = one", "process = \"a:b\""] {
        assert_eq!(defaults(broken).process.write(), USUAL_PROCESS, "{broken:?}");
    }
    // A policy without levels gets none.
    let found = defaults("process = u:r:t\nfile = u:o:f\n");
    let labels = choose(&found, &request(None));
    assert_eq!((&*labels.process, &*labels.file), ("u:r:t", "u:o:f"));
    assert_eq!(policy_of("SELINUX=permissive\nSELINUXTYPE=targeted\n"), Some("targeted"));
    assert_eq!(policy_of("#SELINUXTYPE=x\n"), None);
    assert_eq!(policy_of("SELINUXTYPE=../../tmp\n"), None);
}

#[test]
fn levels_of_pods_are_stable_and_mostly_distinct() {
    assert_eq!(level_of(POD), level_of(POD));
    let mut all = std::collections::BTreeSet::new();
    for number in 0..1000 {
        let level = level_of(&format!("{number:064x}"));
        assert!(is_level(&level), "{level}");
        let (one, other) = level.strip_prefix("s0:").unwrap().split_once(',').unwrap();
        let number = |text: &str| text.trim_start_matches('c').parse::<u64>().unwrap();
        assert!(number(one) < number(other) && number(other) < CATEGORIES, "{level}");
        all.insert(level);
    }
    // A thousand of half a million pairs: one duplicate is to be expected.
    assert!(all.len() > 990, "{}", all.len());
}

#[test]
fn levels_are_parsed_in_every_form() {
    for good in ["s0", "s0-s1", "s0:c1", "s0:c1,c2", "s0:c1.c5,c1023", "s0-s0:c0.c1023"] {
        assert!(is_level(good), "{good:?}");
    }
    for bad in
        ["", "s", "s10", "0", "s0:", "s0:c", "s0:c1,", "s0:c12345", "s0:c1\",x=", "S0", "s0:1"]
    {
        assert!(!is_level(bad), "{bad:?}");
    }
}

fn request(of_container: Option<&v1::SeLinuxOption>) -> LabelRequest<'_> {
    LabelRequest { pod: POD, of_pod: None, of_container, privileged: false }
}

#[test]
fn without_selinux_labels_are_ignored_and_invalid_ones_are_refused() {
    let none = Selinux::default();
    let level = option("", "", "", "s0:c1");
    assert_eq!(none.labels(&request(Some(&level))).unwrap(), SelinuxLabels::default());
    assert_eq!(none.labels(&request(None)).unwrap(), SelinuxLabels::default());
    for (odd, why) in [
        (option("", "", "", "high"), "level"),
        (option("", "", "a\",upperdir=/etc,x=\"", ""), "type"),
        (option("a:b", "", "", ""), "user"),
        (option("", "a b", "", ""), "role"),
    ] {
        let failure = none.labels(&request(Some(&odd))).unwrap_err();
        assert!(failure.text.contains(why), "{failure}");
    }
}

#[test]
fn label_requests_are_read_from_the_cri_options() {
    let level = option("", "", "", "s0:c1");
    let sandbox = v1::PodSandboxConfig {
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(v1::LinuxSandboxSecurityContext {
                selinux_options: Some(level.clone()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let container = v1::ContainerConfig {
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                privileged: true,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = LabelRequest::of_pod(POD, &sandbox).of_container(&container);
    assert_eq!(
        (request.of_pod, request.of_container, request.privileged),
        (Some(&level), None, true)
    );
}
