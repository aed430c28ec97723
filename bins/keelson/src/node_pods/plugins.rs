//! `keelson plugins`: the plugins of this node, their state, and what is wrong with them.

use super::{AgentAddress, AgentClient, json, now};
use crate::table::Table;
use crate::terminal;
use anyhow::Result;
use clap::{Args, ValueEnum};
use ports::local_plugins::{LocalPlugin, LocalPlugins};
use std::process::ExitCode;

/// List the plugins of this node: storage drivers, device plugins
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  keelson plugins\n  keelson plugins -o json")]
pub(crate) struct PluginsCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t = PluginFormat::Table)]
    output: PluginFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PluginFormat {
    Table,
    Json,
}

impl PluginsCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let plugins = AgentClient::at(&self.address.socket).plugins().await?;
        terminal::print(&match self.output {
            PluginFormat::Table => text(&plugins, now()),
            PluginFormat::Json => json(&serde_json::to_value(&plugins)?)?,
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// A table, and below it what needs attention.
fn text(plugins: &LocalPlugins, now: i64) -> String {
    let mut table = Table::new(&["TYPE", "NAME", "VERSIONS", "STATE", "NEXT TRY", "ENDPOINT"]);
    for plugin in &plugins.plugins {
        table.row([
            or_dash(&plugin.plugin_type),
            or_dash(&plugin.name),
            or_dash(&plugin.versions.join(",")),
            plugin.state.clone(),
            next_try(plugin, now),
            or_dash(if plugin.endpoint.is_empty() { &plugin.socket } else { &plugin.endpoint }),
        ]);
    }
    let mut text = match (plugins.plugins.is_empty(), plugins.dir.is_empty()) {
        (true, true) => "this agent takes no plugins\n".to_owned(),
        (true, false) => format!("no plugins in {}\n", plugins.dir),
        (false, _) => table.render(),
    };
    for plugin in plugins.plugins.iter().filter(|plugin| !plugin.last_error.is_empty()) {
        text.push_str(&format!("\n{}: {}\n", plugin.socket, plugin.last_error));
        if !plugin.next_step.is_empty() {
            text.push_str(&format!("  next step: {}\n", plugin.next_step));
        }
    }
    if !plugins.dir_error.is_empty() {
        text.push_str(&format!("\n{}: {}\n", plugins.dir, plugins.dir_error));
    }
    for file in &plugins.ignored {
        text.push_str(&format!("\nignored: {}: {}\n", file.path, file.reason));
    }
    text
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// In whole seconds, rounded up.
fn next_try(plugin: &LocalPlugin, now: i64) -> String {
    match plugin.next_try {
        0 => "-".to_owned(),
        at => {
            let nanos = u64::try_from(at.saturating_sub(now)).unwrap_or(0);
            format!("{}s", nanos.div_ceil(1_000_000_000))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::local_plugins::LocalIgnoredFile;

    #[test]
    fn a_table_and_what_needs_attention() {
        let registered = LocalPlugin {
            socket: "/r/disks.sock".to_owned(),
            plugin_type: "CSIPlugin".to_owned(),
            name: "disks.example.com".to_owned(),
            versions: vec!["1.0.0".to_owned()],
            endpoint: "/p/csi.sock".to_owned(),
            state: "registered".to_owned(),
            ..LocalPlugin::default()
        };
        let waiting = LocalPlugin {
            socket: "/r/dead.sock".to_owned(),
            state: "waiting".to_owned(),
            last_error: "cannot connect".to_owned(),
            next_step: "start it".to_owned(),
            next_try: 4_200_000_000,
            ..LocalPlugin::default()
        };
        let ignored =
            LocalIgnoredFile { path: "/r/note".to_owned(), reason: "not a socket".to_owned() };
        let plugins = LocalPlugins {
            dir: "/r".to_owned(),
            plugins: vec![waiting, registered],
            ignored: vec![ignored],
            ..LocalPlugins::default()
        };
        let expected = "\
TYPE        NAME                VERSIONS   STATE        NEXT TRY   ENDPOINT
-           -                   -          waiting      4s         /r/dead.sock
CSIPlugin   disks.example.com   1.0.0      registered   -          /p/csi.sock

/r/dead.sock: cannot connect
  next step: start it

ignored: /r/note: not a socket
";
        assert_eq!(text(&plugins, 1_000_000_000), expected);
        let empty = LocalPlugins { dir: "/r".to_owned(), ..LocalPlugins::default() };
        assert_eq!(text(&empty, 0), "no plugins in /r\n");
        assert_eq!(text(&LocalPlugins::default(), 0), "this agent takes no plugins\n");
    }
}
