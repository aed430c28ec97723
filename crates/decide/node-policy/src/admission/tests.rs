//! A row for each rule.

use super::*;
use pod_model::Quantity;
use pod_model::pod::Container;
use pod_model::pod::container::{ContainerPort, PortProtocol};
use pod_model::pod::scheduling::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};
use pod_model::pod::spec::PodOs;

fn room() -> NodeRoom {
    NodeRoom {
        name: "n1".to_owned(),
        labels: [("disk", "ssd"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        pods: 3,
        allocatable: [("cpu", "2"), ("memory", "1Gi")]
            .into_iter()
            .map(|(name, amount)| (name, Quantity::parse(amount).unwrap()))
            .collect(),
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

fn reason(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Admitted => "",
        Verdict::Rejected { reason, .. } => reason,
    }
}

#[test]
fn room_is_counted_with_those_who_are_there() {
    let (room, big) = (room(), pod("1500m", "1Mi"));
    assert_eq!(judge(&big, &room, &[]), Verdict::Admitted);
    assert_eq!(judge(&pod("500m", "1Mi"), &room, &[&big]), Verdict::Admitted, "it just fits");
    let Verdict::Rejected { reason, message } = judge(&pod("501m", "2Gi"), &room, &[&big]) else {
        panic!("admitted");
    };
    assert_eq!(reason, "UnexpectedAdmissionError");
    let lacking = "[(res: cpu, q: 1), (res: memory, q: 1074790400), ]";
    assert!(message.ends_with(lacking), "{message}");
    let small = pod("0", "0");
    assert_eq!(judge(&small, &room, &[&small, &small]), Verdict::Admitted);
    let full = judge(&small, &room, &[&small, &small, &small]);
    assert!(
        matches!(&full, Verdict::Rejected { message, .. } if message.contains("(res: pods, q: 1)"))
    );
}

#[test]
fn another_operating_system_is_refused() {
    let mut labelled = pod("0", "0");
    labelled.metadata.labels.insert(OS_LABEL, Box::from("windows"));
    assert_eq!(reason(&judge(&labelled, &room(), &[])), "PodOSSelectorNodeLabelDoesNotMatch");
    let mut said = pod("0", "0");
    said.spec.os = Some(PodOs { name: OsName::Windows });
    assert_eq!(reason(&judge(&said, &room(), &[])), "PodOSNotSupported");
    said.spec.os = Some(PodOs { name: OsName::Linux });
    assert_eq!(judge(&said, &room(), &[]), Verdict::Admitted);
}

#[test]
fn selectors_and_required_affinity_must_match() {
    let mut selecting = pod("0", "0");
    selecting.spec.node_selector.insert("disk", Box::from("ssd"));
    assert_eq!(judge(&selecting, &room(), &[]), Verdict::Admitted);
    selecting.spec.node_selector.insert("disk", Box::from("hdd"));
    assert_eq!(reason(&judge(&selecting, &room(), &[])), "NodeAffinity");

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
        assert_eq!(judge(&asking, &room(), &[]) == Verdict::Admitted, expected, "{key} {operator}");
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
    assert_eq!(reason(&judge(&empty, &room(), &[])), "NodeAffinity", "no term matches nothing");
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
        assert_eq!(reason(&judge(&asking, &room(), &[&taken])), expected);
    }
}
