//! Which address probes use for a pod.

use super::bench::{AgentBench, pod};
use ports::probing::{NetworkProbeRequest, ProbeAttemptResult};
use std::net::IpAddr;
use std::time::Duration;

const PROBED: &str = ", readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 10}";

fn probed_hosts(bench: &AgentBench) -> Vec<String> {
    let tries = bench.host.tries().into_iter();
    let host = |each| match each {
        NetworkProbeRequest::Tcp { host, .. } => host,
        other => panic!("{other:?}"),
    };
    tries.map(host).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_comes_by_its_address_after_its_agent_is_probed() {
    let mut bench = AgentBench::new();
    bench.host.set_addresses(&[]);
    let manifest = format!("{}  hostNetwork: true\n", pod("a", PROBED));
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until_running().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(probed_hosts(&bench), [""; 0], "nobody knows where");
    bench.host.set_addresses(&[IpAddr::from([192, 0, 2, 9])]);
    let took = bench
        .until("it is ready", |bench| bench.status("/containerStatuses/0/ready") == true)
        .await;
    assert!(took <= Duration::from_secs(21), "{took:?}");
    assert_eq!(probed_hosts(&bench)[0], "192.0.2.9");
    // Another address, as machines get from time to time.
    bench.host.set_addresses(&[IpAddr::from([192, 0, 2, 10])]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(probed_hosts(&bench).last().unwrap(), "192.0.2.10");
}

#[tokio::test(start_paused = true)]
async fn probes_use_the_pod_ip_of_the_status() {
    let mut bench = AgentBench::new();
    bench.runtime.set_sandbox_addresses(&["fd00::7", "10.0.0.7"]);
    bench.script.emit(&[("/m/a", &pod("a", PROBED))]);
    bench.begin();
    bench.until("it is ready", |bench| bench.status("/containerStatuses/0/ready") == true).await;
    assert_eq!(bench.status("/podIP"), "10.0.0.7");
    assert_eq!(probed_hosts(&bench)[0], "10.0.0.7");
}

/// Of containers that an earlier agent started; those that this one starts are probed at once.
#[tokio::test(start_paused = true)]
async fn the_probes_of_a_node_are_spread_when_an_agent_begins() {
    let mut bench = AgentBench::new();
    let probe = "{tcpSocket: {port: 80}, periodSeconds: 30, failureThreshold: 9}";
    let rest = format!(", livenessProbe: {probe}, readinessProbe: {probe}");
    let texts: Vec<(String, String)> =
        (0..20).map(|at| (format!("/m/{at}"), pod(&format!("p{at}"), &rest))).collect();
    let files: Vec<(&str, &str)> =
        texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    bench.script.emit(&files);
    bench.begin();
    bench.until("all run", |bench| bench.calls_of("start_container").len() == 20).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(probed_hosts(&bench).len(), 40, "the first agent's are due when they start");
    bench.kill().await;
    let before = probed_hosts(&bench).len();
    bench.script.emit(&files);
    bench.begin();
    bench.until("known again", |bench| bench.pods().len() == 20).await;
    let mut most = 0;
    let mut seen = 0;
    for _ in 0..31 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = probed_hosts(&bench).len() - before;
        most = most.max(now - seen);
        seen = now;
    }
    assert!(seen >= 40, "each is tried within its first period: {seen}");
    assert!(most <= 8, "{most} of 40 in one second");
}

/// Its worker restarts with another channel; its earlier probes go on.
#[tokio::test(start_paused = true)]
async fn probes_survive_a_clock_that_is_set_back() {
    let mut bench = AgentBench::new();
    bench.script.emit(&[("/m/a", &pod("a", PROBED))]);
    bench.begin();
    let ready = |bench: &AgentBench| bench.status("/containerStatuses/0/ready") == true;
    bench.until("it is ready", ready).await;
    bench.clock.set_back(Duration::from_secs(3600));
    tokio::time::sleep(Duration::from_secs(30)).await;
    bench.host.answer_tries(std::iter::repeat_n(
        ProbeAttemptResult::Failure("nobody there".to_owned()),
        6,
    ));
    let took = bench.until("it is not", |bench| !ready(bench)).await;
    assert!(took <= Duration::from_secs(40), "{took:?}");
    bench.until("it is again", ready).await;
}
