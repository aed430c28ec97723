//! Metrics as Prometheus parses them: names, kinds, labels and bounds, for comparisons with the
//! reference. Values are not compared.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// What can be compared of one metric: everything but its values.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ScrapedFamily {
    pub kind: String,
    pub labels: BTreeSet<String>,
    /// The bounds of a histogram, as written.
    pub bounds: BTreeSet<String>,
}

/// All families of a scrape, by name.
///
/// # Errors
/// When the text is not in the Prometheus format.
pub fn families(text: &str) -> Result<BTreeMap<String, ScrapedFamily>> {
    let mut families: BTreeMap<String, ScrapedFamily> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').with_context(|| line.to_owned())?;
            family.clone_into(&mut name);
            families.entry(name.clone()).or_default().kind = kind.to_owned();
        }
        if line.starts_with('#') {
            continue;
        }
        let family = families.get_mut(&name).with_context(|| format!("no kind before {line}"))?;
        ensure!(line.starts_with(&name), "{line} does not belong to {name}");
        let Some((_, rest)) = line.split_once('{') else { continue };
        let (labels, _) = rest.rsplit_once('}').with_context(|| line.to_owned())?;
        for label in split_labels(labels) {
            let (label, value) = label.split_once('=').with_context(|| line.to_owned())?;
            match label {
                "le" => family.bounds.insert(value.to_owned()),
                label => family.labels.insert(label.to_owned()),
            };
        }
    }
    Ok(families)
}

/// Differences of our metrics from the reference's, a line each. The metrics listed may be missing
/// in the reference, since they are exposed only after the first event that one of the two may not
/// have had.
#[must_use]
pub fn differences(
    ours: &BTreeMap<String, ScrapedFamily>,
    theirs: &BTreeMap<String, ScrapedFamily>,
    may_be_missing: &[&str],
) -> Vec<String> {
    let difference = |(name, family): (&String, &ScrapedFamily)| match theirs.get(name) {
        Some(same) if same == family => None,
        Some(other) => Some(format!("{name}: {family:?}, the reference's {other:?}")),
        None if may_be_missing.contains(&name.as_str()) => None,
        None => Some(format!("{name}: the reference has none")),
    };
    ours.iter().filter_map(difference).collect()
}

/// A value may have a comma in it.
fn split_labels(labels: &str) -> Vec<String> {
    let (mut all, mut one, mut quoted, mut escaped) = (Vec::new(), String::new(), false, false);
    for letter in labels.chars() {
        match letter {
            ',' if !quoted => all.push(std::mem::take(&mut one)),
            _ => {
                quoted ^= letter == '"' && !escaped;
                one.push(letter);
            }
        }
        escaped = letter == '\\' && !escaped;
    }
    all.push(one);
    all.retain(|label| !label.is_empty());
    all
}
