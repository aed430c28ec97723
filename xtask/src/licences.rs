//! Which external code may be in the binary: licence, ban and source rules over the resolved
//! dependency graph. cargo's metadata is enough for these three, so no further tool is installed;
//! advisories need a database from the network and are checked by hand (see CONTRIBUTING.md).

use std::collections::BTreeSet;

use cargo_metadata::{Metadata, Package};
use spdx::{Expression, LicenseItem, LicenseReq};

use crate::layers;

#[cfg(test)]
mod tests;

/// Licences that the binary may carry. All but one ask for their text to be passed on; MPL-2.0 also
/// asks that changes to its own files be published, and we make none.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Zlib",
];

/// Licences that only tools and tests may carry.
const ALLOWED_OUTSIDE_THE_BINARY: &[&str] = &["NCSA", "OpenSSL"];

/// Crates that are banned, each with its reason.
const BANNED: &[(&str, &str)] = &[
    ("ring", "one TLS provider: aws-lc-rs"),
    ("openssl-sys", "TLS is rustls; a C library ends the static binary"),
    ("native-tls", "TLS is rustls"),
    ("libseccomp", "a C library; seccomp-filter compiles filters itself"),
    ("libseccomp-sys", "a C library; seccomp-filter compiles filters itself"),
    ("serde_yaml", "unmaintained"),
    ("serde_yml", "distrusted; see RUSTSEC"),
    ("backoff", "unmaintained"),
    ("atty", "unmaintained; std::io::IsTerminal"),
    ("chrono", "one time library"),
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Name and version of each package that is built.
type BuiltPackages = BTreeSet<(String, String)>;

/// All violations, as a sentence each.
pub(crate) fn breaches(metadata: &Metadata, built: &BuiltPackages) -> Vec<String> {
    let shipped = layers::built_from(&layers::graph_of(metadata), "keelson");
    let is_built = |package: &&Package| {
        built.contains(&(package.name.to_string(), package.version.to_string()))
    };
    let judged = metadata.packages.iter().filter(is_built).map(|package| {
        let name = package.name.as_str();
        PackageFacts::of(package, name == "keelson" || shipped.contains(name))
    });
    judged.flat_map(|facts| breaches_of(&facts)).collect()
}

/// The properties of a package that the rules use.
#[derive(Debug, Clone)]
struct PackageFacts {
    name: String,
    version: String,
    licence: Option<String>,
    /// `None` for a package in the project's own directory.
    source: Option<String>,
    /// Whether its code is in the released binary.
    shipped: bool,
}

impl PackageFacts {
    fn of(package: &Package, shipped: bool) -> PackageFacts {
        PackageFacts {
            shipped,
            name: package.name.to_string(),
            version: package.version.to_string(),
            licence: package.license.clone(),
            source: package.source.as_ref().map(|s| s.repr.clone()),
        }
    }
}

fn breaches_of(package: &PackageFacts) -> Vec<String> {
    let named = format!("{} {}", package.name, package.version);
    let mut found = Vec::new();
    if let Some((_, reason)) = BANNED.iter().find(|(name, _)| *name == package.name) {
        found.push(format!("{named} is banned: {reason}"));
    }
    if let Some(source) = &package.source
        && source != CRATES_IO
    {
        found.push(format!("{named} comes from {source}; only crates.io is a source"));
    }
    match &package.licence {
        None => found.push(format!("{named} names no licence")),
        Some(text) => match Expression::parse_mode(text, spdx::ParseMode::LAX) {
            Err(_) => found.push(format!("{named} has the licence {text:?}, which cannot be read")),
            Ok(expression)
                if !expression.evaluate(|licence| acceptable(licence, package.shipped)) =>
            {
                found.push(format!("{named} has the licence {text}, which is not allowed"));
            }
            Ok(_) => {}
        },
    }
    found
}

fn acceptable(requirement: &LicenseReq, shipped: bool) -> bool {
    let LicenseItem::Spdx { id, .. } = &requirement.license else { return false };
    let outside = if shipped { &[] } else { ALLOWED_OUTSIDE_THE_BINARY };
    ALLOWED.iter().chain(outside).any(|allowed| *allowed == id.name)
}
