//! Records of pods that end, on a disk where the first writes fail.

use super::SavedMemories;
use crate::board::Board;
use pod_model::pod::Pod;
use runtime_fake::FakeHost;
use std::sync::Arc;

#[tokio::test]
async fn a_pod_that_ends_is_written_down_once_and_tried_again_where_that_failed() {
    let host = FakeHost::default();
    host.keep_order();
    let saved = SavedMemories::new(Arc::new(host.clone()), Board::new(None, "n"));
    let mut pod = Pod::default();
    pod.metadata.uid = "u1".into();
    let mut pod = Arc::new(pod);
    host.refuse_records(true);
    saved.keep_ending(&pod).await;
    assert_eq!(saved.ending_pod("u1").as_ref(), Some(&pod), "known all the same");
    host.refuse_records(false);
    saved.keep_ending(&pod).await;
    saved.keep_ending(&pod).await;
    assert_eq!(host.order_of_records(), ["refuse ending", "save ending"]);
    Arc::make_mut(&mut pod).metadata.name = "another".into();
    saved.keep_ending(&pod).await;
    assert_eq!(host.order_of_records().len(), 3, "another version of it");
    assert_eq!(saved.ending_pod("u1"), Some(pod));
}
