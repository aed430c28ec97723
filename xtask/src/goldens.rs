//! Golden files record the reference's output. Each has the version of the reference in its name or
//! its first line, and `cargo xtask test` fails while that differs from the pinned version.

use std::path::Path;

use anyhow::{Context, Result};

#[cfg(test)]
mod tests;

const PIN: &str = "tests/real-parts/kubernetes/go.mod";

pub(crate) fn breaches(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(PIN)).with_context(|| PIN.to_owned())?;
    let pinned =
        pinned_version(&text).with_context(|| format!("{PIN} pins no k8s.io/kubernetes"))?;
    let mut found = Vec::new();
    let mut seen = 0;
    for file in crate::house_rules::tracked_files(root)? {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if !is_golden(&name) {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&file).with_context(|| name.clone())?;
        found.extend(breach_of(&name, &text, &pinned));
    }
    if seen == 0 {
        found.push("no golden file was found, so nothing was checked".to_owned());
    }
    Ok(found)
}

fn is_golden(name: &str) -> bool {
    let data = [".txt", ".golden", ".json"].iter().any(|end| name.ends_with(end));
    let file = name.rsplit('/').next().unwrap_or(name);
    data && (file.contains("golden") || name.contains("/goldens/"))
}

fn breach_of(name: &str, text: &str, pinned: &str) -> Option<String> {
    let first = text.lines().next().unwrap_or_default();
    let stamped = [first, name].iter().any(|text| holds_version(text, pinned));
    (!stamped).then(|| format!("{name}: not stamped {pinned}; make it again"))
}

/// Whether the text names the version itself and not one that only begins like it.
fn holds_version(text: &str, pinned: &str) -> bool {
    text.match_indices(pinned).any(|(at, _)| {
        let next = text[at + pinned.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_digit())
    })
}

fn pinned_version(go_mod: &str) -> Option<String> {
    let line = go_mod.lines().map(str::trim).find_map(|l| {
        let l = l.strip_prefix("require ").unwrap_or(l);
        l.strip_prefix("k8s.io/kubernetes ")
    })?;
    line.split_whitespace().next().map(ToOwned::to_owned)
}
