//! Platforms of images, and how well they match this one.
//!
//! Pure. Lower variants match too: a v7 arm runs v6 and v5, an amd64 configured as v3 runs v2 and
//! v1. An index entry without a platform matches any, but ranks below one that has it.

use std::fmt;

use crate::spec::PlatformField;

#[cfg(test)]
mod tests;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    /// Empty: the default of the architecture (v8 for arm64, v7 for arm, v1 for amd64).
    pub variant: String,
}

impl Platform {
    pub fn linux(architecture: &str, variant: &str) -> Self {
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        }
    }

    /// The platform that this program was built for.
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "aarch64" => ("arm64", ""),
            "x86" => ("386", ""),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Self::linux(architecture, variant)
    }

    /// How well an image for `offered` matches: higher is better, `None` not at all.
    pub(crate) fn suits(&self, offered: &PlatformField) -> Option<u32> {
        let (architecture, variant) = plain(&offered.architecture, &offered.variant);
        let (ours, our_variant) = plain(&self.architecture, &self.variant);
        if offered.os != self.os || architecture != ours {
            return None;
        }
        if architecture == "arm64" || architecture == "arm" || architecture == "amd64" {
            let (offered, mine) = (level(&variant)?, level(&our_variant)?);
            return (offered <= mine).then_some(offered * 2 + 2);
        }
        (variant == our_variant || variant.is_empty()).then_some(2)
    }
}

/// Normalizes alternative spellings of older tools.
fn plain(architecture: &str, variant: &str) -> (String, String) {
    let architecture = architecture.to_ascii_lowercase();
    let variant = variant.to_ascii_lowercase();
    let (architecture, variant) = match (architecture.as_str(), variant.as_str()) {
        ("x86_64" | "x86-64", _) => ("amd64", variant),
        ("aarch64", _) => ("arm64", variant),
        ("armhf", _) => ("arm", "v7".to_owned()),
        ("armel", _) => ("arm", "v6".to_owned()),
        ("i386" | "i686", _) => ("386", variant),
        (other, _) => (other, variant),
    };
    let variant = match (architecture, variant.as_str()) {
        ("amd64", "") => "v1".to_owned(),
        ("arm64", "" | "8") => "v8".to_owned(),
        ("arm", "") => "v7".to_owned(),
        (_, digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            format!("v{digits}")
        }
        _ => variant,
    };
    (architecture.to_owned(), variant)
}

/// `v8.2` is 8: minor versions of arm64 are features, which programs detect by themselves.
fn level(variant: &str) -> Option<u32> {
    let digits = variant.strip_prefix('v')?;
    digits.split('.').next()?.parse().ok().filter(|level| *level < 100)
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.os, self.architecture)?;
        if !self.variant.is_empty() {
            write!(formatter, "/{}", self.variant)?;
        }
        Ok(())
    }
}
