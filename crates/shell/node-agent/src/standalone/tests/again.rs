//! What is asked for again: images that went, tasks that panicked.

use super::bench::{Bench, pod};
use runtime_fake::Fault;
use std::time::Duration;

fn waiting(bench: &Bench) -> String {
    let status = bench.status("/containerStatuses/0/state/waiting");
    format!("{} {}", status["reason"], status["message"])
}

/// It was there when somebody looked, and is not when the container starts: before its first start,
/// or between one that failed and the next.
#[tokio::test(start_paused = true)]
async fn an_image_that_goes_before_the_start_is_brought_again() {
    for call in ["run_sandbox", "create_container"] {
        let mut bench = Bench::new();
        bench.runtime.let_pulls_succeed(true);
        bench.runtime.spoil(call, Fault::Refuses("not now".to_owned()));
        bench.script.tell(&[("/m/a", &pod("a", ""))]);
        bench.begin();
        bench.until("it is refused", |bench| !bench.calls_of(call).is_empty()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.runtime.looks("image") > 0, "{call}: the image was found");
        bench.runtime.remove_image_now("i:1");
        let took = bench.until_running().await;
        assert!(took < Duration::from_secs(60), "{call}: {took:?}");
        assert_eq!(bench.calls_of("pull_image").len(), 1, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_for_an_image_that_panics_begins_again_after_a_pause() {
    let mut bench = Bench::new();
    bench.runtime.spoil("image", Fault::Panics);
    bench.script.tell(&[("/m/a", &pod("a", ""))]);
    bench.begin();
    bench.until("it is told", |bench| waiting(bench).contains("panicked")).await;
    let took = bench.until_running().await;
    assert!((9..=11).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_for_volumes_that_panics_begins_again_after_a_pause() {
    let mut bench = Bench::new();
    bench.host.panic_about("data", 2);
    let text = format!("{}  volumes: [{{name: data, emptyDir: {{}}}}]\n", pod("a", ""));
    bench.script.tell(&[("/m/a", &text)]);
    bench.begin();
    let told = |bench: &Bench| {
        let waiting = bench.pod().and_then(|pod| pod.waiting_on);
        waiting.is_some_and(|waiting| waiting.why.contains("panicked"))
    };
    bench.until("it is told", told).await;
    let took = bench.until_running().await;
    assert!((19..=21).contains(&took.as_secs()), "after two pauses: {took:?}");
    assert_eq!(bench.host.panics(), 2);
}
