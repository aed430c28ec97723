//! Which addresses are accepted as a socket and which are errors.

use std::path::Path;

use super::{Endpoint, EndpointError};

#[test]
fn valid_endpoint_addresses_are_accepted() {
    let cases = [
        ("unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock", false),
        ("unix:/run/containerd/containerd.sock", "/run/containerd/containerd.sock", false),
        ("UNIX:///run/a.sock", "/run/a.sock", false),
        ("unix:///run/with%20space.sock", "/run/with space.sock", false),
        ("/run/containerd/containerd.sock", "/run/containerd/containerd.sock", true),
        ("/run/odd:name.sock", "/run/odd:name.sock", true),
    ];
    for (text, socket, deprecated) in cases {
        let endpoint: Endpoint = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(endpoint.socket(), Path::new(socket), "{text}");
        assert_eq!(endpoint.warning().is_some(), deprecated, "{text}");
    }
}

#[test]
fn invalid_endpoint_addresses_are_refused() {
    let parse_error = |text: &str| text.parse::<Endpoint>().expect_err(text);
    assert!(matches!(parse_error("tcp://127.0.0.1:1234"), EndpointError::NotUnix(_)));
    assert!(
        matches!(parse_error("npipe:////./pipe/x"), EndpointError::UnknownProtocol(_, name) if name == "npipe")
    );
    assert!(
        matches!(parse_error("unix://run/a.sock"), EndpointError::RelativePath(_, host) if host == "run")
    );
    assert!(
        matches!(parse_error("run/a.sock"), EndpointError::RelativePath(_, host) if host == "run")
    );
    assert!(matches!(parse_error(""), EndpointError::NoPath(_)));
    assert!(matches!(parse_error("unix://"), EndpointError::NoPath(_)));
}

#[test]
fn percent_encoding_is_two_hexadecimal_digits() {
    for wrong in ["%zz", "%+5", "%+f", "%-1", "% f", "%f", "%", "%%4"] {
        let error = format!("unix:///run/é{wrong}").parse::<Endpoint>().expect_err(wrong);
        assert!(matches!(error, EndpointError::Encoding(_, part) if part == wrong));
    }
}

#[test]
fn the_warning_names_the_form_to_use() {
    let endpoint: Endpoint = "/run/a.sock".parse().expect("a bare path is taken");
    let warning = endpoint.warning().expect("a bare path warns");
    assert!(warning.contains("\"unix:///run/a.sock\""), "{warning}");
}
