//! An image record as a CRI message.

use std::collections::BTreeMap;

use cri_wire::v1;
use image_store::{ImageStore, StoredImage};
use serde_json::json;

use crate::failure::Result;

pub(super) fn image(store: &ImageStore, record: &StoredImage) -> Result<v1::Image> {
    let config = store.image_config(record)?;
    let (uid, username) = user_of(&config.config.user);
    Ok(v1::Image {
        id: record.id.to_string(),
        repo_tags: record.names.keys().cloned().collect(),
        repo_digests: record.digests.iter().cloned().collect(),
        size: record.content_bytes(),
        uid: uid.map(|value| v1::Int64Value { value }),
        username,
        spec: None,
        pinned: record.pinned || record.preloaded,
    })
}

/// The user of an image: a number, or otherwise a name.
pub(super) fn user_of(user: &str) -> (Option<i64>, String) {
    let user = user.split(':').next().unwrap_or_default();
    match user.parse::<i64>() {
        Ok(uid) => (Some(uid), String::new()),
        Err(_) => (None, user.to_owned()),
    }
}

/// The image name in a container's status: its first tag.
pub(crate) fn short_name(record: &StoredImage) -> Option<String> {
    record.names.keys().next().cloned()
}

/// The additional information of a `verbose` status.
pub(super) fn info(store: &ImageStore, record: &StoredImage) -> Result<BTreeMap<String, String>> {
    let limit = store.limits().document_bytes;
    let bytes = store.content().read_document(&record.id, limit)?;
    let spec: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let chain = record.chain_ids().last().map(ToString::to_string).unwrap_or_default();
    let text = json!({ "chainID": chain, "imageSpec": spec }).to_string();
    Ok(BTreeMap::from([("info".to_owned(), text)]))
}
