//! The names that a root has on this host: its bridge, its subnets, the cgroup of its pods.
//!
//! Rule: the default root has the well-known names. Every other root has names of its own, derived
//! from an id that is generated once and stored in `<root>/names.json`, so that a root that was
//! moved keeps them. All of them are claimed, with the state directory, before any earlier pod is
//! looked at; a name that another root has claimed is an error that names that root.

mod choice;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machine_claims::{
    AddressRange, Claim, ClaimConflict, ClaimError, ClaimedResources, Claims, HeldClaim,
};
use serde::{Deserialize, Serialize};

use crate::durable::{self, Durability};
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::network::Subnet;
use crate::settings::RuntimeSettings;
use choice::{ChosenNames, NameInputs};

#[cfg(test)]
mod tests;

/// The root that has the well-known names.
const DEFAULT_ROOT: &str = "/var/lib/keelson";
const FILE: &str = "names.json";
const VERSION: u32 = 1;
/// How often to retry while an earlier process of this root is exiting, and the pause in between.
const LOCK_ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The content of `names.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamesRecord {
    version: u32,
    id: String,
    /// The root's path when it was last used, and the state directory then.
    root: PathBuf,
    state: PathBuf,
    bridge: String,
    subnets: Vec<String>,
    cgroups: String,
}

/// The claimed names of a root.
#[derive(Debug)]
pub(crate) struct RootNames {
    pub(crate) id: String,
    /// The parent of all cgroups that this root and its agent create.
    pub(crate) cgroups: String,
    pub(crate) claim: Arc<HeldClaim>,
}

/// What the records show of earlier pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreviousPods {
    /// There are records of sandboxes.
    pub(crate) has_records: bool,
    /// The host was rebooted since.
    pub(crate) rebooted: bool,
}

impl RootNames {
    /// The cgroups are those of the default root, which are never removed.
    pub(crate) fn has_default_cgroups(&self) -> bool {
        self.cgroups == choice::DEFAULT_CGROUPS
    }

    /// Chooses and claims the names of `settings.root`, and puts them into the settings.
    pub(crate) async fn take(
        settings: &mut RuntimeSettings,
        previous: PreviousPods,
    ) -> Result<Self> {
        let mut tries = 0;
        loop {
            let mut tried = settings.clone();
            let taken = blocking(move || {
                let taken = take(&mut tried, previous)?;
                Ok((tried, taken))
            });
            let (tried, taken) = taken.await?;
            match taken {
                Ok(names) => {
                    *settings = tried;
                    return Ok(names);
                }
                // A killed process has released the root's lock, but not this one yet.
                Err(conflict)
                    if is_held_by_predecessor(settings, &conflict) && tries < LOCK_ATTEMPTS =>
                {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(conflict) => return Err(CriError::plain(conflict.to_string())),
            }
        }
    }
}

fn is_held_by_predecessor(settings: &RuntimeSettings, conflict: &ClaimConflict) -> bool {
    canonical(&settings.root).is_ok_and(|root| root == conflict.owner.resources.root)
}

fn canonical(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).doing(format!("the path {}", path.display()))
}

fn take(
    settings: &mut RuntimeSettings,
    previous: PreviousPods,
) -> Result<Result<RootNames, Box<ClaimConflict>>> {
    let (root, state) = (canonical(&settings.root)?, canonical(&settings.state)?);
    let record = read(&root.join(FILE))?;
    let mut claims = Claims::new(&settings.claims);
    if let Err(error) = claims.lock() {
        // Links still carry the id of their root.
        tracing::warn!(%error, "other roots on this machine would not be noticed");
        claims = Claims::new(&state.join("claims"));
    }
    let lock = claims.lock().map_err(|error| claim_error(&error))?;
    let key = machine_claims::key("runtime", &root);
    let others = lock.others(&key).map_err(|error| claim_error(&error))?;
    if let Some(record) = record.as_ref().filter(|it| it.root == root && it.state != state) {
        check_former_state(record, &state, &others)?;
    }
    let inputs = NameInputs {
        is_default: root == default_root(),
        recorded: record.as_ref().map(ChosenNames::of_record).transpose()?,
        has_records: previous.has_records,
        has_pods: has_pods(&state) && !previous.rebooted,
        others,
        in_use: ranges_in_use(record.as_ref().map(|record| record.bridge.as_str()))?,
        fresh_id: fresh_id()?,
    };
    let names = choice::choose(&inputs, settings);
    let record = NamesRecord {
        version: VERSION,
        id: names.id.clone(),
        root: root.clone(),
        state: state.clone(),
        bridge: names.bridge.clone(),
        subnets: names.subnets.iter().map(ToString::to_string).collect(),
        cgroups: names.cgroups.clone(),
    };
    let resources = ClaimedResources {
        root,
        id: names.id.clone(),
        pid: std::process::id(),
        state: Some(state),
        cgroups: settings
            .has_agent
            .then(|| format!("{}/kubepods", names.cgroups))
            .into_iter()
            .collect(),
        network_namespace: network_namespace()?,
        bridge: names.bridge.clone(),
        subnets: names.subnets.iter().map(range).collect(),
        ..ClaimedResources::default()
    };
    let claim = match lock.acquire(&key, resources) {
        Ok(claim) => Arc::new(claim),
        Err(ClaimError::Conflict(conflict)) => return Ok(Err(conflict)),
        Err(error) => return Err(claim_error(&error)),
    };
    write(&settings.root.join(FILE), &record)?;
    settings.built_in_network.bridge = names.bridge;
    settings.built_in_network.subnets = names.subnets;
    Ok(Ok(RootNames { id: names.id, cgroups: names.cgroups, claim }))
}

/// Pods that this root has in another state directory would be taken for terminated.
fn check_former_state(record: &NamesRecord, state: &Path, others: &[Claim]) -> Result<()> {
    let is_another_roots =
        others.iter().any(|other| other.resources.state.as_ref() == Some(&record.state));
    if is_another_roots || !record.state.exists() || !has_pods(&record.state) {
        return Ok(());
    }
    Err(CriError::plain(format!(
        "pods of the root {} are in the state directory {}, not in {}; say it with --state",
        record.root.display(),
        record.state.display(),
        state.display()
    )))
}

/// A directory that cannot be listed counts as having pods.
fn has_pods(state: &Path) -> bool {
    !durable::names_in(&state.join("pods")).is_ok_and(|names| names.is_empty())
}

fn claim_error(error: &ClaimError) -> CriError {
    CriError::plain(format!("the names of this root on the machine: {error}"))
}

fn default_root() -> PathBuf {
    canonical(Path::new(DEFAULT_ROOT)).unwrap_or_else(|_| DEFAULT_ROOT.into())
}

fn read(path: &Path) -> Result<Option<NamesRecord>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.doing(format!("reading {}", path.display()))?,
    };
    let wrong = |why: String| {
        CriError::plain(format!(
            "{}: {why}; where no pod of this root runs it may be removed, and new names are drawn",
            path.display()
        ))
    };
    let record: NamesRecord =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if record.version != VERSION {
        return Err(wrong(format!("version {}; expected {VERSION}", record.version)));
    }
    Ok(Some(record))
}

fn write(path: &Path, record: &NamesRecord) -> Result<()> {
    if read(path).is_ok_and(|found| found.as_ref() == Some(record)) {
        return Ok(());
    }
    let text = serde_json::to_vec_pretty(record).unwrap_or_default();
    durable::write_with_durability(path, &text, Durability::Synced)
}

fn fresh_id() -> Result<String> {
    Ok(crate::identity::fresh()?.get(..8).unwrap_or_default().to_owned())
}

fn network_namespace() -> Result<String> {
    let link = std::fs::read_link("/proc/self/ns/net").doing("reading /proc/self/ns/net")?;
    Ok(link.display().to_string())
}

fn range(subnet: &Subnet) -> AddressRange {
    AddressRange { network: subnet.network, prefix: subnet.prefix }
}

/// The ranges of addresses and routes of this host, except those of this root's bridge.
fn ranges_in_use(own_bridge: Option<&str>) -> Result<Vec<AddressRange>> {
    let mut routes = netlink::NetlinkSocket::routes()?;
    let own = match own_bridge {
        Some(name) => routes.find_link(name)?.map(|link| link.index),
        None => None,
    };
    let mut found = routes.addresses()?;
    found.extend(routes.route_destinations()?);
    let range = |(link, network, prefix): (u32, IpAddr, u8)| {
        (Some(link) != own).then_some(AddressRange { network, prefix })
    };
    Ok(found.into_iter().filter_map(range).collect())
}
