//! A row for each rule.

use super::*;
use pod_model::Quantity;
use pod_model::pod::Container;
use pod_model::pod::container::{ContainerPort, PortProtocol};
use pod_model::pod::scheduling::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};
use pod_model::pod::spec::PodOs;

fn node_capacity() -> NodeCapacity {
    NodeCapacity {
        name: "n1".to_owned(),
        labels: [("disk", "ssd"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        pods: 3,
        taints: Vec::new(),
        compares_tolerations: false,
        allocatable: [("cpu", "2"), ("memory", "1Gi")]
            .into_iter()
            .map(|(name, amount)| (name, Quantity::parse(amount).unwrap()))
            .collect(),
        waits_for_terminating_pods: false,
    }
}

fn pod(cpu: &str, memory: &str) -> Pod {
    let mut container = Container::default();
    for (name, amount) in [("cpu", cpu), ("memory", memory)] {
        container.resources.requests.insert(name, Quantity::parse(amount).unwrap());
    }
    let mut pod = Pod::default();
    pod.spec.containers.push(container);
    pod
}

fn of_manifest(mut pod: Pod) -> Pod {
    pod.metadata.annotations.insert("kubernetes.io/config.source", Box::from("file"));
    pod
}

fn reason(decision: &AdmissionDecision) -> &str {
    match decision {
        AdmissionDecision::Admitted => "",
        AdmissionDecision::AdmittedByPreemption(_) => "instead",
        AdmissionDecision::AdmittedAfterTermination(_) => "after",
        AdmissionDecision::Rejected { reason, .. } => reason,
    }
}

#[test]
fn capacity_counts_the_present_pods() {
    let (node_capacity, big) = (node_capacity(), pod("1500m", "1Mi"));
    assert_eq!(admit(&big, &node_capacity, &[]), AdmissionDecision::Admitted);
    assert_eq!(
        admit(&pod("500m", "1Mi"), &node_capacity, &[&big]),
        AdmissionDecision::Admitted,
        "it just fits"
    );
    let asking = pod("501m", "2Gi");
    let words = "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000";
    assert_eq!(
        admit(&asking, &node_capacity, &[&big]),
        rejected("OutOfcpu", words),
        "the first is told"
    );
    let small = pod("0", "0");
    assert_eq!(admit(&small, &node_capacity, &[&small, &small]), AdmissionDecision::Admitted);
    let too_big = pod("3", "2Gi");
    assert_eq!(
        admit(&small, &node_capacity, &[&too_big]),
        AdmissionDecision::Admitted,
        "it wants none of that"
    );
    let words = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
    assert_eq!(admit(&small, &node_capacity, &[&small; 3]), rejected("OutOfpods", words));
}

#[test]
fn a_critical_pod_reports_that_no_pod_can_be_preempted() {
    let big = of_manifest(pod("1500m", "1Mi"));
    let asking = of_manifest(pod("501m", "2Gi"));
    let words = "Unexpected error while attempting to recover from admission failure: preemption: \
                 error finding a set of pods to preempt: no set of running pods found to reclaim \
                 resources: [(res: cpu, q: 1), (res: memory, q: 1074790400), ]";
    assert_eq!(
        admit(&asking, &node_capacity(), &[&big]),
        rejected("UnexpectedAdmissionError", words)
    );
    assert_eq!(
        lacking(&asking, &node_capacity(), &[&big]).as_deref(),
        Some("cpu"),
        "the first of them"
    );
    assert_eq!(lacking(&asking, &node_capacity(), &[]).as_deref(), Some("memory"));
    assert_eq!(lacking(&of_manifest(pod("501m", "1Mi")), &node_capacity(), &[]), None);
    let mut elsewhere = asking.clone();
    elsewhere.spec.node_selector.insert("disk", Box::from("hdd"));
    assert_eq!(
        reason(&admit(&elsewhere, &node_capacity(), &[&big])),
        "NodeAffinity",
        "it lacks more"
    );
    let mut ours = pod("1500m", "1Mi");
    ours.metadata.uid = Box::from("of the API server");
    let decision = admit(&of_manifest(pod("501m", "1Mi")), &node_capacity(), &[&ours]);
    assert_eq!(
        decision,
        AdmissionDecision::AdmittedByPreemption(vec!["of the API server".to_owned()])
    );
    elsewhere = of_manifest(pod("501m", "1Mi"));
    elsewhere.spec.node_name = Box::from("n2");
    assert_eq!(
        reason(&admit(&elsewhere, &node_capacity(), &[&ours])),
        "NodeName",
        "nobody goes for it"
    );
}

#[test]
fn a_missing_resource_is_a_shortage_except_for_plugin_resources() {
    for (resource, expected) in [
        ("hugepages-2Mi", "OutOfhugepages-2Mi"),
        ("ephemeral-storage", "OutOfephemeral-storage"),
        ("kubernetes.io/odd", "OutOfkubernetes.io/odd"),
        ("example.com/gpu", ""),
        ("example.com/known", "OutOfexample.com/known"),
    ] {
        let mut node_capacity = node_capacity();
        node_capacity.allocatable.insert("example.com/known", Quantity::parse("1").unwrap());
        let mut asking = pod("0", "0");
        asking.spec.containers[0]
            .resources
            .requests
            .insert(resource, Quantity::parse("4Mi").unwrap());
        assert_eq!(reason(&admit(&asking, &node_capacity, &[])), expected, "{resource}");
        asking.spec.containers[0].resources.requests.insert(resource, Quantity::ZERO);
        assert_eq!(
            admit(&asking, &node_capacity, &[]),
            AdmissionDecision::Admitted,
            "none of {resource}"
        );
    }
}

#[test]
fn another_operating_system_is_refused() {
    let mut labelled = pod("0", "0");
    labelled.metadata.labels.insert(OS_LABEL, Box::from("windows"));
    assert_eq!(
        reason(&admit(&labelled, &node_capacity(), &[])),
        "PodOSSelectorNodeLabelDoesNotMatch"
    );
    let mut windows_pod = pod("0", "0");
    windows_pod.spec.os = Some(PodOs { name: OsName::Windows });
    assert_eq!(reason(&admit(&windows_pod, &node_capacity(), &[])), "PodOSNotSupported");
    windows_pod.spec.os = Some(PodOs { name: OsName::Linux });
    assert_eq!(admit(&windows_pod, &node_capacity(), &[]), AdmissionDecision::Admitted);
}

#[test]
fn selectors_and_required_affinity_must_match() {
    let mut selecting = pod("0", "0");
    selecting.spec.node_selector.insert("disk", Box::from("ssd"));
    assert_eq!(admit(&selecting, &node_capacity(), &[]), AdmissionDecision::Admitted);
    selecting.spec.node_selector.insert("disk", Box::from("hdd"));
    assert_eq!(reason(&admit(&selecting, &node_capacity(), &[])), "NodeAffinity");

    let rows = [
        ("disk", "In", vec!["hdd", "ssd"], true),
        ("disk", "In", vec!["hdd"], false),
        ("disk", "NotIn", vec!["hdd"], true),
        ("none", "NotIn", vec!["hdd"], true),
        ("disk", "Exists", vec![], true),
        ("none", "Exists", vec![], false),
        ("none", "DoesNotExist", vec![], true),
        ("cores", "Gt", vec!["7"], true),
        ("cores", "Gt", vec!["8"], false),
        ("cores", "Lt", vec!["9"], true),
        ("cores", "Lt", vec!["8"], false),
        ("disk", "Gt", vec!["1"], false),
        ("disk", "Nonsense", vec![], false),
    ];
    for (key, operator, values, expected) in rows {
        let requirement = NodeSelectorRequirement {
            key: Box::from(key),
            operator: pod_model::pod::scheduling::NodeSelectorOperator::from_text(operator),
            values: values.iter().map(|value| Box::from(*value)).collect(),
        };
        let with = |match_expressions, match_fields| {
            let term = NodeSelectorTerm { match_expressions, match_fields };
            let required = Some(NodeSelector { node_selector_terms: vec![term] });
            let affinity = NodeAffinity { required, preferred: Vec::new() };
            let mut pod = pod("0", "0");
            let node_affinity = Some(Box::new(affinity));
            pod.spec.affinity = Some(Box::new(Affinity { node_affinity, ..Affinity::default() }));
            pod
        };
        let asking = with(vec![requirement.clone()], Vec::new());
        assert_eq!(
            admit(&asking, &node_capacity(), &[]) == AdmissionDecision::Admitted,
            expected,
            "{key} {operator}"
        );
        let named = NodeSelectorRequirement { key: Box::from("metadata.name"), ..requirement };
        let by_name = with(Vec::new(), vec![named]);
        assert_eq!(
            matches_node(&by_name, &BTreeMap::new(), "ssd"),
            matches!((operator, expected), ("In", true) | ("NotIn" | "Exists", _))
                && operator != "DoesNotExist",
            "by name: {operator}"
        );
    }
    let mut empty = pod("0", "0");
    let nothing = NodeAffinity { required: Some(NodeSelector::default()), preferred: Vec::new() };
    empty.spec.affinity =
        Some(Box::new(Affinity { node_affinity: Some(Box::new(nothing)), ..Affinity::default() }));
    assert_eq!(
        reason(&admit(&empty, &node_capacity(), &[])),
        "NodeAffinity",
        "no term matches nothing"
    );
}

#[test]
fn ports_of_the_host_belong_to_one_pod() {
    let with = |host_port, host_ip: &str, protocol: PortProtocol| {
        let mut pod = pod("0", "0");
        let port = ContainerPort {
            host_port,
            container_port: 1,
            host_ip: Box::from(host_ip),
            protocol,
            ..ContainerPort::default()
        };
        pod.spec.containers[0].ports.push(port);
        pod
    };
    let taken = with(80, "10.0.0.1", PortProtocol::Tcp);
    let rows = [
        (with(80, "10.0.0.1", PortProtocol::Tcp), "NodePorts"),
        (with(80, "", PortProtocol::Tcp), "NodePorts"),
        (with(80, "0.0.0.0", PortProtocol::default()), "NodePorts"),
        (with(80, "10.0.0.2", PortProtocol::Tcp), ""),
        (with(80, "10.0.0.1", PortProtocol::Udp), ""),
        (with(81, "10.0.0.1", PortProtocol::Tcp), ""),
        (with(0, "", PortProtocol::Tcp), ""),
    ];
    for (asking, expected) in rows {
        assert_eq!(reason(&admit(&asking, &node_capacity(), &[&taken])), expected);
    }
    let none = with(0, "", PortProtocol::Tcp);
    assert_eq!(
        admit(&none, &node_capacity(), &[&none]),
        AdmissionDecision::Admitted,
        "neither has any"
    );
}

#[test]
fn a_pod_waits_for_pods_that_are_ending_where_only_they_stand_against_it() {
    let big = pod("1500m", "1Mi");
    let small = pod("0", "0");
    let mut on_host = small.clone();
    on_host.spec.containers[0].ports = vec![ContainerPort { host_port: 80, ..Default::default() }];
    let waiting = NodeCapacity { waits_for_terminating_pods: true, ..node_capacity() };
    let asks_for_more = pod("3", "1Mi");
    for (what, of_waiting, of_reference, asked, staying, terminating) in [
        ("there is room", "", "", &big, vec![], vec![&small]),
        ("resources", "after", "OutOfcpu", &big, vec![&small], vec![&big]),
        ("a number of pods", "after", "OutOfpods", &small, vec![&small; 2], vec![&small]),
        ("host ports", "after", "NodePorts", &on_host, vec![], vec![&on_host]),
        ("one that stays has it", "OutOfcpu", "OutOfcpu", &big, vec![&big], vec![&small]),
        ("one that stays has some", "OutOfcpu", "OutOfcpu", &big, vec![&big], vec![&big]),
        ("never any room", "OutOfcpu", "OutOfcpu", &asks_for_more, vec![], vec![&small]),
        ("nothing ends", "OutOfpods", "OutOfpods", &small, vec![&small; 3], vec![]),
    ] {
        let present = PresentPods { staying, terminating };
        let admit =
            |node_capacity| admit_beside(asked, node_capacity, &NodeSupport::default(), &present);
        assert_eq!(reason(&admit(&waiting)), of_waiting, "{what}");
        assert_eq!(reason(&admit(&node_capacity())), of_reference, "{what}, as the reference does");
    }
    // One of a manifest, which would make others end: it waits before it does that.
    let mut low = small.clone();
    low.metadata.uid = Box::from("low");
    let present = PresentPods { staying: vec![&low; 2], terminating: vec![&small] };
    let admit = |node_capacity| {
        admit_beside(&of_manifest(small.clone()), node_capacity, &NodeSupport::default(), &present)
    };
    assert_eq!(reason(&admit(&waiting)), "after");
    assert_eq!(reason(&admit(&node_capacity())), "instead");
}
