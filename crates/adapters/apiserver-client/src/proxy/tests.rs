//! `NO_PROXY` case by case, proxy URLs, and which of several proxies counts.

use super::*;

fn server(text: &str) -> ServerAddress {
    ServerAddress::parse(text, true).expect("an address")
}

fn environment(variables: &[(&str, &str)]) -> ProxyEnvironment {
    ProxyEnvironment::from_variables(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// Server, `NO_PROXY`, and whether the connection is direct.
const NO_PROXY: [(&str, &str, bool); 48] = [
    ("https://api.example.com:6443", "", false),
    ("https://api.example.com:6443", "*", true),
    ("https://api.example.com:6443", "other, * ,more", true),
    ("https://api.example.com:6443", "*example.com", false),
    ("https://10.0.0.1:6443", "*", true),
    // Never a proxy to this machine.
    ("https://localhost:6443", "", true),
    // Go takes only the lower case.
    ("https://LOCALHOST:6443", "", true),
    ("https://127.0.0.1:6443", "", true),
    ("https://127.8.9.10:6443", "", true),
    ("https://[::1]:6443", "", true),
    ("https://[::ffff:127.0.0.1]:6443", "", true),
    ("https://localhost.example.com:6443", "", false),
    // Domains.
    ("https://example.com", "example.com", true),
    ("https://api.example.com", "example.com", true),
    ("https://API.Example.com", "example.COM", true),
    ("https://api.example.com", "  example.com ", true),
    ("https://notexample.com", "example.com", false),
    ("https://example.com", ".example.com", false),
    ("https://api.example.com", ".example.com", true),
    ("https://a.b.example.com", ".example.com", true),
    ("https://example.com", "*.example.com", false),
    ("https://api.example.com", "*.example.com", true),
    ("https://notexample.com", ".example.com", false),
    ("https://example.com", "api.example.com", false),
    ("https://example.org", "example.com,example.org", true),
    ("https://example.com", ",, ,", false),
    ("https://example.com", ":443", false),
    // Ports.
    ("https://api.example.com", "example.com:443", true),
    ("https://api.example.com:6443", "example.com:443", false),
    ("https://api.example.com:6443", ".example.com:6443", true),
    ("https://api.example.com:6443", "*.example.com:6443", true),
    ("https://10.0.0.1:6443", "10.0.0.1:6443", true),
    ("https://10.0.0.1:6443", "10.0.0.1:443", false),
    ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
    ("https://[fd00::1]:6443", "[fd00::1]:443", false),
    // Addresses.
    ("https://10.0.0.1:6443", "10.0.0.1", true),
    ("https://10.0.0.1:6443", "10.0.0.2", false),
    ("https://[::ffff:10.0.0.1]:6443", "10.0.0.1", true),
    ("https://[fd00::1]:6443", "fd00:0:0::1", true),
    ("https://[fd00::1]:6443", "[fd00::1]", false),
    ("https://10.0.0.1:6443", ".0.0.1", false),
    // Networks.
    ("https://10.200.0.1:6443", "10.0.0.0/8", true),
    ("https://11.0.0.1:6443", "10.0.0.0/8", false),
    ("https://11.0.0.1:6443", "0.0.0.0/0", true),
    ("https://10.0.0.1:6443", "10.0.0.0/33,10.0.0.0/+8", false),
    ("https://[fd00::1]:6443", "fd00::/8", true),
    ("https://[fe80::1]:6443", "fd00::/8,0.0.0.0/0", false),
    ("https://10.0.0.1:6443", "::ffff:10.0.0.0/104", true),
];

#[test]
fn no_proxy_is_read_as_go_reads_it() {
    for (to, no_proxy, direct) in NO_PROXY {
        let environment = environment(&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", no_proxy)]);
        let proxy = environment.proxy_to(&server(to)).expect("a good proxy");
        assert_eq!(proxy.is_none(), direct, "{to} with NO_PROXY={no_proxy:?}");
    }
}

#[test]
fn the_variable_is_chosen_by_scheme_and_case() {
    let all = [
        ("HTTPS_PROXY", "http://upper"),
        ("https_proxy", "http://lower"),
        ("HTTP_PROXY", "plain-upper"),
        ("http_proxy", ""),
        ("ALL_PROXY", "http://all"),
    ];
    let chosen = |variables: &[(&str, &str)], to: &str| {
        let proxy = environment(variables).proxy_to(&server(to)).expect("a good proxy");
        proxy.map(|proxy| proxy.to_string())
    };
    let table = [
        (&all[..], "https://h", Some("http://lower:80")),
        (&all[..1], "https://h", Some("http://upper:80")),
        (&all[..], "http://h", Some("http://plain-upper:80")),
        (&all[..2], "http://h", None),
        (&all[2..], "https://h", None),
        (&[][..], "https://h", None),
    ];
    for (variables, to, expected) in table {
        assert_eq!(chosen(variables, to).as_deref(), expected, "{variables:?} to {to}");
    }
    let no_proxy = [all[0], ("no_proxy", "h"), ("NO_PROXY", "other")];
    assert_eq!(chosen(&no_proxy, "https://h"), None);
    assert!(chosen(&no_proxy, "https://other").is_some());
}

#[test]
fn proxy_urls_are_parsed() {
    let table = [
        ("http://p:3128", Ok(("http://p:3128", None))),
        ("https://p", Ok(("https://p:443", None))),
        ("HTTP://p/", Ok(("http://p:80", None))),
        ("p:3128", Ok(("http://p:3128", None))),
        (" p ", Ok(("http://p:80", None))),
        ("http://[fd00::1]:3128", Ok(("http://[fd00::1]:3128", None))),
        ("http://[fd00::1]", Ok(("http://[fd00::1]:80", None))),
        ("http://me:secret@p:1/x?y", Ok(("http://p:1", Some("me:secret")))),
        ("me:secret@p:1", Ok(("http://p:1", Some("me:secret")))),
        ("http://me@p:1", Ok(("http://p:1", Some("me:")))),
        ("http://a%40b:s%3a%2F@p:1", Ok(("http://p:1", Some("a@b:s:/")))),
        ("http://me:a@b@p:1", Ok(("http://p:1", Some("me:a@b")))),
        ("http://me:%zz@p:1", Err("%XX")),
        ("http://me:%2@p:1", Err("%XX")),
        ("", Err("host")),
        ("http://", Err("host")),
        ("http://:3128", Err("host")),
        ("http://a b:1", Err("host")),
        ("http://a\r\nb:1", Err("host")),
        ("http://p:0", Err("port")),
        ("http://p:99999", Err("port")),
        ("http://p:x", Err("port")),
        ("ftp://p", Err("http://HOST:PORT")),
        ("socks5://p:1080", Err("SOCKS")),
    ];
    for (text, expected) in table {
        let found = ProxyAddress::parse(text);
        match expected {
            Ok((shown, user)) => {
                let found = found.expect(text);
                let encoded =
                    user.map(|user| base64::engine::general_purpose::STANDARD.encode(user));
                let expected = encoded.map(|encoded| Secret::new(format!("Basic {encoded}")));
                assert_eq!((found.to_string().as_str(), found.authorization), (shown, expected));
            }
            Err(part) => {
                let message = found.expect_err(text);
                assert!(message.contains(part), "{text}: {message}");
            }
        }
    }
}

#[test]
fn a_proxy_variable_that_cannot_be_used_is_an_error_only_when_it_is_needed() {
    for (value, to) in [
        ("socks5://me:hunter2@p", "https://h"),
        ("http://me:hunter2@p:x", "https://h"),
        ("https://me:hunter2@p", "http://h"),
    ] {
        let variable = if to.starts_with("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        let used = environment(&[(variable, value)]);
        let message = used.proxy_to(&server(to)).expect_err(value);
        assert!(message.contains(variable) && !message.contains("hunter2"), "{message}");
        assert!(!format!("{used:?}").contains("hunter2"));
        let unused = environment(&[(variable, value), ("NO_PROXY", "h")]);
        assert_eq!(unused.proxy_to(&server(to)), Ok(None));
    }
    let proxy = ProxyAddress::parse("http://me:hunter2@p").expect("a proxy");
    assert!(!format!("{proxy:?} {proxy}").contains("hunter2"));
}

#[test]
fn a_kubeconfigs_proxy_wins_over_the_environment() {
    let all = [("HTTPS_PROXY", "http://from-environment"), ("NO_PROXY", "direct")];
    let environment = environment(&all);
    let dir = std::path::Path::new("/dir");
    let named = ProxyAddress::parse("http://from-kubeconfig").expect("a proxy");
    for (host, proxy, expected) in [
        ("far", None, Some("http://from-environment:80")),
        ("direct", None, None),
        ("far", Some(&named), Some("http://from-kubeconfig:80")),
        ("direct", Some(&named), Some("http://from-kubeconfig:80")),
        ("127.0.0.1", Some(&named), Some("http://from-kubeconfig:80")),
    ] {
        let mut access = ClusterAccess::in_cluster(host, "443", dir, "").expect("access");
        access.proxy = proxy.cloned();
        let access = access.with_proxy_from(&environment).expect("a good proxy");
        assert_eq!(access.proxy.map(|proxy| proxy.to_string()).as_deref(), expected, "{host}");
    }
}
