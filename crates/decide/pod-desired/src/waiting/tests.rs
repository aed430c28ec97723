//! Which running pods are kept for which waiting ones.

use super::*;

fn waiting(names: &[(&str, &str)]) -> WaitingPods {
    let pod = |(namespace, name): &(&str, &str)| {
        let mut pod = Pod::default();
        pod.metadata.namespace = Box::from(*namespace);
        pod.metadata.name = Box::from(*name);
        pod
    };
    let pods: Vec<Pod> = names.iter().map(pod).collect();
    WaitingPods::new(pods.iter())
}

#[test]
fn a_pod_that_waits_keeps_those_of_its_own_name_and_those_that_have_none() {
    let one: &[(&str, &str)] = &[("default", "a-n")];
    let two: &[(&str, &str)] = &[("default", "a-n"), ("system", "b-n")];
    for (what, names, (namespace, name), expected) in [
        ("nobody waits", &[][..], ("default", "a-n"), false),
        ("nobody waits for what has no name", &[], ("", ""), false),
        ("its own name", one, ("default", "a-n"), true),
        ("another name", one, ("default", "b-n"), false),
        ("another namespace", one, ("system", "a-n"), false),
        ("the name of another that waits", two, ("system", "b-n"), true),
        ("halves of two names", two, ("system", "a-n"), false),
        ("nothing is known of it", one, ("", ""), true),
        ("its name is not known", one, ("system", ""), true),
        ("its namespace is not known", one, ("", "b-n"), true),
    ] {
        let waiting = waiting(names);
        assert_eq!(waiting.may_adopt(namespace, name), expected, "{what}");
        assert_eq!(waiting.is_empty(), names.is_empty(), "{what}");
    }
}
