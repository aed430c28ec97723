//! Each port appears once.

use super::*;
use crate::testing::{one, pod};

fn rows(pod: &Pod) -> Vec<(Protocol, i32, i32, String)> {
    let row = |it: PortMapping| (it.protocol, it.container_port, it.host_port, it.host_ip);
    of_pod(pod).into_iter().map(row).collect()
}

#[test]
fn every_field_arrives() {
    let pod =
        one("ports: [{containerPort: 80, hostPort: 8080, hostIP: 127.0.0.1, protocol: TCP}, \
                   {containerPort: 53, protocol: UDP}, {containerPort: 9, protocol: SCTP}, \
                   {containerPort: 7}, {containerPort: 8, protocol: ODD}]");
    let expected = [
        (Protocol::Tcp, 80, 8080, "127.0.0.1".to_owned()),
        (Protocol::Udp, 53, 0, String::new()),
        (Protocol::Sctp, 9, 0, String::new()),
        (Protocol::Tcp, 7, 0, String::new()),
        (Protocol::Tcp, 8, 0, String::new()),
    ];
    assert_eq!(rows(&pod), expected);
}

#[test]
fn duplicates_count_once_and_families_are_apart() {
    for (ports, count) in [
        ("{name: a, containerPort: 1}, {name: a, containerPort: 2}", 1),
        ("{name: a, containerPort: 1}, {name: b, containerPort: 1}", 2),
        ("{containerPort: 1}, {containerPort: 1}", 1),
        ("{containerPort: 1}, {containerPort: 2}", 2),
        ("{containerPort: 1, protocol: TCP}, {containerPort: 1, protocol: UDP}", 2),
        ("{containerPort: 1, hostPort: 1}, {containerPort: 1, hostPort: 2}", 2),
        ("{containerPort: 1, hostIP: 0.0.0.0}, {containerPort: 1, hostIP: \"::\"}", 2),
        ("{containerPort: 1, hostIP: 0.0.0.0}, {containerPort: 1}", 2),
        ("{containerPort: 1, hostIP: 0.0.0.0}, {containerPort: 1, hostIP: 0.0.0.0}", 1),
    ] {
        assert_eq!(rows(&one(&format!("ports: [{ports}]"))).len(), count, "{ports}");
    }
    // A port's name may equal a generated name: then it takes that name's place.
    let clash = "{name: \"v6-TCP-:::1:0\", containerPort: 5}, {containerPort: 1, protocol: TCP, hostIP: \"::\"}";
    assert_eq!(rows(&one(&format!("ports: [{clash}]"))).len(), 1);
    let clash = "{name: \"any-TCP-:1:0\", containerPort: 5}, {containerPort: 1, protocol: TCP}";
    assert_eq!(rows(&one(&format!("ports: [{clash}]"))).len(), 1);
}

#[test]
fn names_are_per_container_and_init_containers_have_none() {
    let pod = pod("{initContainers: [{name: i, image: i, ports: [{containerPort: 9}]}], \
                    containers: [{name: a, image: i, ports: [{name: p, containerPort: 1}]}, \
                                 {name: b, image: i, ports: [{name: p, containerPort: 2}]}]}");
    let ports: Vec<i32> = rows(&pod).into_iter().map(|row| row.1).collect();
    assert_eq!(ports, [1, 2]);
}
