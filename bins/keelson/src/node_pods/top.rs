//! `keelson top`: what each container uses of processors and memory.
//!
//! Rule: CPU use is the difference of two readings over the time between them, each as the runtime
//! stamped it. On a terminal the table is redrawn until Ctrl-C; elsewhere it is printed once.
//! Values that the runtime does not return are shown as `-`.

use super::{AgentAddress, AgentClient};
use crate::table::{Table, size};
use crate::terminal;
use anyhow::Result;
use clap::Args;
use ports::local_runtime::{LocalUsage, LocalUsages};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// Show what containers use of processors and memory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  keelson top\n  keelson top --once\n  keelson top web")]
pub(crate) struct TopCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// Only this pod: NAME, NAMESPACE/NAME or the beginning of a UID
    pod: Option<String>,
    /// Print one table, also on a terminal
    #[arg(long)]
    once: bool,
}

impl TopCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let agent = AgentClient::at(&self.address.socket);
        let uid = match &self.pod {
            Some(wanted) => Some(super::find::pod(&agent.pods().await?, wanted)?.uid.clone()),
            None => None,
        };
        let again = std::io::stdout().is_terminal() && !self.once;
        let mut before = agent.usage().await?;
        loop {
            tokio::time::sleep(PERIOD).await;
            let now = agent.usage().await?;
            let text = table(&before, &now, uid.as_deref());
            if !again {
                terminal::print(&text);
                return Ok(ExitCode::SUCCESS);
            }
            // Cursor home, the table, and clear what was below.
            let lines = text.replace('\n', "\u{1b}[K\n");
            terminal::print(&format!("\u{1b}[H{lines}\u{1b}[J"));
            before = now;
        }
    }
}

pub(super) fn table(before: &LocalUsages, now: &LocalUsages, pod: Option<&str>) -> String {
    let mut table = Table::new(&["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY", "WRITTEN"]);
    let mut rows: Vec<&LocalUsage> =
        now.containers.iter().filter(|one| pod.is_none_or(|pod| pod == one.pod_uid)).collect();
    rows.sort_by(|one, other| {
        (&one.pod_namespace, &one.pod_name, &one.name).cmp(&(
            &other.pod_namespace,
            &other.pod_name,
            &other.name,
        ))
    });
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size);
    for one in &rows {
        let earlier = before.containers.iter().find(|old| old.container_id == one.container_id);
        let cpu = earlier.and_then(|old| thousandths(old, one));
        table.row([
            one.pod_namespace.clone(),
            one.pod_name.clone(),
            one.name.clone(),
            cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu}m")),
            bytes(one.memory_bytes),
            bytes(one.written_bytes),
        ]);
    }
    if rows.is_empty() { "no containers run\n".to_owned() } else { table.render() }
}

/// Millicores between two readings; None if there is nothing to compare.
fn thousandths(old: &LocalUsage, new: &LocalUsage) -> Option<u64> {
    let passed = u64::try_from(new.at.checked_sub(old.at)?).ok().filter(|passed| *passed > 0)?;
    let used = new.cpu_nanos?.checked_sub(old.cpu_nanos?)?;
    u64::try_from(u128::from(used) * 1_000 / u128::from(passed)).ok()
}
