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
use image_store::{ImageStore, Limits, Platform, StoredImage};

use crate::clock::nanoseconds;
use crate::failure::{CriError, Result, blocking};

pub use pulls::PullProgress;
pub(crate) use pulls::{Puller, RegistryPullRequest};
pub(crate) use views::short_name;

#[cfg(test)]
mod tests;

/// The images of one runtime.
#[derive(Clone)]
pub struct RuntimeImages {
    store: Arc<ImageStore>,
    puller: Arc<Puller>,
    root: PathBuf,
}

impl RuntimeImages {
    /// Opens the store and removes leftovers of a killed process. What cannot be removed is logged:
    /// running pods need their server.
    pub fn open(root: &Path, puller: Puller) -> Result<Self> {
        let dir = root.join("images");
        let store = ImageStore::open(&dir, Limits::default(), Platform::host())?;
        if let Err(error) = store.sweep() {
            tracing::error!(%error, "cleaning up the store of images: leftovers stay");
        }
        Ok(Self { store: Arc::new(store), puller: Arc::new(puller), root: dir })
    }

    /// Imports and pins the images of a directory; returns a message for each failure.
    pub(crate) async fn preload(&self, dir: &Path) -> Result<Vec<String>> {
        let dir = dir.to_owned();
        self.with_store(move |store| preloaded::import(store, &dir)).await
    }

    pub fn store(&self) -> Arc<ImageStore> {
        Arc::clone(&self.store)
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs an operation on the store on the blocking pool.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ImageStore) -> Result<T> + Send + 'static,
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
            let Some(record) = find_image(store, &name)? else {
                return Ok(v1::ImageStatusResponse::default());
            };
            let info = if verbose { views::info(store, &record)? } else { Default::default() };
            Ok(v1::ImageStatusResponse { image: Some(views::image(store, &record)?), info })
        })
        .await
    }

    /// The record of an image by any of its names.
    pub async fn resolve(&self, name: &str) -> Result<StoredImage> {
        let name = name.to_owned();
        self.with_store(move |store| {
            find_image(store, &name)?
                .ok_or_else(|| CriError::not_found(format!("image {name:?} is not found")))
        })
        .await
    }

    /// Pulls, or joins the same pull that is in flight.
    pub async fn pull(&self, request: RegistryPullRequest) -> Result<String> {
        self.puller.pull(&self.store, request).await
    }

    /// All pulls in flight and their progress.
    pub fn pulls(&self) -> Vec<PullProgress> {
        self.puller.in_flight()
    }

    /// The same, as a watch.
    pub fn watch_pulls(&self) -> tokio::sync::watch::Receiver<Vec<PullProgress>> {
        self.puller.watch()
    }

    /// Removes an image with all its names; a missing one is no error.
    pub async fn remove(&self, image: Option<v1::ImageSpec>) -> Result<()> {
        let name = image.map(|image| image.image).unwrap_or_default();
        self.with_store(move |store| {
            let Some(record) = find_image(store, &name)? else { return Ok(()) };
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
fn find_image(store: &ImageStore, name: &str) -> Result<Option<StoredImage>> {
    match store.image(name) {
        Ok(record) => Ok(Some(record)),
        Err(image_store::Error::ImageMissing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
