//! Writes built images as files: OCI layout, OCI archive, docker archive.
//!
//! The rule: a file or directory appears whole or not at all (written beside its path, then
//! renamed), and equal images give equal bytes. Archives requested without a path are written to
//! the cache once, named by the manifest's digest.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tar::{EntryType, Header};

use super::build::{Blob, BuiltImage, MANIFEST_TYPE, architecture, descriptor};
use super::{TestImage, TestImageName};

type Archive<'a> = tar::Builder<BufWriter<&'a mut fs::File>>;

impl TestImage {
    /// The OCI archive of this image in the cache; written if it is missing.
    pub fn oci_archive(&self) -> Result<PathBuf> {
        let built = self.build()?;
        let path = cached_archive(&built, "oci")?;
        if !path.exists() {
            built.write_oci_archive(&path)?;
        }
        Ok(path)
    }

    /// The docker archive of this image in the cache; written if it is missing.
    pub fn docker_archive(&self) -> Result<PathBuf> {
        let built = self.build()?;
        let path = cached_archive(&built, "docker")?;
        if !path.exists() {
            built.write_docker_archive(&path)?;
        }
        Ok(path)
    }
}

fn cached_archive(built: &BuiltImage, form: &str) -> Result<PathBuf> {
    let archives = crate::cache::root()?.join("images/archives");
    Ok(archives.join(format!("{}.{form}.tar", built.manifest.hex())))
}

impl BuiltImage {
    /// Writes an OCI image layout; `dir` must not exist.
    pub fn write_oci_layout(&self, dir: &Path) -> Result<()> {
        let beside = tempfile::Builder::new()
            .prefix(".layout-")
            .tempdir_in(parent_of(dir)?)
            .with_context(|| format!("a folder beside {}", dir.display()))?;
        let blobs = beside.path().join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        for (path, bytes) in self.layout()? {
            fs::write(beside.path().join(&path), bytes)
                .with_context(|| format!("writing {path} of {}", dir.display()))?;
        }
        fs::rename(beside.path(), dir)
            .with_context(|| format!("placing the layout at {}", dir.display()))?;
        Ok(())
    }

    /// Writes the OCI layout as one tar.
    pub fn write_oci_archive(&self, path: &Path) -> Result<()> {
        let files = self.layout()?;
        write_whole(path, |file| {
            let mut archive = tar::Builder::new(BufWriter::new(file));
            append_dir(&mut archive, "blobs/")?;
            append_dir(&mut archive, "blobs/sha256/")?;
            for (path, bytes) in &files {
                append_file(&mut archive, path, bytes)?;
            }
            finish(archive)
        })
    }

    /// Writes the older archive form that `docker save` gives and `docker load` takes.
    pub fn write_docker_archive(&self, path: &Path) -> Result<()> {
        let config = format!("{}.json", self.config.hex());
        let layer = format!("{}/layer.tar", self.layer_tar.hex());
        let manifest = serde_json::to_vec(&json!([
            { "Config": &config, "RepoTags": [&self.name], "Layers": [&layer] }
        ]))?;
        write_whole(path, |file| {
            let mut archive = tar::Builder::new(BufWriter::new(file));
            append_file(&mut archive, &config, &self.config.bytes)?;
            append_dir(&mut archive, &format!("{}/", self.layer_tar.hex()))?;
            append_file(&mut archive, &layer, &self.layer_tar.bytes)?;
            append_file(&mut archive, "manifest.json", &manifest)?;
            finish(archive)
        })
    }

    /// Every file of the layout, sorted by path.
    fn layout(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let blob = |blob: &Blob| (format!("blobs/sha256/{}", blob.hex()), blob.bytes.clone());
        let mut files = vec![
            blob(&self.config),
            blob(&self.layer),
            blob(&self.manifest),
            ("index.json".to_owned(), serde_json::to_vec(&self.index()?)?),
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        ];
        files.sort();
        Ok(files)
    }

    fn index(&self) -> Result<Value> {
        let mut manifest = descriptor(MANIFEST_TYPE, &self.manifest);
        manifest["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        // The first annotation is the standard's and holds a tag; the second is how containerd
        // learns the whole name of what it imports.
        manifest["annotations"] = json!({
            "org.opencontainers.image.ref.name": TestImageName::parse(&self.name)?.tag,
            "io.containerd.image.name": &self.name,
        });
        Ok(json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        }))
    }
}

fn append_dir(archive: &mut Archive<'_>, path: &str) -> Result<()> {
    let mut header = plain_header(0o755, 0);
    header.set_entry_type(EntryType::Directory);
    Ok(archive.append_data(&mut header, path, std::io::empty())?)
}

fn append_file(archive: &mut Archive<'_>, path: &str, bytes: &[u8]) -> Result<()> {
    let mut header = plain_header(0o644, bytes.len() as u64);
    header.set_entry_type(EntryType::Regular);
    Ok(archive.append_data(&mut header, path, bytes)?)
}

fn plain_header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn finish(archive: Archive<'_>) -> Result<()> {
    Ok(archive.into_inner()?.flush()?)
}

fn parent_of(path: &Path) -> Result<&Path> {
    let parent = path.parent().with_context(|| format!("{} has no parent", path.display()))?;
    fs::create_dir_all(parent).with_context(|| format!("making folder {}", parent.display()))?;
    Ok(parent)
}

/// Writes a file beside its path and renames it: it is complete or does not exist.
pub(super) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> Result<()>,
) -> Result<()> {
    let mut beside = tempfile::Builder::new()
        .prefix(".writing-")
        .tempfile_in(parent_of(path)?)
        .with_context(|| format!("a file beside {}", path.display()))?;
    write(beside.as_file_mut()).with_context(|| format!("writing {}", path.display()))?;
    beside.persist(path).with_context(|| format!("placing {}", path.display()))?;
    Ok(())
}
