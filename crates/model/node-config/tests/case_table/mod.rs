//! Reads the table of configuration cases in `cases/*.json`.
//!
//! The rule it keeps: one table for both agents. The tests of this crate and the run against the
//! reference kubelet read the same files through this module, so a case cannot mean two things.
//!
//! The files are JSON, with texts as lists of lines: they hold YAML that is invalid on purpose, and
//! the reader of the table must not be the one under test.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "two programs share this file, and neither uses all of it or exports it"
)]
#![allow(clippy::disallowed_methods, reason = "a test reads its table from files")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// One file of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// What the cases of this file have in common.
    pub subject: String,
    pub cases: Vec<ConfigCase>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigCase {
    pub name: String,
    /// The file of `--config`; without it there is only the command line.
    pub config: Option<CaseText>,
    /// The files of `--config-dir`, by their path below it.
    #[serde(default)]
    pub drop_ins: BTreeMap<String, CaseText>,
    /// Other files, by their path below the case's directory: lines, nothing added before them.
    #[serde(default)]
    pub files: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub args: Vec<String>,
    /// No API server: `--kubeconfig` is left out.
    #[serde(default)]
    pub standalone: bool,
    /// The case is about the runtime's endpoint, so the test runner must not set it.
    #[serde(default)]
    pub keeps_endpoint: bool,
    pub expect: Expectation,
    /// Why the reference differs, where it does.
    pub difference: Option<String>,
}

/// Lines of a file. `apiVersion` and `kind` are put before them unless they are raw.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum CaseText {
    Lines(Vec<String>),
    Raw { raw: Vec<String> },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Expectation {
    Accepted(Accepted),
    /// Every finding listed must be among those reported.
    Refused(Vec<Finding>),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Accepted {
    /// JSON pointer to the effective value there.
    #[serde(default)]
    pub values: BTreeMap<String, Value>,
    /// Field path to the origin of its value: `default`, `file`, `drop-in NAME`, `flag NAME`.
    #[serde(default)]
    pub origins: BTreeMap<String, String>,
    #[serde(default)]
    pub warnings: Vec<Finding>,
}

/// A field path (empty for a whole file) and a part of the message.
#[derive(Debug, Clone, Deserialize)]
pub struct Finding(pub String, pub String);

impl CaseText {
    pub fn content(&self) -> String {
        let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        match self {
            Self::Lines(lines) => format!("{header}{}\n", lines.join("\n")),
            Self::Raw { raw } => raw.join("\n"),
        }
    }
}

impl ConfigCase {
    /// The path of the `--config` file when the case is in the directory `dir`.
    pub fn config_path(dir: &str) -> String {
        format!("{dir}/kubelet.yaml")
    }

    /// The directory of `--config-dir` when the case is in the directory `dir`.
    pub fn drop_in_dir(dir: &str) -> String {
        format!("{dir}/kubelet.d")
    }

    /// The command line without the program's name. `{folder}` stands for the case's directory.
    pub fn command_line(&self, dir: &str) -> Vec<String> {
        let mut words = Vec::new();
        if self.config.is_some() {
            words.push(format!("--config={}", Self::config_path(dir)));
        }
        if !self.drop_ins.is_empty() {
            words.push(format!("--config-dir={}", Self::drop_in_dir(dir)));
        }
        if !self.standalone {
            words.push(format!("--kubeconfig={dir}/kubeconfig"));
        }
        words.extend(self.args.iter().map(|word| word.replace("{folder}", dir)));
        words
    }

    pub fn is_accepted(&self) -> bool {
        matches!(self.expect, Expectation::Accepted(_))
    }
}

/// Every case, in the order of the file names.
pub fn read_all(dir: &Path) -> Result<Vec<(String, ConfigCase)>, String> {
    let listing = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut paths: Vec<_> = listing.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let shown = path.display();
        let text = fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
        let file: CaseFile =
            serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let stem = stem.unwrap_or_default();
        cases.extend(file.cases.into_iter().map(|case| (format!("{stem}/{}", case.name), case)));
    }
    Ok(cases)
}
