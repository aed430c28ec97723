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
fn host_port_and_path_are_resolved_from_pod_container_and_handler() {
    let named = get(PortReference::Name(Box::from("http")));
    let web = container();
    let resolved =
        resolve_handler(HandlerAction::HttpGet(&named), &web, Some("10.0.0.7"), Requester::Probe);
    let Ok(ResolvedHandler::Network(NetworkProbeRequest::Http {
        scheme,
        host,
        port,
        path,
        user_agent,
        ..
    })) = resolved
    else {
        panic!("{resolved:?}");
    };
    assert_eq!((scheme, host.as_str(), port), ("http", "10.0.0.7", 8080));
    assert_eq!((path.as_str(), user_agent.as_str()), ("/healthz?x=1", "kube-probe/1.36"));

    let own = HttpGetAction {
        host: Box::from("127.0.0.1"),
        scheme: UriScheme::Https,
        http_headers: vec![HttpHeader { name: Box::from("a"), value: Box::from("b") }],
        ..get(PortReference::Number(1))
    };
    let resolved = resolve_handler(HandlerAction::HttpGet(&own), &web, None, Requester::Hook);
    let Ok(ResolvedHandler::Network(NetworkProbeRequest::Http {
        scheme,
        host,
        headers,
        user_agent,
        ..
    })) = resolved
    else {
        panic!("{resolved:?}");
    };
    assert_eq!((scheme, host.as_str()), ("https", "127.0.0.1"));
    assert_eq!(headers, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(user_agent, "kube-lifecycle/1.36");

    let grpc = GrpcAction { port: 9, service: Some(Box::from("s")) };
    let resolved =
        resolve_handler(HandlerAction::Grpc(&grpc), &web, Some("fd00::1"), Requester::Probe);
    assert!(
        matches!(resolved, Ok(ResolvedHandler::Network(NetworkProbeRequest::Grpc { port: 9, .. }))),
        "{resolved:?}"
    );
    let exec = ExecAction { command: vec![Box::from("true")] };
    let resolved = resolve_handler(HandlerAction::Exec(&exec), &web, None, Requester::Probe);
    assert_eq!(resolved, Ok(ResolvedHandler::Exec(vec!["true".to_owned()])), "needs no address");
}

#[test]
fn an_unresolvable_handler_is_an_error_that_names_the_value() {
    let web = container();
    let rows = [
        (PortReference::Name(Box::from("none")), Some("1.2.3.4"), "couldn't find port"),
        (PortReference::Name(Box::from("bad")), Some("1.2.3.4"), "invalid port number: 70000"),
        (PortReference::Number(0), Some("1.2.3.4"), "invalid port number: 0"),
        (PortReference::Number(80), None, "no address"),
    ];
    for (port, ip, expected) in rows {
        let tcp = TcpSocketAction { port, host: Box::default() };
        let refused = resolve_handler(HandlerAction::TcpSocket(&tcp), &web, ip, Requester::Probe);
        assert!(refused.as_ref().is_err_and(|why| why.contains(expected)), "{refused:?}");
    }
}
