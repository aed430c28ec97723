//! A container's process: command, environment, working directory. Pure.
//!
//! upstream: containerd internal/cri/opts/spec_opts.go (WithProcessArgs), server/container_create.go

use std::collections::HashMap;

use container_create::spec::ProcessSpec;
use cri_wire::v1;
use image_store::ContainerConfig as ImageRunConfig;

use crate::failure::{CriError, Result};

#[cfg(test)]
mod tests;

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn of(
    config: &v1::ContainerConfig,
    image: &ImageRunConfig,
    (hostname, home): (&str, &str),
) -> Result<ProcessSpec> {
    let working_directory = match (&*config.working_dir, &*image.working_dir) {
        ("", "") => "/".to_owned(),
        ("", of_image) => of_image.to_owned(),
        (of_pod, _) => of_pod.to_owned(),
    };
    Ok(ProcessSpec {
        arguments: arguments(config, image)?,
        environment: environment(config, image, (hostname, home))?,
        working_directory,
        terminal: config.tty,
        terminal_size: None,
    })
}

/// The pod's command replaces the image's entrypoint and arguments; arguments alone replace its
/// arguments.
fn arguments(config: &v1::ContainerConfig, image: &ImageRunConfig) -> Result<Vec<String>> {
    let mut parts = config.command.clone();
    if parts.is_empty() {
        let empty = matches!(image.entrypoint.as_slice(), [only] if only.is_empty());
        if !empty {
            parts.clone_from(&image.entrypoint);
        }
        parts
            .extend(if config.args.is_empty() { &image.cmd } else { &config.args }.iter().cloned());
    } else {
        parts.extend(config.args.iter().cloned());
    }
    if parts.is_empty() {
        return Err(CriError::plain("no command specified"));
    }
    Ok(parts)
}

fn environment(
    config: &v1::ContainerConfig,
    image: &ImageRunConfig,
    (hostname, home): (&str, &str),
) -> Result<Vec<String>> {
    let mut all = Variables::of(Vec::new());
    all.set(DEFAULT_PATH.to_owned());
    if config.tty {
        all.set("TERM=xterm".to_owned());
    }
    all.set(format!("HOSTNAME={hostname}"));
    for entry in &image.env {
        all.set(entry.clone());
    }
    for entry in &config.envs {
        let value = std::str::from_utf8(&entry.value).map_err(|_| {
            CriError::invalid(format!("the value of the variable {:?} is no UTF-8 text", entry.key))
        })?;
        all.set(format!("{}={value}", entry.key));
    }
    // A login would set it; an explicit value stays.
    if !all.entries.iter().any(|entry| entry.starts_with("HOME=")) {
        all.set(format!("HOME={home}"));
    }
    Ok(all.into_entries())
}

/// `NAME=VALUE` entries, each name once. A pod may have a hundred thousand, so a name is looked up.
pub(super) struct Variables {
    entries: Vec<String>,
    indexes: HashMap<String, usize>,
}

impl Variables {
    pub(super) fn of(given: Vec<String>) -> Self {
        let mut all = Self { entries: Vec::with_capacity(given.len()), indexes: HashMap::new() };
        for entry in given {
            all.set(entry);
        }
        all
    }

    /// A later value replaces the earlier one.
    pub(super) fn set(&mut self, entry: String) {
        let name = entry.split('=').next().unwrap_or_default();
        match self.indexes.get(name) {
            Some(index) => self.entries[*index] = entry,
            None => {
                self.indexes.insert(name.to_owned(), self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    pub(super) fn into_entries(self) -> Vec<String> {
        self.entries
    }
}
