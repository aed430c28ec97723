//! The documents of a manifest file: pods, each whole and with the few fields that are shown, and the
//! ConfigMaps and Secrets that they use.
//!
//! Rule: strict, as an API server would be: an unknown field is an error. An error names file,
//! line, field and what was expected, on one line; all errors of a file come together.

use super::contents::{self, ContentDocument, ManifestDocuments};
use super::split;
use node_config::document::{self, Document, Node, Number, Value};
use node_config::{Diagnostic, Origin};
use pod_manifest::static_pod::SourceKind;
use pod_manifest::{
    PodGates, ReferencedContent, StaticPodSource, Strictness, content_references, read_static_pods,
};
use std::sync::Arc;

/// The default grace period.
const USUAL_GRACE_SECONDS: u64 = 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodManifest {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// File and line.
    pub(crate) location: String,
    pub(crate) containers: Vec<ManifestContainer>,
    /// The document, with as many empty lines before it as in the file.
    pub(crate) text: Arc<str>,
    pub(crate) references: Vec<ReferencedContent>,
    /// Those that were found.
    pub(crate) contents: Vec<ContentDocument>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestContainer {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) init: bool,
}

/// All pods in the bytes of `path` with what they use, or every error in them.
pub(crate) fn pods(path: &str, bytes: &[u8]) -> Result<Vec<PodManifest>, Vec<String>> {
    let pods = contents::assign(vec![documents(path, bytes)?])?;
    if pods.is_empty() {
        return Err(vec![format!("{path}: expected a Pod, found none")]);
    }
    Ok(pods)
}

/// All documents in the bytes of `path`, or every error in them.
pub(crate) fn documents(path: &str, bytes: &[u8]) -> Result<ManifestDocuments, Vec<String>> {
    let origin = Origin::File { path: path.into(), line: 0, column: 0 };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        vec![format!("{path}: not UTF-8 text after byte {}", error.valid_up_to())]
    })?;
    let documents = if text.trim_start().starts_with('{') {
        vec![text.to_owned()]
    } else {
        split::documents(text)
    };
    if documents.is_empty() {
        return Err(vec![format!("{path}: the file is empty, expected a Pod")]);
    }
    let mut found = ManifestDocuments::default();
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    for text in documents {
        match document::parse(text.as_bytes(), &origin) {
            Ok(parsed) => {
                diagnostics.extend(add_document(&parsed, text, &origin, &mut found));
            }
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    if diagnostics.is_empty() {
        Ok(found)
    } else {
        Err(diagnostics.iter().map(ToString::to_string).collect())
    }
}

/// Returns what is wrong with it.
fn add_document(
    parsed: &Document,
    text: String,
    origin: &Origin,
    found: &mut ManifestDocuments,
) -> Vec<Diagnostic> {
    match ContentDocument::of(parsed, &text) {
        Some(Ok(content)) => {
            found.contents.push(content);
            return Vec::new();
        }
        Some(Err(diagnostics)) => return diagnostics,
        None => {}
    }
    match pod(&parsed.root) {
        Ok(pod) => {
            let (references, diagnostics) = judge(&text, origin);
            found.pods.push(PodManifest { text: text.into(), references, ..pod });
            diagnostics
        }
        Err(diagnostics) => parsed.repeated_keys.iter().cloned().chain(diagnostics).collect(),
    }
}

fn static_pods() -> StaticPodSource<'static> {
    StaticPodSource {
        node_name: "node",
        kind: SourceKind::File,
        strictness: Strictness::Strict,
        gates: PodGates { contents_come_with_manifests: true, ..PodGates::default() },
    }
}

/// What the pod refers to; the errors of an API server's validation, and references that a pod
/// without an API server may not have.
fn judge(text: &str, origin: &Origin) -> (Vec<ReferencedContent>, Vec<Diagnostic>) {
    let read = read_static_pods(text.as_bytes(), origin, &static_pods());
    let references = read.pods.first().map(content_references).unwrap_or_default();
    (references, read.diagnostics.into_iter().filter(Diagnostic::is_error).collect())
}

/// Whether two texts are the same pod: neither a comment nor an explicit default makes a
/// difference.
pub(crate) fn is_same_spec(one: &str, other: &str) -> bool {
    let pods = |text: &str| {
        let origin = Origin::File { path: "".into(), line: 0, column: 0 };
        read_static_pods(text.as_bytes(), &origin, &static_pods()).pods
    };
    let (one, other) = (pods(one), pods(other));
    !one.is_empty() && one == other
}

/// The grace period of a pod with this text, in seconds.
pub(crate) fn grace_seconds(text: &str) -> u64 {
    let origin = Origin::File { path: "".into(), line: 0, column: 0 };
    let parsed = document::parse(text.as_bytes(), &origin).ok();
    let stated = parsed.and_then(|parsed| {
        let field = parsed.root.get("spec")?.get("terminationGracePeriodSeconds")?;
        match field.value {
            Value::Number(Number::Integer(seconds)) => u64::try_from(seconds).ok(),
            _ => None,
        }
    });
    stated.unwrap_or(USUAL_GRACE_SECONDS)
}

fn pod(root: &Node) -> Result<PodManifest, Vec<Diagnostic>> {
    let mut diagnostics = Vec::new();
    let kind = (text(root, "apiVersion"), text(root, "kind"));
    if kind != (Some("v1"), Some("Pod")) {
        let found = format!("{} {}", kind.0.unwrap_or("-"), kind.1.unwrap_or("-"));
        return Err(vec![
            Diagnostic::error("kind", "expected apiVersion v1 and kind Pod, ConfigMap or Secret")
                .with_value(found)
                .at(root.origin.clone()),
        ]);
    }
    let metadata = root.get("metadata");
    let name = metadata.and_then(|metadata| text(metadata, "name")).unwrap_or_default();
    if name.is_empty() {
        let location = metadata.unwrap_or(root).origin.clone();
        diagnostics.push(Diagnostic::error("metadata.name", "expected a name").at(location));
    }
    let namespace = metadata.and_then(|metadata| text(metadata, "namespace"));
    let mut found = Vec::new();
    for (list, init) in [("initContainers", true), ("containers", false)] {
        containers(root, list, init, &mut found, &mut diagnostics);
    }
    if diagnostics.is_empty() {
        return Ok(PodManifest {
            name: name.to_owned(),
            namespace: namespace.unwrap_or("default").to_owned(),
            location: root.origin.to_string(),
            containers: found,
            text: "".into(),
            references: Vec::new(),
            contents: Vec::new(),
        });
    }
    Err(diagnostics)
}

fn containers(
    root: &Node,
    list: &str,
    init: bool,
    found: &mut Vec<ManifestContainer>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let node = root.get("spec").and_then(|spec| spec.get(list));
    let items: &[Node] = match node.map(|node| &node.value) {
        Some(Value::List(items)) => items,
        Some(Value::Null) | None => &[],
        Some(_) => {
            let location = node.map_or_else(|| root.origin.clone(), |node| node.origin.clone());
            diagnostics
                .push(Diagnostic::error(format!("spec.{list}"), "expected a list").at(location));
            return;
        }
    };
    if items.is_empty() && !init {
        let location = node.or(root.get("spec")).unwrap_or(root).origin.clone();
        diagnostics
            .push(Diagnostic::error("spec.containers", "expected at least one").at(location));
    }
    for (index, item) in items.iter().enumerate() {
        let mut field = |name: &str| match text(item, name) {
            Some(value) if !value.is_empty() => value.to_owned(),
            _ => {
                let path = format!("spec.{list}[{index}].{name}");
                let location = item.get(name).unwrap_or(item).origin.clone();
                diagnostics
                    .push(Diagnostic::error(path, "expected a non-empty string").at(location));
                String::new()
            }
        };
        found.push(ManifestContainer { name: field("name"), image: field("image"), init });
    }
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key)?.as_str()
}
