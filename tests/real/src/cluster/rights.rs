//! What a node asked of the API server, from the audit log, and what it was forbidden.
//!
//! Rule: only requests of one node's user. A request that is forbidden is a bug of the agent: it
//! asked for what the Node authorizer or NodeRestriction do not give to a node. The authorizer learns
//! of a pod a little later than the node, most of all after a start of the API server: what is granted
//! when it is asked for again was not forbidden.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Bed;
use serde_json::{Value, json};

/// The audit log of a node.
#[derive(Debug)]
pub struct NodeRequests {
    policy: PathBuf,
    log: PathBuf,
}

impl NodeRequests {
    /// An audit log of the node's user.
    ///
    /// # Errors
    /// When its policy cannot be written.
    pub fn new(bed: &Bed, node: &str) -> Result<Self> {
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "users": [format!("system:node:{node}")]},
                {"level": "None"},
            ],
        });
        let audit = Self {
            policy: bed.dir().join("node-audit-policy.json"),
            log: bed.logs().join("node-audit.log"),
        };
        fs::write(&audit.policy, policy.to_string())
            .with_context(|| audit.policy.display().to_string())?;
        Ok(audit)
    }

    /// The API server's flags for the audit log.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
            "--audit-log-mode=blocking".to_owned(),
        ]
    }

    fn entries(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())?;
        // A line that was cut by a kill of the API server, or is being written, is no JSON.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// How often the node asked for what, by verb and resource: `patch pods/status`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn counts(&self) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for entry in self.entries()? {
            *counts.entry(what(&entry)).or_default() += 1;
        }
        Ok(counts)
    }

    /// Fails if a request of the node was forbidden and never granted, or if the node asked for
    /// nothing.
    ///
    /// # Errors
    /// Then, with the requests.
    pub fn expect_none_forbidden(&self) -> Result<()> {
        let entries = self.entries()?;
        ensure!(!entries.is_empty(), "the node asked for nothing: the audit log is empty");
        let forbidden = forbidden(&entries);
        ensure!(forbidden.is_empty(), "the node was forbidden:\n{}", forbidden.join("\n"));
        Ok(())
    }
}

/// The requests that were forbidden and not granted afterwards.
fn forbidden(entries: &[Value]) -> Vec<String> {
    let code = |entry: &Value| entry["responseStatus"]["code"].as_u64().unwrap_or_default();
    let is_granted_later = |at: usize, request: &str| {
        let later = entries.iter().skip(at + 1);
        later
            .filter(|entry| (200..400).contains(&code(entry)))
            .any(|entry| object(entry) == request)
    };
    let refused = entries.iter().enumerate().filter(|(_, entry)| code(entry) == 403);
    refused
        .filter(|(at, entry)| !is_granted_later(*at, &object(entry)))
        .map(|(_, entry)| {
            let message = entry["responseStatus"]["message"].as_str().unwrap_or_default();
            format!("{}: {message}", object(entry))
        })
        .collect()
}

/// The verb, the resource and the object of a request.
fn object(entry: &Value) -> String {
    let object = &entry["objectRef"];
    let namespace = object["namespace"].as_str().unwrap_or_default();
    format!("{} {namespace}/{}", what(entry), object["name"].as_str().unwrap_or_default())
}

fn what(entry: &Value) -> String {
    let object = &entry["objectRef"];
    let resource = object["resource"].as_str().unwrap_or_default();
    let verb = entry["verb"].as_str().unwrap_or_default();
    match object["subresource"].as_str() {
        Some(subresource) => format!("{verb} {resource}/{subresource}"),
        None => format!("{verb} {resource}"),
    }
}

#[cfg(test)]
mod tests;
