//! Which names a root gets. Pure.
//!
//! | root | bridge, subnets, cgroup |
//! |---|---|
//! | the default one | `keelson0`, 10.88.0.0/16, `/keelson` |
//! | another | `keel-<id>`, the first free range, `/keelson/<id>` |
//! | another with pods of a version that kept no names | the default's, as long as it has pods |
//!
//! What the settings name is taken as it is. A range that was chosen before stays while pods have
//! addresses of it, and otherwise as long as it is free.

use machine_claims::{AddressRange, Claim};

use super::{NamesRecord, range};
use crate::failure::{CriError, Result};
use crate::network::{BuiltInSettings, Subnet};
use crate::settings::RuntimeSettings;

pub(super) const DEFAULT_CGROUPS: &str = "/keelson";
const DEFAULT_ID: &str = "default";
/// Ranges for other roots: 10.89.0.0/20 and on, without what clusters commonly give to services
/// (10.96.0.0/12) and pods (10.244.0.0/16).
const FIRST_OCTETS: [std::ops::RangeInclusive<u8>; 2] = [89..=95, 112..=127];
const PREFIX: u8 = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenNames {
    pub(super) id: String,
    pub(super) bridge: String,
    pub(super) subnets: Vec<Subnet>,
    pub(super) cgroups: String,
}

/// The inputs of the choice.
#[derive(Debug)]
pub(super) struct NameInputs {
    pub(super) is_default: bool,
    pub(super) recorded: Option<ChosenNames>,
    /// There are records of sandboxes.
    pub(super) has_records: bool,
    /// Pods of this root may be running.
    pub(super) has_pods: bool,
    pub(super) others: Vec<Claim>,
    /// Ranges of addresses and routes of this host.
    pub(super) in_use: Vec<AddressRange>,
    pub(super) fresh_id: String,
}

impl ChosenNames {
    pub(super) fn of_record(record: &NamesRecord) -> Result<Self> {
        let subnets = record.subnets.iter().map(|text| text.parse()).collect::<Result<_, String>>();
        Ok(Self {
            id: record.id.clone(),
            bridge: record.bridge.clone(),
            subnets: subnets
                .map_err(|why| CriError::plain(format!("names.json: subnets: {why}")))?,
            cgroups: record.cgroups.clone(),
        })
    }

    fn well_known(id: &str) -> Self {
        let BuiltInSettings { bridge, subnets, .. } = BuiltInSettings::default();
        Self { id: id.to_owned(), bridge, subnets, cgroups: DEFAULT_CGROUPS.to_owned() }
    }

    fn own(id: &str, subnets: Vec<Subnet>) -> Self {
        Self {
            id: id.to_owned(),
            bridge: format!("keel-{id}"),
            subnets,
            cgroups: format!("{DEFAULT_CGROUPS}/{id}"),
        }
    }
}

pub(super) fn choose(inputs: &NameInputs, settings: &RuntimeSettings) -> ChosenNames {
    let mut names = without_settings(inputs, settings.subnets_are_set);
    if settings.bridge_is_set {
        names.bridge.clone_from(&settings.built_in_network.bridge);
    }
    if settings.subnets_are_set {
        names.subnets.clone_from(&settings.built_in_network.subnets);
    }
    names
}

fn without_settings(inputs: &NameInputs, subnets_are_set: bool) -> ChosenNames {
    if inputs.is_default {
        return ChosenNames::well_known(DEFAULT_ID);
    }
    let recorded = inputs.recorded.as_ref();
    let id = recorded.map(|names| &*names.id).filter(|id| *id != DEFAULT_ID);
    let id = id.unwrap_or(&inputs.fresh_id);
    let before = recorded.cloned().unwrap_or_else(|| ChosenNames::well_known(id));
    let shares_defaults = before.cgroups == DEFAULT_CGROUPS;
    if shares_defaults && inputs.has_records && is_free(&before, inputs) {
        return ChosenNames { id: id.to_owned(), ..before };
    }
    let keeps_recorded = !shares_defaults && recorded.is_some();
    let stays = |subnet: &Subnet| inputs.has_pods || is_free_range(subnet, inputs);
    let subnets = match before.subnets.iter().all(stays) && keeps_recorded {
        true => before.subnets,
        false if subnets_are_set => Vec::new(),
        false => candidates().find(|subnet| is_free_range(subnet, inputs)).into_iter().collect(),
    };
    ChosenNames::own(id, subnets)
}

/// Whether no other root has any of these names.
fn is_free(names: &ChosenNames, inputs: &NameInputs) -> bool {
    inputs.others.iter().all(|other| {
        let other = &other.resources;
        other.bridge != names.bridge
            && !names.subnets.iter().any(|subnet| overlaps(subnet, &other.subnets))
            && other
                .cgroups
                .iter()
                .all(|group| !group.starts_with(&format!("{DEFAULT_CGROUPS}/kubepods")))
    })
}

fn is_free_range(subnet: &Subnet, inputs: &NameInputs) -> bool {
    !overlaps(subnet, &inputs.in_use)
        && !inputs.others.iter().any(|other| overlaps(subnet, &other.resources.subnets))
}

fn overlaps(subnet: &Subnet, ranges: &[AddressRange]) -> bool {
    ranges.iter().any(|other| range(subnet).overlaps(other))
}

fn candidates() -> impl Iterator<Item = Subnet> {
    let seconds = FIRST_OCTETS.into_iter().flatten();
    seconds.flat_map(|second| {
        (0..=u8::MAX).step_by(1 << (24 - PREFIX)).map(move |third| Subnet {
            network: std::net::Ipv4Addr::new(10, second, third, 0).into(),
            prefix: PREFIX,
        })
    })
}
