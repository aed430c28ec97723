//! `keelson image import`: imports files into the image store of a running server.
//!
//! Rule: the server returns the path of its root, and the image store in it is opened directly:
//! several processes may use it. Nothing is copied through the socket.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use cri_client::{CallLimits, CriClient, Endpoint};
use cri_wire::v1;
use image_store::{ImageReference, ImageStore, ImportOptions, Limits, Platform};

use super::DEFAULT_SOCKET;
use crate::progress_line::ProgressLine;
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct ImportCommand {
    /// Where the runtime listens
    #[arg(long, value_name = "ENDPOINT", default_value = DEFAULT_SOCKET)]
    address: Endpoint,

    /// What to call the image; needed for a plain directory
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Exempt the image from garbage collection
    #[arg(long)]
    pinned: bool,

    /// Archives, OCI layouts or directories
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl ImportCommand {
    pub(super) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the task runtime")?;
        let root = runtime.block_on(root_of(&self.address))?;
        let store = ImageStore::open(&root.join("images"), Limits::default(), Platform::host())?;
        let name = self.name.as_deref().map(ImageReference::parse).transpose()?;
        if name.is_some() && self.files.len() > 1 {
            bail!("--name names one image; import the files one by one");
        }
        let options = ImportOptions { name, pinned: self.pinned, preloaded: false };
        for file in &self.files {
            let progress = ProgressLine::new(&file.display().to_string());
            let imported = store
                .import(file, &options, &progress)
                .with_context(|| format!("import {}", file.display()))?;
            drop(progress);
            for image in imported {
                let names: Vec<String> = image.names.iter().map(ToString::to_string).collect();
                let shown = if names.is_empty() { "(no name)".to_owned() } else { names.join(" ") };
                terminal::print(&format!("{} {shown}\n", image.record.id));
            }
        }
        Ok(())
    }
}

/// The server's root directory, as the server reports it.
async fn root_of(address: &Endpoint) -> Result<PathBuf> {
    let client = CriClient::connect(address, None, CallLimits::default());
    let status = client
        .status(v1::StatusRequest { verbose: true })
        .await
        .with_context(|| format!("ask the runtime at {address}; is `keelson cri` running?"))?;
    let config = status.info.get("config").map(String::as_str).unwrap_or("null");
    let config: serde_json::Value =
        serde_json::from_str(config).context("parse the runtime's configuration")?;
    let root = config.get("root").and_then(serde_json::Value::as_str);
    root.map(PathBuf::from)
        .with_context(|| format!("the runtime at {address} is not keelson's: it reports no root"))
}
