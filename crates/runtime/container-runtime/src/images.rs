//! CRI's image service on top of the image store.
//!
//! Rule: every call that touches the disk runs on the blocking pool. Reads never wait for a pull. A
//! layer's disk usage is counted once, when it is unpacked; the total of the store is summed up on
//! each request.

mod preloaded;
mod pulls;
mod views;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri_wire::v1;
use image_store::{ImageRecord, Limits, Platform, Store};

use crate::clock::nanoseconds;
use crate::failure::{Failure, Result, blocking};

pub use pulls::PullProgress;
pub(crate) use pulls::{PullRequest, Puller};
pub(crate) use views::short_name;

#[cfg(test)]
mod tests;

/// The images of one runtime.
#[derive(Clone)]
pub struct Images {
    store: Arc<Store>,
    puller: Arc<Puller>,
    root: PathBuf,
}

impl Images {
    /// Opens the store and removes leftovers of a killed process. What cannot be removed is logged:
    /// running pods need their server.
    pub fn open(root: &Path, puller: Puller) -> Result<Self> {
        let folder = root.join("images");
        let store = Store::open(&folder, Limits::default(), Platform::host())?;
        if let Err(error) = store.sweep() {
            tracing::error!(%error, "cleaning up the store of images: leftovers stay");
        }
        Ok(Self { store: Arc::new(store), puller: Arc::new(puller), root: folder })
    }

    /// Imports and pins the images of a directory; returns a message for each failure.
    pub(crate) async fn preload(&self, folder: &Path) -> Result<Vec<String>> {
        let folder = folder.to_owned();
        self.with_store(move |store| preloaded::import(store, &folder)).await
    }

    pub fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs an operation on the store on the blocking pool.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.store();
        blocking(move || work(&store)).await
    }

    pub async fn list(&self, filter: Option<v1::ImageFilter>) -> Result<Vec<v1::Image>> {
        let wanted = filter.and_then(|filter| filter.image).map(|image| image.image);
        self.with_store(move |store| {
            let records = match wanted.as_deref() {
                None | Some("") => store.images()?,
                Some(name) => match store.image(name) {
                    Ok(record) => vec![record],
                    Err(image_store::Error::ImageMissing(_)) => Vec::new(),
                    Err(error) => return Err(error.into()),
                },
            };
            records.iter().map(|record| views::image(store, record)).collect()
        })
        .await
    }

    pub async fn status(
        &self,
        image: Option<v1::ImageSpec>,
        verbose: bool,
    ) -> Result<v1::ImageStatusResponse> {
        let name = image.map(|image| image.image).unwrap_or_default();
        self.with_store(move |store| {
            let Some(record) = found(store, &name)? else {
                return Ok(v1::ImageStatusResponse::default());
            };
            let info = if verbose { views::info(store, &record)? } else { Default::default() };
            Ok(v1::ImageStatusResponse { image: Some(views::image(store, &record)?), info })
        })
        .await
    }

    /// The record of an image by any of its names.
    pub async fn resolve(&self, name: &str) -> Result<ImageRecord> {
        let name = name.to_owned();
        self.with_store(move |store| {
            found(store, &name)?
                .ok_or_else(|| Failure::not_found(format!("image {name:?} is not found")))
        })
        .await
    }

    /// Pulls, or joins the same pull that is in flight.
    pub async fn pull(&self, request: PullRequest) -> Result<String> {
        self.puller.pull(&self.store, request).await
    }

    /// All pulls in flight and their progress.
    pub fn pulls(&self) -> Vec<PullProgress> {
        self.puller.under_way()
    }

    /// The same, as a watch.
    pub fn watch_pulls(&self) -> tokio::sync::watch::Receiver<Vec<PullProgress>> {
        self.puller.watch()
    }

    /// Removes an image with all its names; a missing one is no error.
    pub async fn remove(&self, image: Option<v1::ImageSpec>) -> Result<()> {
        let name = image.map(|image| image.image).unwrap_or_default();
        self.with_store(move |store| {
            let Some(record) = found(store, &name)? else { return Ok(()) };
            store.remove(&record.id.to_string())?;
            store.collect()?;
            Ok(())
        })
        .await
    }

    pub async fn filesystem(&self) -> Result<v1::ImageFsInfoResponse> {
        let mountpoint = self.root.display().to_string();
        self.with_store(move |store| {
            let usage = store.usage()?;
            Ok(v1::ImageFsInfoResponse {
                image_filesystems: vec![v1::FilesystemUsage {
                    timestamp: nanoseconds(),
                    fs_id: Some(v1::FilesystemIdentifier { mountpoint }),
                    used_bytes: Some(v1::UInt64Value { value: usage.bytes }),
                    inodes_used: Some(v1::UInt64Value { value: usage.inodes }),
                }],
                container_filesystems: Vec::new(),
            })
        })
        .await
    }
}

/// None if no image has that name.
fn found(store: &Store, name: &str) -> Result<Option<ImageRecord>> {
    match store.image(name) {
        Ok(record) => Ok(Some(record)),
        Err(image_store::Error::ImageMissing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
