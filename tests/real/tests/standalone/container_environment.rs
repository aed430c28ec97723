//! A container's environment: variables, names, addresses, permissions, processes, ports.
//!
//! Rule: it is read from inside, by programs of the container or from `/proc`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{BedTest, NODE_ADDRESS};
use node_testkit::images;
use node_testkit::start::{Containerd, get};

use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, container, container_id, ensure_has, keelson, manifest,
    uid, wait_for,
};

const CONFIGURATION: &str = "clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n\
    resolvConf: /run/bed/resolv.conf\n";
const RESOLV_CONF: &str = "nameserver 192.0.2.53\nsearch example.org\noptions ndots:3\n";
/// Its user is a name and not a number.
const NAMED_USER: &str = "registry.test/named-user:1";

#[test]
fn a_container_gets_the_environment_and_rights_of_its_manifest() -> Result<()> {
    let keelson = keelson()?;
    let mut archives = archives()?;
    let named = images::busybox()?.named(NAMED_USER);
    let named = named.configured(|config| "nobody".clone_into(&mut config.user));
    archives.push(named.oci_archive()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        fs::write(bed.dir().join("resolv.conf"), RESOLV_CONF)?;
        let node = StandaloneNode::start(bed, &keelson, &archives, CONFIGURATION)?;
        node.agent.place("words", &manifest("words", WORDS).replace("name: words\n", LABELS))?;
        node.place("names", NAMES)?;
        node.place("own-dns", OWN_DNS)?;
        node.place("on-host", ON_HOST)?;
        node.place("rights", RIGHTS)?;
        node.place("shared", SHARED)?;
        node.place("ports", PORTS)?;
        for (name, user, image) in
            [("root", "", images::BUSYBOX), ("named", "", NAMED_USER), ("given", "0", NAMED_USER)]
        {
            node.place(&format!("not-{name}"), &not_root(image, user))?;
        }
        node.place("never", NEVER)?;
        node.place("away", AWAY)?;
        words(&node).context("environment, command and arguments")?;
        names(&node).context("names and resolvers")?;
        rights(&node).context("users, groups and rights")?;
        shared(&node).context("one process namespace")?;
        rejected_pods(&node).context("what cannot start")?;
        ports(&node).context("ports on the node")?;
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        node.end()
    })
}

const LABELS: &str = "name: words\n  labels: {app: desk}\n  annotations: {note: two words}\n";
const WORDS: &str = r#"
  containers:
  - name: main
    image: BUSYBOX
    workingDir: /tmp/made/by/agent
    command: [sh, -c, 'echo "$0|$1|$2"; env > /tmp/env; touch /tmp/told; exec sleep 1000']
    args: ["$(POD_NAME)", "$$(POD_NAME)", "$(MISSING)"]
    env:
    - {name: EARLY, value: "$(POD_NAME)"}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: CPU_MILLI, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: BOTH, value: "$(SPACE)/$(LABEL)-$$(LABEL)-$(MISSING)-$"}
    resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 64Mi}}
"#;

fn words(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("words")?;
    let expected_env = "while ! [ -e /tmp/told ]; do sleep 0.1; done; cat /tmp/env";
    let env = node.shell(&pod, "main", expected_env)?;
    let has = |line: &str| env.lines().any(|each| each == line);
    let (own, host) = (text(&pod, "/status/podIP"), text(&pod, "/status/hostIP"));
    ensure!(own.starts_with("10.88.") && host == NODE_ADDRESS, "{own}, {host}");
    let expected_env = [
        "EARLY=$(POD_NAME)".to_owned(),
        "POD_NAME=words-node".to_owned(),
        format!("POD_UID={}", uid(&pod)?),
        "SPACE=default".to_owned(),
        "LABEL=desk".to_owned(),
        "NOTE=two words".to_owned(),
        "NODE=node".to_owned(),
        format!("POD_IP={own}"),
        format!("HOST_IP={host}"),
        "CPU=1".to_owned(),
        "CPU_MILLI=250".to_owned(),
        "MEMORY=64".to_owned(),
        "BOTH=default/desk-$(LABEL)-$(MISSING)-$".to_owned(),
        "PWD=/tmp/made/by/agent".to_owned(),
        "HOSTNAME=words-node".to_owned(),
    ];
    for line in &expected_env {
        ensure!(has(line), "{line} is not in\n{env}");
    }
    let mut output = String::new();
    wait_for("its arguments", WAIT_LIMIT, || {
        output = node.agent.ask(&["logs", "words"])?;
        Ok(output == "words-node|$(POD_NAME)|$(MISSING)\n")
    })
    .with_context(|| output.clone())?;
    log_layout(&pod)
}

/// Logs are where log shippers expect them.
fn log_layout(pod: &serde_json::Value) -> Result<()> {
    let (uid, id) = (uid(pod)?, container_id(pod, "main")?);
    let log = format!("/var/log/pods/default_words-node_{uid}/main/0.log");
    ensure!(Path::new(&log).is_file(), "{log}");
    let link = format!("/var/log/containers/words-node_default_main-{id}.log");
    // The link is made right after the start, which others may have seen already.
    wait_for("the link", WAIT_LIMIT, || Ok(Path::new(&link).is_symlink()))?;
    let target = fs::read_link(&link).with_context(|| link.clone())?;
    ensure!(target == Path::new(&log), "{link} leads to {}", target.display());
    Ok(())
}

const NAMES: &str = r#"
  hostname: box
  subdomain: sub
  setHostnameAsFQDN: true
  hostAliases: [{ip: 192.0.2.7, hostnames: [seven, sept]}]
  containers: [{name: main, image: BUSYBOX, command: [sleep, "1000"]}]
"#;
const OWN_DNS: &str = r#"
  dnsPolicy: None
  dnsConfig:
    nameservers: [192.0.2.1]
    searches: [a.test, b.test]
    options: [{name: ndots, value: "2"}, {name: edns0}]
  containers: [{name: main, image: BUSYBOX, command: [sleep, "1000"]}]
"#;
const ON_HOST: &str = r#"
  hostNetwork: true
  hostPID: true
  hostIPC: true
  containers: [{name: main, image: BUSYBOX, command: [sleep, "1000"]}]
"#;

fn names(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("names")?;
    let full = "box.sub.default.svc.cluster.local";
    let name = node.shell(&pod, "main", "hostname")?;
    ensure!(name.trim() == full, "a name with its domain: {name}");
    let hosts = node.shell(&pod, "main", "cat /etc/hosts")?;
    let own = format!("{}\t{full}\tbox", text(&pod, "/status/podIP"));
    ensure_has(&hosts, &["Kubernetes-managed hosts file", "192.0.2.7\tseven\tsept", &own])?;
    let resolver = node.shell(&pod, "main", "cat /etc/resolv.conf")?;
    let search = "search default.svc.cluster.local svc.cluster.local cluster.local example.org";
    ensure_has(&resolver, &["nameserver 10.96.0.10\n", search, "options ndots:5"])?;
    ensure!(!resolver.contains("192.0.2.53"), "the cluster's alone: {resolver}");

    let pod = node.until_ready("own-dns")?;
    let resolver = node.shell(&pod, "main", "cat /etc/resolv.conf")?;
    ensure_has(&resolver, &["nameserver 192.0.2.1\n", "search a.test b.test", "ndots:2 edns0"])?;
    ensure!(!resolver.contains("cluster.local"), "nothing of the cluster: {resolver}");

    let pod = node.until_ready("on-host")?;
    let resolver = node.shell(&pod, "main", "cat /etc/resolv.conf")?;
    ensure_has(&resolver, &["nameserver 192.0.2.53\n", "search example.org", "ndots:3"])?;
    ensure!(text(&pod, "/status/podIP") == NODE_ADDRESS, "the node's address: {pod:#}");
    for space in ["net", "pid", "ipc"] {
        let inside = node.shell(&pod, "main", &format!("readlink /proc/self/ns/{space}"))?;
        let here = fs::read_link(format!("/proc/self/ns/{space}"))?;
        ensure!(Path::new(inside.trim()) == here, "{space}: {inside} is not {}", here.display());
    }
    Ok(())
}

const RIGHTS: &str = r#"
  securityContext:
    runAsUser: 1000
    runAsGroup: 2000
    fsGroup: 3000
    supplementalGroups: [4000]
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "80"}]
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: tight
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /data}]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
  - name: loose
    image: BUSYBOX
    command: [sleep, "1000"]
    securityContext:
      runAsUser: 0
      runAsNonRoot: false
      seccompProfile: {type: Unconfined}
      capabilities: {add: [NET_ADMIN], drop: [CHOWN]}
"#;

fn rights(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("rights")?;
    let status = node.shell(&pod, "tight", "cat /proc/1/status")?;
    let field = |status: &str, name: &str| -> Vec<String> {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let tight = |name| field(&status, name);
    ensure!(tight("Uid") == ["1000"; 4] && tight("Gid") == ["2000"; 4], "{status}");
    let groups = tight("Groups");
    ensure!(["3000", "4000"].iter().all(|it| groups.contains(&(*it).to_owned())), "{groups:?}");
    ensure!(tight("CapBnd") == ["0000000000000400"], "only to bind ports: {status}");
    ensure!(tight("NoNewPrivs") == ["1"] && tight("Seccomp") == ["2"], "{status}");
    let script = "touch /file 2>&1; touch /data/file; stat -c '%u %g %a' /data/file /data; \
        cat /proc/sys/net/ipv4/ip_unprivileged_port_start";
    let output = node.shell(&pod, "tight", script)?;
    ensure_has(&output, &["Read-only file system", "1000 3000 644\n", "0 3000 2777\n", "80\n"])?;

    let status = node.shell(&pod, "loose", "cat /proc/1/status")?;
    let loose = |name| field(&status, name);
    ensure!(loose("Uid") == ["0"; 4], "{status}");
    ensure!(loose("Seccomp") == ["0"] && loose("NoNewPrivs") == ["0"], "{status}");
    let bits = loose("CapEff").first().map_or(Ok(0), |bits| u64::from_str_radix(bits, 16))?;
    ensure!(bits & (1 << 12) != 0 && bits & 1 == 0, "NET_ADMIN and no CHOWN: {bits:x}");
    ensure!(bits & (1 << 21) == 0, "no SYS_ADMIN: {bits:x}");
    Ok(())
}

const SHARED: &str = r#"
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: one, image: BUSYBOX, command: [sh, -c, "exec sleep 7001"]}
  - {name: two, image: BUSYBOX, command: [sh, -c, "exec sleep 7002"]}
"#;

fn shared(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("shared")?;
    let seen = node.shell(&pod, "one", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")?;
    ensure_has(&seen, &["sleep 7001", "sleep 7002", "/pause"])
}

const PORTS: &str = r#"
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "mkdir /www; echo port > /www/page; exec httpd -f -p 8080 -h /www"]
    ports: [{containerPort: 8080, hostPort: 18080}]
    readinessProbe: {httpGet: {path: /page, port: 8080}, periodSeconds: 1}
"#;

fn ports(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("ports")?;
    let address: std::net::IpAddr = text(&pod, "/status/podIP").parse()?;
    let page = get((address, 8080).into(), "/page")?;
    ensure!(page.status == 200, "on the pod's own address: {page:?}");
    let own: std::net::IpAddr = NODE_ADDRESS.parse()?;
    let page = get((own, 18080).into(), "/page")?;
    ensure!(page.status == 200, "on the node's port: {page:?}");
    Ok(())
}

fn not_root(image: &str, user: &str) -> String {
    let user = if user.is_empty() { String::new() } else { format!(", runAsUser: {user}") };
    format!(
        "  securityContext: {{runAsNonRoot: true{user}}}\n  containers:\n  \
         - {{name: main, image: {image:?}, command: [sleep, \"1000\"]}}\n"
    )
}

const NEVER: &str = r#"
  containers:
  - {name: main, image: "registry.test/nowhere:1", imagePullPolicy: Never}
"#;

/// A port on which nothing listens.
const AWAY: &str = r#"
  containers: [{name: main, image: "127.0.0.1:1/nowhere:1"}]
"#;

fn rejected_pods(node: &StandaloneNode<'_>) -> Result<()> {
    for (name, reason, message) in [
        ("not-root", "CreateContainerConfigError", "runAsNonRoot and image will run as root"),
        ("not-named", "CreateContainerConfigError", "image has non-numeric user (nobody)"),
        ("not-given", "CreateContainerConfigError", "runAsUser breaks non-root policy"),
        ("never", "ErrImageNeverPull", "is not present with pull policy of Never"),
        ("away", "ImagePullBackOff", "Back-off pulling image \"127.0.0.1:1/nowhere:1\""),
    ] {
        let pod = node.until(reason, name, |pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == reason
        })?;
        let waiting = &container(&pod, "main")["state"]["waiting"];
        ensure_has(waiting["message"].as_str().unwrap_or_default(), &[message])?;
        ensure!(pod["status"]["phase"] == "Pending", "{pod:#}");
        node.until_explained(name, message)?;
    }
    Ok(())
}

fn text<'a>(pod: &'a serde_json::Value, pointer: &str) -> &'a str {
    pod.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default()
}
