//! Finds traces of beds and parts in what the kernel and its tools print: mounts, addresses, rules.
//!
//! Rule: pure; each returns the lines that count, equal when the thing is the same, and leaves out
//! those of other programs.

use std::collections::BTreeSet;
use std::path::Path;

use mount_table::{MountInfo, MountTable};

use super::ownership::{self, SearchScope};
use crate::bed::{CGROUP_PREFIX, NODE_ADDRESS};

type LineSet = BTreeSet<String>;

/// The name of the directory of all beds.
const BEDS: &str = "keelson-beds";

/// The mounts of a mount table that a bed could have made.
pub(super) fn mounts(
    table: &MountTable,
    place: (SearchScope, &Path),
    is_occupied: impl Fn(&str) -> bool,
) -> LineSet {
    table.mounts().filter_map(|mount| our_mount(&mount, place, &is_occupied)).collect()
}

fn our_mount(
    mount: &MountInfo<'_>,
    (scope, temp): (SearchScope, &Path),
    is_occupied: &impl Fn(&str) -> bool,
) -> Option<String> {
    let (root, target) = (mount.root.to_string_lossy(), mount.point.to_string_lossy());
    let (root, target) = (root.as_ref(), target.as_ref());
    let (kind, source) = (mount.kind.to_string_lossy(), mount.source.to_string_lossy());
    let options: Vec<String> =
        mount.options().map(|one| one.to_string_lossy().into_owned()).collect();
    // An overlay's directories are in its options: lowerdir=/a:/b,upperdir=/c.
    let in_options = || options.iter().flat_map(|one| one.split([':', '=']));
    let paths = || [root, target, source.as_ref()].into_iter().chain(in_options());
    if paths().filter_map(bed_of_path).any(is_occupied) {
        return None;
    }
    let ours = paths().any(|path| bed_of_path(path).is_some() || is_in_parts_dir(scope, path))
        || is_ours_below(scope, target, temp)
        || is_our_namespace_mount(scope, target);
    ours.then(|| format!("{target} ({kind}, {source}, {root})"))
}

/// The identity of the bed in whose directory or cgroup a path lies; empty for the directory of all
/// beds.
fn bed_of_path(path: &str) -> Option<&str> {
    let mut steps = path.split('/');
    if steps.any(|step| step == BEDS) {
        return Some(steps.next().unwrap_or_default());
    }
    path.split('/').find_map(|step| step.strip_prefix(CGROUP_PREFIX))
}

fn is_in_parts_dir(scope: SearchScope, path: &str) -> bool {
    ownership::parts_dirs(scope).iter().any(|dir| Path::new(path).starts_with(dir))
}

/// Whether a path is in a directory of ours in the temporary directory.
fn is_ours_below(scope: SearchScope, path: &str, temp: &Path) -> bool {
    let below = Path::new(path).strip_prefix(temp).ok();
    below
        .and_then(|below| below.iter().next())
        .is_some_and(|name| ownership::is_ours_in_temp(scope, &name.to_string_lossy()))
}

fn is_our_namespace_mount(scope: SearchScope, path: &str) -> bool {
    let name = Path::new(path).strip_prefix(ownership::NETWORK_NAMESPACES).ok();
    name.is_some_and(|name| ownership::is_our_network_namespace(scope, &name.to_string_lossy()))
}

/// The addresses in the output of `ip -oneline address show` that a bed could have assigned.
pub(super) fn addresses(text: &str, is_our_link: impl Fn(&str) -> bool) -> LineSet {
    // "5: veth1@if4    inet 10.0.0.2/24 ... valid_lft 86000sec": the times at the end run.
    let ours = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (link, family, address) = (words.next()?, words.next()?, words.next()?);
        let link = link.split('@').next().unwrap_or(link);
        let plain = address.split('/').next().unwrap_or(address);
        (is_our_link(link) || plain == NODE_ADDRESS).then(|| format!("{link} {family} {address}"))
    });
    ours.collect()
}

/// The tables, chains and rules in the output of `nft list ruleset` that a bed could have made, each
/// with its table and chain.
pub(super) fn rules(scope: SearchScope, text: &str, is_our_link: impl Fn(&str) -> bool) -> LineSet {
    let mut found = LineSet::new();
    let (mut table, mut chain) = (String::new(), String::new());
    let mut depth = 0_usize;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let heading = line.strip_suffix('{').map(str::trim);
        match (depth, heading) {
            (0, Some(heading)) => heading.clone_into(&mut table),
            (1, Some(heading)) => heading.clone_into(&mut chain),
            _ => {}
        }
        let bare = line == "}";
        let ours = is_our_heading(scope, &table)
            || depth > 0 && is_our_heading(scope, &chain)
            || depth > 1 && words(line).any(|word| is_our_token(scope, word, &is_our_link));
        if ours && !bare {
            found.insert(match depth {
                0 => table.clone(),
                1 if heading.is_some() => format!("{table}, {chain}"),
                1 => format!("{table}: {line}"),
                _ => format!("{table}, {chain}: {line}"),
            });
        }
        depth = (depth + line.matches('{').count()).saturating_sub(line.matches('}').count());
        match depth {
            0 => {
                table.clear();
                chain.clear();
            }
            1 => chain.clear(),
            _ => {}
        }
    }
    found
}

/// Whether a heading such as `table ip nat` or `chain KUBE-FIREWALL` ends in a name of ours.
fn is_our_heading(scope: SearchScope, heading: &str) -> bool {
    heading.rsplit(' ').next().is_some_and(|name| ownership::is_our_rule_set(scope, name))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| letter.is_whitespace() || "\",{}".contains(letter))
}

fn is_our_token(scope: SearchScope, word: &str, is_our_link: &impl Fn(&str) -> bool) -> bool {
    ownership::is_our_rule_set(scope, word) || is_our_link(word) || word == NODE_ADDRESS
}
