//! How syncs are counted.

use super::*;
use ports::metrics::text;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_turn_lasts_until_nothing_is_in_flight_and_counts_as_what_weighs_most() {
    let metrics = Metrics::default();
    let mut turn = Turn::new(metrics.clone());
    turn.ends();
    turn.begins(Cause::Create);
    tokio::time::sleep(Duration::from_secs(2)).await;
    turn.begins(Cause::Sync);
    turn.ends();
    turn.ends();
    turn.begins(Cause::Sync);
    tokio::time::sleep(Duration::from_millis(20)).await;
    turn.begins(Cause::Kill);
    turn.ends();
    turn.begins(Cause::Sync);
    turn.is_last();
    let told = text(metrics.families(&[&names::POD_WORKER_DURATION]));
    let name = "kubelet_pod_worker_duration_seconds";
    for line in [
        format!("{name}_sum{{operation_type=\"create\"}} 2"),
        format!("{name}_count{{operation_type=\"create\"}} 1"),
        format!("{name}_sum{{operation_type=\"kill\"}} 0.02"),
        format!("{name}_count{{operation_type=\"terminated\"}} 1"),
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\nin\n{told}");
    }
    assert!(!told.contains("\"sync\""), "{told}");
}
