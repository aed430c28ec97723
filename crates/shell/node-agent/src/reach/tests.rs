//! Resolving probes and hooks of containers.

use super::*;
use pod_model::pod::container::ContainerPort;
use pod_model::pod::handler::{ExecAction, GrpcAction, HttpHeader, TcpSocketAction};

fn container() -> Container {
    let port = |name: &str, number| ContainerPort {
        name: Box::from(name),
        container_port: number,
        ..ContainerPort::default()
    };
    Container {
        name: Box::from("web"),
        ports: vec![port("http", 8080), port("bad", 70000)],
        ..Container::default()
    }
}

fn get(port: PortReference) -> HttpGetAction {
    HttpGetAction { port, path: Box::from("healthz?x=1"), ..HttpGetAction::default() }
}

#[test]
fn addresses_ports_and_paths_come_from_pod_container_and_specification() {
    let named = get(PortReference::Name(Box::from("http")));
    let web = container();
    let way = reach(Action::HttpGet(&named), &web, Some("10.0.0.7"), Asker::Probe);
    let Ok(Reach::Network(NetworkTry::Http { scheme, host, port, path, user_agent, .. })) = way
    else {
        panic!("{way:?}");
    };
    assert_eq!((scheme, host.as_str(), port), ("http", "10.0.0.7", 8080));
    assert_eq!((path.as_str(), user_agent.as_str()), ("/healthz?x=1", "kube-probe/1.36"));

    let own = HttpGetAction {
        host: Box::from("127.0.0.1"),
        scheme: UriScheme::Https,
        http_headers: vec![HttpHeader { name: Box::from("a"), value: Box::from("b") }],
        ..get(PortReference::Number(1))
    };
    let way = reach(Action::HttpGet(&own), &web, None, Asker::Hook);
    let Ok(Reach::Network(NetworkTry::Http { scheme, host, headers, user_agent, .. })) = way else {
        panic!("{way:?}");
    };
    assert_eq!((scheme, host.as_str()), ("https", "127.0.0.1"));
    assert_eq!(headers, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(user_agent, "kube-lifecycle/1.36");

    let grpc = GrpcAction { port: 9, service: Some(Box::from("s")) };
    let way = reach(Action::Grpc(&grpc), &web, Some("fd00::1"), Asker::Probe);
    assert!(matches!(way, Ok(Reach::Network(NetworkTry::Grpc { port: 9, .. }))), "{way:?}");
    let exec = ExecAction { command: vec![Box::from("true")] };
    let way = reach(Action::Exec(&exec), &web, None, Asker::Probe);
    assert_eq!(way, Ok(Reach::Exec(vec!["true".to_owned()])), "needs no address");
}

#[test]
fn what_makes_no_sense_is_said() {
    let web = container();
    let rows = [
        (PortReference::Name(Box::from("none")), Some("1.2.3.4"), "couldn't find port"),
        (PortReference::Name(Box::from("bad")), Some("1.2.3.4"), "invalid port number: 70000"),
        (PortReference::Number(0), Some("1.2.3.4"), "invalid port number: 0"),
        (PortReference::Number(80), None, "no address"),
    ];
    for (port, ip, expected) in rows {
        let tcp = TcpSocketAction { port, host: Box::default() };
        let refused = reach(Action::TcpSocket(&tcp), &web, ip, Asker::Probe);
        assert!(refused.as_ref().is_err_and(|why| why.contains(expected)), "{refused:?}");
    }
}
