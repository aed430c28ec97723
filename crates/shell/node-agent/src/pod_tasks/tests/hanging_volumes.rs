//! File systems that do not answer: what stops, what goes on, and what is reported.

use super::bench::{AgentBench, pod};
use std::time::Duration;
use tokio::time::sleep;

fn with_volumes(name: &str, volumes: &[&str]) -> String {
    let text: Vec<String> =
        volumes.iter().map(|volume| format!("{{name: {volume}, emptyDir: {{}}}}")).collect();
    let mounts = volumes.iter().map(|volume| format!("{{name: {volume}, mountPath: /{volume}}}"));
    let mounts = mounts.collect::<Vec<_>>().join(", ");
    let pod = pod(name, &format!(", volumeMounts: [{mounts}]"));
    format!("{pod}  volumes: [{}]\n", text.join(", "))
}

fn why(bench: &AgentBench, name: &str) -> String {
    let pods = bench.pods();
    let pod = pods.iter().find(|pod| pod.name == name);
    let waiting = pod.and_then(|pod| pod.waiting_on.clone());
    waiting.map(|waiting| waiting.why).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_set_up_that_hangs_is_named_and_blocks_only_its_pod() {
    let mut bench = AgentBench::new();
    bench.host.set_hanging("stuck", true);
    bench.script.emit(&[
        ("/m/a", &with_volumes("a", &["fine", "stuck", "later"])),
        ("/m/b", &with_volumes("b", &["other"])),
    ]);
    bench.begin();
    let took = bench.until("the other runs", |bench| bench.phase_of("b-n") == "Running").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let named = "stuck (the file system does not answer so far), later";
    let took = bench.until(named, |bench| why(bench, "a-n").contains(named)).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(!why(&bench, "a-n").contains("fine"));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(bench.phase_of("a-n"), "Pending");
    let uid = bench.pods().into_iter().find(|pod| pod.name == "a-n").unwrap().uid;
    let events = bench.detail_of(&uid).events.into_iter();
    let overdue: Vec<(String, u32)> = events
        .filter(|event| event.reason == "FailedMount")
        .map(|event| (event.message, event.count))
        .collect();
    let text = "Unable to attach or mount volumes: unmounted volumes=[later stuck], unattached \
                volumes=[], failed to process volumes=[]: context deadline exceeded";
    assert_eq!(overdue, [(text.to_owned(), 2)]);
    bench.host.set_hanging("stuck", false);
    let took = bench.until("it runs too", |bench| bench.phase_of("a-n") == "Running").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_one_pod_does_not_delay_the_removal_of_others() {
    let mut bench = AgentBench::new();
    for number in 0..12 {
        bench.host.put_pod_dir(&format!("orphan-{number:02}"));
    }
    bench.host.set_hanging("orphan-03", true);
    bench.script.emit(&[]);
    bench.begin();
    let took = bench.until("one is left", |bench| bench.host.pod_dirs() == ["orphan-03"]).await;
    assert!(took < Duration::from_secs(90), "{took:?}");
    sleep(Duration::from_secs(300)).await;
    assert_eq!(bench.host.pod_dirs(), ["orphan-03"]);
    bench.host.set_hanging("orphan-03", false);
    let took = bench.until("none is left", |bench| bench.host.pod_dirs().is_empty()).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}
