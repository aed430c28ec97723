//! Which counts of probes are served, and for how long.

use super::*;
use ports::metrics::text;

fn pod(uid: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from(uid);
    pod.metadata.name = Box::from("web");
    pod.metadata.namespace = Box::from("default");
    pod
}

#[test]
fn probe_results_are_counted_as_upstream_counts_them() {
    let mut counts = ProbeCounts::default();
    let took = Duration::from_millis(7);
    for result in [
        ProbeResult::Success,
        ProbeResult::Warning("odd".to_owned()),
        ProbeResult::Failure("no".to_owned()),
        ProbeResult::Unknown("nobody answers".to_owned()),
    ] {
        // Each instance of a container continues the counts of the one before.
        counts.of(&pod("u"), "main", ProbeKind::Liveness).add(&result, took);
    }
    counts
        .of(&pod("u"), "main", ProbeKind::Startup)
        .add(&ProbeResult::Unknown(String::new()), took);
    let samples = text(counts.families());
    let place = "container=\"main\",namespace=\"default\",pod=\"web\"";
    let kind = "probe_type=\"Liveness\"";
    for line in [
        format!("prober_probe_total{{{place},pod_uid=\"u\",{kind},result=\"successful\"}} 2"),
        format!("prober_probe_total{{{place},pod_uid=\"u\",{kind},result=\"failed\"}} 1"),
        format!("prober_probe_duration_seconds_bucket{{{place},{kind},le=\"0.005\"}} 0"),
        format!("prober_probe_duration_seconds_bucket{{{place},{kind},le=\"0.01\"}} 2"),
        format!("prober_probe_duration_seconds_count{{{place},{kind}}} 2"),
    ] {
        assert!(samples.lines().any(|samples| samples == line), "{line}\nin\n{samples}");
    }
    assert!(!samples.contains("Startup") && !samples.contains("unknown"), "{samples}");
}

#[test]
fn counts_are_removed_with_their_pod() {
    let mut counts = ProbeCounts::default();
    for uid in ["u", "other"] {
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            counts.of(&pod(uid), "main", kind).add(&ProbeResult::Success, Duration::ZERO);
        }
    }
    let lines = |counts: &ProbeCounts| {
        let samples = text(counts.families());
        let of = |uid: &str| {
            let uid = format!("pod_uid=\"{uid}\"");
            samples.lines().filter(|line| line.contains(&uid)).count()
        };
        (of("u"), of("other"))
    };
    assert_eq!(lines(&counts), (2, 2));
    counts.keep("u", |kind| kind == ProbeKind::Readiness);
    assert_eq!(lines(&counts), (1, 2));
    counts.keep("u", |_| false);
    assert_eq!(lines(&counts), (0, 2));
}

#[test]
fn durations_of_two_pods_of_one_name_share_a_series() {
    let mut counts = ProbeCounts::default();
    for uid in ["old", "new"] {
        let count = counts.of(&pod(uid), "main", ProbeKind::Readiness);
        count.add(&ProbeResult::Success, Duration::from_millis(7));
    }
    let samples = text(counts.families());
    let lines =
        samples.lines().filter(|line| line.starts_with("prober_probe_duration_seconds_count"));
    let lines: Vec<&str> = lines.collect();
    assert!(matches!(lines.as_slice(), [line] if line.ends_with(" 2")), "{lines:?}");
    assert_eq!(samples.lines().filter(|line| line.starts_with("prober_probe_total")).count(), 2);
}
