//! Which version of CSI a driver and the agent share.
//!
//! upstream: k8s.io/apimachinery pkg/util/version (HighestSupportedVersion)

use std::cmp::Ordering;

#[cfg(test)]
mod tests;

/// A version of a CSI driver: numbers separated by dots.
#[derive(Clone, Debug)]
pub struct CsiVersion(Vec<u64>);

impl CsiVersion {
    /// Two numbers or more, with an optional `v`; what follows the numbers does not count.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
        let fields = text[..end].trim_end_matches('.').split('.');
        let mut numbers = Vec::new();
        for field in fields {
            if field.len() > 1 && field.starts_with('0') {
                return None;
            }
            numbers.push(field.parse().ok()?);
        }
        (numbers.len() >= 2).then_some(Self(numbers))
    }

    fn major(&self) -> u64 {
        self.0.first().copied().unwrap_or(0)
    }
}

impl Ord for CsiVersion {
    /// Numbers that are missing are zero.
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.0.len().max(other.0.len());
        let number = |version: &Self, at: usize| version.0.get(at).copied().unwrap_or(0);
        let orders = (0..length).map(|at| number(self, at).cmp(&number(other, at)));
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

impl PartialEq for CsiVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for CsiVersion {}

impl PartialOrd for CsiVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for CsiVersion {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        out.write_str(&numbers.join("."))
    }
}

/// The highest version 1.x of a driver.
pub fn highest_supported(versions: &[String]) -> Result<CsiVersion, String> {
    if versions.is_empty() {
        return Err("it returned an empty list for supported versions".to_owned());
    }
    let known = versions.iter().filter_map(|text| CsiVersion::parse(text));
    match known.filter(|version| version.major() <= 1).max() {
        Some(version) if version.major() == 1 => Ok(version),
        Some(version) => Err(format!("its highest version is {version}, must be v1.x")),
        None => Err(format!("none of the versions {versions:?} is supported, must be v1.x")),
    }
}
