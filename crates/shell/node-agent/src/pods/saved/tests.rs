//! Records of pods that end, on a disk where the first writes fail.

use super::PodMemoryStore;
use crate::status_store::StatusStore;
use pod_model::pod::Pod;
use runtime_fake::FakeHost;
use std::sync::Arc;

#[tokio::test]
async fn an_ending_pod_is_saved_once_and_retried_after_a_failure() {
    let host = FakeHost::default();
    host.record_operations();
    let saved = PodMemoryStore::new(Arc::new(host.clone()), StatusStore::new(None, "n"));
    let mut pod = Pod::default();
    pod.metadata.uid = "u1".into();
    let mut pod = Arc::new(pod);
    host.refuse_records(true);
    saved.save_ending(&pod).await;
    assert_eq!(saved.ending_pod("u1").as_ref(), Some(&pod), "known all the same");
    host.refuse_records(false);
    saved.save_ending(&pod).await;
    saved.save_ending(&pod).await;
    assert_eq!(host.recorded_operations(), ["refuse ending", "save ending"]);
    Arc::make_mut(&mut pod).metadata.name = "another".into();
    saved.save_ending(&pod).await;
    assert_eq!(host.recorded_operations().len(), 3, "another version of it");
    assert_eq!(saved.ending_pod("u1"), Some(pod));
}
