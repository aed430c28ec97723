//! Kubeconfigs as kubeadm, clouds and people write them, and invalid ones.

use super::*;

const FILE: &str = "/etc/kubernetes/kubelet.conf";

fn parse(text: &str) -> Result<ClusterAccess, KubeconfigError> {
    parse_kubeconfig(text.as_bytes(), Path::new(FILE), None)
}

fn with(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u, namespace: ns}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://api.example:6443', {cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn message(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn a_kubeadm_kubelet_kubeconfig_is_parsed() {
    let text = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Q0EK\n    \
        server: https://10.0.0.1:6443\n  name: kubernetes\ncontexts:\n- context:\n    \
        cluster: kubernetes\n    user: system:node:w\n  name: system:node:w@kubernetes\n\
        current-context: system:node:w@kubernetes\nkind: Config\npreferences: {}\nusers:\n\
        - name: system:node:w\n  user:\n    client-certificate: pki/current.pem\n    \
        client-key: /var/lib/kubelet/pki/current.pem\n";
    let access = parse(text).expect("a good file");
    assert_eq!(access.server.authority(), "10.0.0.1:6443");
    assert!(access.server.tls);
    assert_eq!(access.trust, Trust::Authority(Material::Inline(Secret::new("CA\n"))));
    let certificate = access.certificate.expect("a certificate");
    let file = |path: &str| Material::File(PathBuf::from(path));
    assert_eq!(certificate.certificate, file("/etc/kubernetes/pki/current.pem"));
    assert_eq!(certificate.key, file("/var/lib/kubelet/pki/current.pem"));
    assert_eq!(access.namespace, "default");
}

#[test]
fn tokens_trust_and_server_names_are_read() {
    let access = parse(&with("tls-server-name: other, insecure-skip-tls-verify: true", "token: t"))
        .expect("a good file");
    assert_eq!(access.trust, Trust::InsecureSkipVerify);
    assert_eq!(access.tls_server_name.as_deref(), Some("other"));
    assert_eq!(access.token, Some(TokenSource::Fixed(Secret::new("t"))));
    assert_eq!(access.namespace, "ns");
    let access = parse(&with("", "token: t, tokenFile: token")).expect("a good file");
    assert_eq!(access.token, Some(TokenSource::File("/etc/kubernetes/token".into())));
    assert_eq!(access.trust, Trust::System);
    let access =
        parse(&with("", "as: a, as-groups: [g], as-user-extra: {k: [v, w]}")).expect("a good file");
    assert_eq!(access.impersonation.groups, ["g"]);
    assert_eq!(access.impersonation.extra.len(), 2);
}

#[test]
fn a_proxy_url_is_parsed() {
    let access = parse(&with("proxy-url: 'https://me:pw@p:3128/'", "")).expect("a good file");
    assert_eq!(access.proxy.map(|proxy| proxy.to_string()).as_deref(), Some("https://p:3128"));
    assert_eq!(parse(&with("proxy-url: ''", "")).expect("a good file").proxy, None);
    let plain = with("proxy-url: 'https://p'", "").replace("https://api", "http://api");
    assert!(message(&plain).contains("an https proxy needs an https API server"));
}

#[test]
fn exec_plugins_are_parsed() {
    let user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./bin/p, \
                args: [a, b], env: [{name: K, value: V}], provideClusterInfo: true, \
                interactiveMode: IfAvailable}";
    let extension = "extensions: [{name: client.authentication.k8s.io/exec, \
                     extension: {audience: x, more: [1, true]}}]";
    let exec = parse(&with(extension, user)).expect("a good file").exec.expect("a plugin");
    assert_eq!(exec.command, PathBuf::from("/etc/kubernetes/./bin/p"));
    assert_eq!(exec.arguments, ["a", "b"]);
    assert_eq!(exec.environment, [("K".to_owned(), Secret::new("V"))]);
    let cluster = exec.cluster.expect("told about the cluster");
    assert_eq!(cluster["config"], serde_json::json!({"audience": "x", "more": [1, true]}));
    let plain = "exec: {apiVersion: client.authentication.k8s.io/v1, command: p}";
    let exec = parse(&with("", plain)).expect("a good file").exec.expect("a plugin");
    assert_eq!((exec.command, exec.cluster), (PathBuf::from("p"), None));
    let old = plain.replace("k8s.io/v1", "k8s.io/v1alpha1");
    assert!(message(&with("", &old)).contains("users[0].user.exec.apiVersion"));
    let with_interactive_mode = plain.replace("command", "interactiveMode: Always, command");
    assert!(message(&with("", &with_interactive_mode)).contains("interactiveMode"));
}

#[test]
fn mistakes_name_file_line_and_field() {
    let table = [
        ("", "kubelet.conf: kubeconfig: the file is empty"),
        ("a: [", "neither valid YAML nor valid JSON"),
        ("[]", "expected a map"),
        ("kind: Pod", "kind: expected Config"),
        ("kind: Config", "current-context: is not set"),
        ("current-context: x", "contexts: has no entry named \"x\""),
    ];
    for (text, expected) in table {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
    let table = [
        ("server: ''", "", "clusters[0].cluster.server: is needed"),
        ("server: 'ftp://x'", "", "expected https://HOST:PORT"),
        ("proxy-url: p:3128", "", "clusters[0].cluster.proxy-url: expected http://HOST:PORT"),
        ("proxy-url: socks5://p", "", "clusters[0].cluster.proxy-url: SOCKS proxies"),
        ("proxy-url: 'http://p:x'", "", "clusters[0].cluster.proxy-url: expected a port"),
        ("proxy-url: [http://p]", "", "clusters[0].cluster.proxy-url: expected text"),
        ("certificate-authority-data: '%'", "", "certificate-authority-data: expected base64"),
        ("certificate-authority: x, insecure-skip-tls-verify: true", "", "cannot be true"),
        ("", "client-certificate: x", "users[0].user.client-key: a certificate needs its key"),
        ("", "client-key-data: eA==", "client-certificate: a key needs"),
        ("", "password: hunter2", "passwords"),
        ("", "auth-provider: {name: gcp}", "auth-provider"),
        ("", "as-groups: [g]", "as: is needed"),
        ("", "as-groups: g", "expected a list"),
    ];
    for (cluster, user, expected) in table {
        let mut text = with(cluster, user);
        if cluster.starts_with("server") {
            text = text.replacen("server: 'https://api.example:6443', ", "", 1);
        }
        let error_text = message(&text);
        assert!(
            error_text.contains(expected) && error_text.contains("kubelet.conf:"),
            "{text}: {error_text}"
        );
    }
    assert!(message(&with("", "").replace("user: u", "user: other")).contains("\"other\""));
}

#[test]
fn secrets_appear_neither_in_errors_nor_in_debug_output() {
    for user in
        ["token: 918273645", "token: [hunter2]", "client-key-data: hunter2!", "exec: hunter2"]
    {
        let error_text = message(&with("", user));
        assert!(
            !error_text.contains("hunter2") && !error_text.contains("918273645"),
            "{error_text}"
        );
    }
    let error_text = message(&with("proxy-url: 'socks5://me:hunter2@p'", ""));
    assert!(!error_text.contains("hunter2"), "{error_text}");
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: p, \
                provideClusterInfo: true}";
    let access = parse(&with("proxy-url: 'http://me:hunter2@p'", exec)).expect("a good file");
    assert!(!format!("{access:?}").contains("hunter2"));
    let access = parse(&with("", "token: hunter2")).expect("a good file");
    assert!(!format!("{access:?}").contains("hunter2"));
    let broken = format!("{}\n  hunter2: : [", with("", ""));
    assert!(!message(&broken).contains("hunter2"), "{}", message(&broken));
}

#[test]
fn any_context_may_be_chosen() {
    let text = with("", "token: t").replace("name: c,", "name: d,");
    assert!(parse(&text).is_err());
    let access = parse_kubeconfig(text.as_bytes(), Path::new(FILE), Some("d"));
    assert_eq!(access.expect("a good file").namespace, "ns");
}

#[test]
fn server_addresses_are_parsed() {
    let table = [
        ("https://h", true, Ok((true, "h:443", ""))),
        ("http://h", true, Ok((false, "h:80", ""))),
        ("h:8080", false, Ok((false, "h:8080", ""))),
        ("h:6443", true, Ok((true, "h:6443", ""))),
        ("https://[fd00::1]:6443/", true, Ok((true, "[fd00::1]:6443", ""))),
        ("https://h:1/k8s/clusters/c/", true, Ok((true, "h:1", "/k8s/clusters/c"))),
        ("https://u:p@h", true, Err(())),
        ("https://h/?a=b", true, Err(())),
        ("https://", true, Err(())),
        ("https://h:99999", true, Err(())),
        ("unix:///x", true, Err(())),
    ];
    for (text, tls, expected) in table {
        let found = ServerAddress::parse(text, tls);
        let found = found.map(|found| (found.tls, found.authority(), found.prefix)).map_err(drop);
        let expected = expected
            .map(|(tls, at, prefix): (bool, &str, &str)| (tls, at.to_owned(), prefix.to_owned()));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn in_cluster_access_uses_the_service_account() {
    let dir = Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
    let access = ClusterAccess::in_cluster("fd00::1", "443", dir, "").expect("good values");
    assert_eq!(access.server.authority(), "[fd00::1]:443");
    assert_eq!(access.token, Some(TokenSource::File(dir.join("token"))));
    assert!(ClusterAccess::in_cluster("", "443", dir, "").is_err());
    assert!(ClusterAccess::in_cluster("h", "x", dir, "").is_err());
}
