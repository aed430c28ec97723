//! One pod, two verdicts.
//!
//! The rule it keeps: a pod that both accept must be equal field by field, in our own form of it; a
//! pod that both reject by validation must be rejected for the same fields.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use document::diagnostic::Origin;
use pod_manifest::{
    ListPolicy, PodGates, Strictness, apply_defaults, decode, prepare_for_create, validate,
};
use pod_model::pod::Pod;
use pod_model::pod::resources::computed_qos_class;
use serde_json::Value;

use super::ApiServer;

/// The result of one or more pods.
#[derive(Debug, Default)]
pub struct PodComparison {
    pub taken: usize,
    pub invalid: usize,
    pub unreadable: usize,
    pub differences: Vec<String>,
}

impl PodComparison {
    pub fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.invalid += other.invalid;
        self.unreadable += other.unreadable;
        self.differences.extend(other.differences);
    }
}

/// One side's verdict on a pod.
enum ValidationVerdict {
    Taken(Box<Pod>),
    /// Rejected before validation: something could not be decoded.
    Unreadable(String),
    Invalid(BTreeSet<String>),
}

/// Gives a pod to both sides.
///
/// # Errors
/// When the server does not answer, or its response cannot be parsed.
pub fn compare(server: &ApiServer, pod: &Value) -> Result<PodComparison> {
    let ours = our_verdict(pod)?;
    let theirs = their_verdict(server, pod)?;
    let mut result = PodComparison::default();
    match &theirs {
        ValidationVerdict::Taken(_) => result.taken = 1,
        ValidationVerdict::Invalid(_) => result.invalid = 1,
        ValidationVerdict::Unreadable(_) => result.unreadable = 1,
    }
    let difference = match (&ours, &theirs) {
        (ValidationVerdict::Taken(ours), ValidationVerdict::Taken(theirs)) => {
            different_pods(ours, theirs)?
        }
        (ValidationVerdict::Invalid(ours), ValidationVerdict::Invalid(theirs)) => (ours != theirs)
            .then(|| {
                let more: Vec<_> = ours.difference(theirs).collect();
                let less: Vec<_> = theirs.difference(ours).collect();
                format!("fields refused by us only: {more:?}, by the server only: {less:?}")
            }),
        (ValidationVerdict::Unreadable(_), ValidationVerdict::Unreadable(_)) => None,
        _ => Some(format!("we: {}, the server: {}", shown(&ours), shown(&theirs))),
    };
    result.differences.extend(difference);
    Ok(result)
}

fn shown(verdict: &ValidationVerdict) -> String {
    match verdict {
        ValidationVerdict::Taken(_) => "taken".to_owned(),
        ValidationVerdict::Unreadable(why) => format!("unreadable ({why})"),
        ValidationVerdict::Invalid(fields) => format!("invalid {fields:?}"),
    }
}

fn read(bytes: &[u8]) -> Result<Pod, String> {
    let origin = Origin::Default;
    let mut decoded = decode(bytes, &origin, Strictness::Lenient, ListPolicy::OnePod);
    match decoded.pods.pop() {
        Some(manifest) => Ok(manifest.pod),
        None => Err(decoded.diagnostics.iter().map(|each| format!("{each}; ")).collect()),
    }
}

fn our_verdict(pod: &Value) -> Result<ValidationVerdict> {
    let gates = PodGates::default();
    let mut pod = match read(pod.to_string().as_bytes()) {
        Ok(pod) => pod,
        Err(why) => return Ok(ValidationVerdict::Unreadable(why)),
    };
    apply_defaults(&mut pod, &gates);
    prepare_for_create(&mut pod, &gates);
    let problems = validate(&pod, &gates);
    if problems.is_empty() {
        return Ok(ValidationVerdict::Taken(Box::new(pod)));
    }
    Ok(ValidationVerdict::Invalid(
        problems.into_iter().map(|diagnostic| diagnostic.field).collect(),
    ))
}

fn their_verdict(server: &ApiServer, pod: &Value) -> Result<ValidationVerdict> {
    let (status, body) = server.dry_run(&pod.to_string())?;
    match status {
        200 | 201 => match read(body.as_bytes()) {
            Ok(pod) => Ok(ValidationVerdict::Taken(Box::new(pod))),
            Err(why) => bail!("the server's own pod cannot be read: {why}"),
        },
        400 => Ok(ValidationVerdict::Unreadable(body.chars().take(400).collect())),
        422 => {
            let body: Value = serde_json::from_str(&body).context("the status object")?;
            let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
            let fields = causes.iter().filter_map(|cause| cause["field"].as_str());
            Ok(ValidationVerdict::Invalid(fields.map(named_field).collect()))
        }
        _ => bail!("status {status}: {body}"),
    }
}

/// A field as the server names it, except where it names none: it rejects a mirror pod with claims
/// without a field.
fn named_field(field: &str) -> String {
    if field == "[]" { "spec.resourceClaims[0]".to_owned() } else { field.to_owned() }
}

/// The first difference between our pod and the server's, apart from what only a server knows.
fn different_pods(ours: &Pod, theirs: &Pod) -> Result<Option<String>> {
    let class = computed_qos_class(&ours.spec);
    if class != theirs.status.qos_class {
        return Ok(Some(format!("class of service {class}, {}", theirs.status.qos_class)));
    }
    let form = |pod: &Pod| -> Result<Value> {
        let mut pod = pod.clone();
        pod.status = Default::default();
        pod.metadata.uid = Box::default();
        pod.metadata.generation = 0;
        pod.metadata.creation_timestamp = None;
        Ok(serde_json::to_value(&pod)?)
    };
    let (ours, theirs) = (form(ours)?, form(theirs)?);
    Ok(first_difference("", &ours, &theirs))
}

fn first_difference(path: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            keys.into_iter().find_map(|key| {
                let (left, right) = (&ours[key], &theirs[key]);
                first_difference(&format!("{path}.{key}"), left, right)
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).enumerate().find_map(|(index, (left, right))| {
                first_difference(&format!("{path}[{index}]"), left, right)
            })
        }
        _ if ours == theirs => None,
        _ => Some(format!("{path}: we {ours}, the server {theirs}")),
    }
}
