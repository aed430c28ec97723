//! `keelson images`: the images that the agent's runtime has, and their removal.

use super::{AgentAddress, AgentClient};
use crate::table::{Table, short_id, size};
use crate::terminal;
use anyhow::Result;
use clap::{Args, Subcommand};
use ports::local_runtime::LocalImages;
use std::process::ExitCode;

/// List the images of the runtime, or remove some
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  keelson images\n  keelson images rm docker.io/library/busybox:1"
)]
pub(crate) struct ImagesCommand {
    #[command(flatten)]
    address: AgentAddress,
    #[command(subcommand)]
    act: Option<ImagesAction>,
}

#[derive(Debug, Subcommand)]
enum ImagesAction {
    /// Remove images by name or id
    Rm {
        #[arg(required = true, value_name = "IMAGE")]
        names: Vec<String>,
    },
}

impl ImagesCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        match self.act {
            None => terminal::print(&table(&agent.images().await?)),
            Some(ImagesAction::Rm { names }) => {
                for name in names {
                    let removed = agent.remove_image(&name).await?;
                    terminal::print(&format!("removed {}\n", removed.name));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One line per name; an image without names has one line with its id.
pub(super) fn table(images: &LocalImages) -> String {
    let mut table = Table::new(&["IMAGE", "ID", "SIZE", "PINNED"]);
    let mut rows: Vec<[String; 4]> = Vec::new();
    for image in &images.images {
        let names = if image.tags.is_empty() { &image.digests } else { &image.tags };
        let names = if names.is_empty() { vec!["<none>".to_owned()] } else { names.clone() };
        for name in names {
            let pinned = if image.pinned { "yes" } else { "" };
            rows.push([name, short_id(&image.id), size(image.size_bytes), pinned.to_owned()]);
        }
    }
    rows.sort();
    let is_empty = rows.is_empty();
    for row in rows {
        table.row(row);
    }
    if is_empty { "no images\n".to_owned() } else { table.render() }
}
