//! The namespaces for each combination of settings.

use super::*;
use crate::testing::one_with;
use ports::runtime_objects::HandlerFeatures;
use ports::runtime_objects::NamespaceMode::{Container, Node, Pod as PodMode, Target};

#[test]
fn host_namespaces_follow_the_pod_specification() {
    for (spec, network, pid, ipc) in [
        ("", PodMode, Container, PodMode),
        ("hostNetwork: true,", Node, Container, PodMode),
        ("hostPID: true,", PodMode, Node, PodMode),
        ("hostIPC: true,", PodMode, Container, Node),
        ("shareProcessNamespace: true,", PodMode, PodMode, PodMode),
        ("shareProcessNamespace: false,", PodMode, Container, PodMode),
        ("shareProcessNamespace: true, hostPID: true,", PodMode, Node, PodMode),
    ] {
        let options = of_pod(&one_with(spec, ""), &PodSetupInputs::default()).expect("allowed");
        assert_eq!((options.network, options.pid, options.ipc), (network, pid, ipc), "{spec}");
        assert_eq!(options.target_id, "");
    }
}

#[test]
fn only_a_container_with_its_own_processes_joins_another() {
    for (spec, target, pid, target_id) in [
        ("", Some("c1"), Target, "c1"),
        ("", None, Container, ""),
        ("shareProcessNamespace: true,", Some("c1"), PodMode, ""),
        ("hostPID: true,", Some("c1"), Node, ""),
    ] {
        let options =
            of_container(&one_with(spec, ""), &PodSetupInputs::default(), target).expect("allowed");
        assert_eq!((options.pid, options.target_id.as_str()), (pid, target_id), "{spec}");
    }
}

#[test]
fn users_of_its_own_need_a_handler_that_gives_them() {
    let own = UserNamespace { mode: PodMode, ..Default::default() };
    let nodes = UserNamespace { mode: Node, ..Default::default() };
    let refused = |what: &str| Err(format!("can't set `spec.hostUsers: false`, {what}"));
    for (spec, name, able, given, expected) in [
        ("", "", false, false, Ok(nodes.clone())),
        ("", "", true, true, Ok(nodes.clone())),
        ("hostUsers: true,", "", true, true, Ok(nodes)),
        ("hostUsers: false,", "", true, true, Ok(own.clone())),
        ("hostUsers: false,", "", false, true, refused("runtime does not support user namespaces")),
        (
            "hostUsers: false,",
            "kata",
            false,
            true,
            refused("RuntimeClass handler \"kata\" does not support user namespaces"),
        ),
        (
            "hostUsers: false,",
            "",
            true,
            false,
            Err("no users have been set aside for the pod yet".to_owned()),
        ),
    ] {
        let handler =
            HandlerFeatures { name: name.to_owned(), user_namespaces: able, ..Default::default() };
        let user_namespace = given.then(|| own.clone());
        let facts = PodSetupInputs { handler, user_namespace, ..Default::default() };
        let outcome = of_pod(&one_with(spec, ""), &facts);
        let users = outcome.map(|options| options.user.expect("always told"));
        assert_eq!(users.map_err(|error| error.to_string()), expected, "{spec} {name} {able}");
    }
}
