//! How syncs are counted.

use super::*;
use ports::metrics::text;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_sync_lasts_until_no_action_is_in_flight_and_counts_under_its_weightiest_cause() {
    let metrics = Metrics::default();
    let mut sync_timer = SyncTimer::new(metrics.clone());
    sync_timer.ends();
    sync_timer.begins(Cause::Create);
    tokio::time::sleep(Duration::from_secs(2)).await;
    sync_timer.begins(Cause::Sync);
    sync_timer.ends();
    sync_timer.ends();
    sync_timer.begins(Cause::Sync);
    tokio::time::sleep(Duration::from_millis(20)).await;
    sync_timer.begins(Cause::Kill);
    sync_timer.ends();
    sync_timer.begins(Cause::Sync);
    sync_timer.is_last();
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
