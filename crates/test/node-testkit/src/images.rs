//! Test images made from local files: no network, no image tool.
//!
//! An [`TestImage`] is a value: a name, a tree of files, what to run. The rule kept here: the same value
//! gives the same bytes, whenever and wherever it is built (times fixed, order fixed), and two images
//! with different names never have the same identity, because the name is also a label in the
//! configuration. A runtime shows an image's first name, so images that share an identity would
//! answer with each other's names.
//!
//! Not done here: pulling, unpacking, more than one layer, platforms other than this machine's.

mod build;
mod known;
mod output;
mod registry;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

pub(crate) use build::digest;
pub use build::{Blob, BuiltImage};
pub use known::{
    AGNHOST, BUSYBOX, CONTAINERD_PAUSE, DOCKER_HUB_BUSYBOX, HOST_PACKAGES, PAUSE, agnhost, busybox,
    busybox_from, pause, static_program,
};
pub use registry::{push, push_stack, repositories, tags};

/// The label that carries the image's name into its configuration.
pub const NAME_LABEL: &str = "keelson.test-image.name";

const ROOT: (u32, u32) = (0, 0);

/// What a runtime starts from the image, as in the OCI image configuration.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunConfig {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Paths of volumes; the OCI format maps each to an empty object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, BTreeMap<String, String>>,
    pub labels: BTreeMap<String, String>,
}

/// The content of one path of an image.
#[derive(Clone, Debug)]
pub enum FileContent {
    Directory,
    /// A symbolic link and where it points.
    Link(String),
    Bytes(Vec<u8>),
    /// A file of this machine, read when the image is built.
    HostFile(PathBuf),
}

/// One path of an image, with its mode and owner.
#[derive(Clone, Debug)]
pub struct ImageFile {
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    pub content: FileContent,
}

/// An image: a name, files, and what to run.
#[derive(Clone, Debug)]
pub struct TestImage {
    name: String,
    /// Paths without the leading slash; every parent is there too.
    files: BTreeMap<String, ImageFile>,
    config: RunConfig,
}

impl TestImage {
    /// An empty image. `name` is a whole reference: `registry/repository:tag`.
    pub fn new(name: &str) -> Self {
        let mut image =
            Self { name: String::new(), files: BTreeMap::new(), config: RunConfig::default() };
        image.config.working_dir = "/".to_owned();
        image.named(name)
    }

    /// The same image under another name, and so with another identity.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self.config.labels.insert(NAME_LABEL.to_owned(), name.to_owned());
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    pub fn files(&self) -> &BTreeMap<String, ImageFile> {
        &self.files
    }

    /// Changes the configuration of what is run; the label with the name stays.
    #[must_use]
    pub fn configured(mut self, change: impl FnOnce(&mut RunConfig)) -> Self {
        change(&mut self.config);
        let name = self.name.clone();
        self.named(&name)
    }

    /// Adds text or bytes at `path`.
    #[must_use]
    pub fn with_bytes(self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(path, ImageFile { mode, owner: ROOT, content: FileContent::Bytes(bytes.into()) })
    }

    /// Adds a file of this machine at `path`.
    #[must_use]
    pub fn with_host_file(self, path: &str, mode: u32, host: &Path) -> Self {
        self.with(
            path,
            ImageFile { mode, owner: ROOT, content: FileContent::HostFile(host.to_owned()) },
        )
    }

    /// Adds a symbolic link at `path`.
    #[must_use]
    pub fn with_link(self, path: &str, target: &str) -> Self {
        let content = FileContent::Link(target.to_owned());
        self.with(path, ImageFile { mode: 0o777, owner: ROOT, content })
    }

    /// Adds a directory at `path`.
    #[must_use]
    pub fn with_directory(self, path: &str, mode: u32) -> Self {
        self.with(path, ImageFile { mode, owner: ROOT, content: FileContent::Directory })
    }

    /// Sets the owner of what was added at `path`.
    #[must_use]
    pub fn owned_by(mut self, path: &str, user: u32, group: u32) -> Self {
        if let Some(file) = self.files.get_mut(path.trim_matches('/')) {
            file.owner = (user, group);
        }
        self
    }

    fn with(mut self, path: &str, file: ImageFile) -> Self {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.files.entry(path[..at].to_owned()).or_insert(ImageFile {
                mode: 0o755,
                owner: ROOT,
                content: FileContent::Directory,
            });
        }
        self.files.insert(path.to_owned(), file);
        self
    }

    /// The parts of the name: registry, repository, tag.
    pub fn reference(&self) -> Result<TestImageName<'_>> {
        TestImageName::parse(&self.name)
    }
}

/// A whole image name, split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestImageName<'a> {
    pub registry: &'a str,
    pub repository: &'a str,
    pub tag: &'a str,
}

impl<'a> TestImageName<'a> {
    /// Splits `registry/repository:tag`. Short names are refused: a test says which image it means.
    pub fn parse(name: &'a str) -> Result<Self> {
        let whole = || format!("image name {name:?}: expected registry/repository:tag");
        let (registry, rest) = name.split_once('/').with_context(whole)?;
        let (repository, tag) = rest.rsplit_once(':').with_context(whole)?;
        let registry_like =
            registry.contains('.') || registry.contains(':') || registry == "localhost";
        ensure!(
            registry_like && !repository.is_empty() && !tag.is_empty() && !tag.contains('/'),
            whole()
        );
        Ok(Self { registry, repository, tag })
    }
}
