//! The writes of each user, from the API server's audit log.
//!
//! Rule: only the writes of the given users, rejected ones too, each once, with the times at which
//! the API server received and answered it. Reads and other users' requests are not in it. Draws no
//! conclusions.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use node_testkit::bed::Bed;
use ports::ApiTime;
use serde_json::{Value, json};

/// The lease that our instances compete for.
const LEADER_LEASE: &str = "keelson-node-controller";

/// An audit log.
#[derive(Debug)]
pub struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// One write or attempted write.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditedWrite {
    pub user: String,
    pub verb: String,
    /// With its subresource: `nodes/status`.
    pub resource: String,
    pub name: String,
    pub received: ApiTime,
    pub answered: ApiTime,
    /// Zero for one that was never answered.
    pub code: u16,
    /// The request's body.
    pub body: Value,
}

impl Audit {
    /// An audit log of these users.
    ///
    /// # Errors
    /// When its policy cannot be written.
    pub fn new(bed: &Bed, users: &[String]) -> Result<Self> {
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Request", "users": users,
                    "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
                {"level": "None"},
            ],
        });
        // Where it is kept if the test fails.
        let audit =
            Self { policy: bed.dir().join("audit-policy.json"), log: bed.logs().join("audit.log") };
        fs::write(&audit.policy, policy.to_string())
            .with_context(|| audit.policy.display().to_string())?;
        Ok(audit)
    }

    /// The API server's flags for the audit log.
    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
            // An answer is written down before it is given.
            "--audit-log-mode=blocking".to_owned(),
        ]
    }

    /// All writes so far, in the order in which they were received.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn writes(&self) -> Result<Vec<AuditedWrite>> {
        let text = fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())?;
        // A line that is being written has no end yet.
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or(""));
        let mut writes = Vec::new();
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            writes.push(AuditedWrite::read(&event).with_context(|| line.to_owned())?);
        }
        writes.sort_by_key(|write| write.received.nanos());
        Ok(writes)
    }
}

impl AuditedWrite {
    fn read(event: &Value) -> Option<Self> {
        let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or("").to_owned();
        let time = |at: &str| ApiTime::parse(event.pointer(at)?.as_str()?);
        let part = text("/objectRef/subresource");
        let resource = text("/objectRef/resource");
        let body = event.get("requestObject").cloned().unwrap_or_default();
        let named = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("").to_owned();
        let name = text("/objectRef/name");
        // None if the client was gone before the response.
        let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
        Some(Self {
            user: text("/user/username"),
            verb: text("/verb"),
            resource: if part.is_empty() { resource } else { format!("{resource}/{part}") },
            // What is made is named in its body.
            name: if name.is_empty() { named } else { name },
            received: time("/requestReceivedTimestamp")?,
            answered: time("/stageTimestamp")?,
            code: code.and_then(|code| u16::try_from(code).ok()).unwrap_or(0),
            body,
        })
    }

    /// Whether it succeeded.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether it is about the lease that instances compete for.
    pub fn is_about_leading(&self) -> bool {
        self.resource == "leases" && self.name == LEADER_LEASE
    }

    /// The holder that a write of that lease names; `None` when it releases the lease.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.body.pointer("/spec/holderIdentity")?.as_str()?;
        (!holder.is_empty()).then_some(holder)
    }

    /// The node that it changes, or whose pod it changes: pods are named `ROLE-NODE`.
    pub fn node(&self) -> Option<&str> {
        match self.resource.split('/').next()? {
            "nodes" => Some(&self.name),
            "pods" => self.name.split_once('-').map(|(_, node)| node),
            _ => None,
        }
    }

    /// Whether it sets the unreachable taint of a node.
    pub fn taints_as_unreachable(&self) -> bool {
        let taints = self.body.pointer("/spec/taints").and_then(Value::as_array);
        self.resource == "nodes"
            && taints.is_some_and(|taints| {
                taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/unreachable")
            })
    }
}
