//! From bytes to typed pods.
//!
//! The rule it keeps: a Pod of `v1` is accepted, a list of them only where the caller allows it;
//! any other kind is an error. An unknown field is a warning, or an error where decoding is strict,
//! and so is a duplicate key; a value of the wrong type is always an error. Every finding names
//! file, line, field and value. No defaults are filled in here.

use document::Node;
use document::diagnostic::{Diagnostic, Origin};
use pod_model::pod::Pod;
use pod_model::pod::codec::{DecodeNode, FieldCodec};

mod document_node;

#[cfg(test)]
mod tests;

use document_node::{DiagnosticSink, DocumentNode};

/// A larger manifest is rejected unread, as by the reference's sources.
pub const MAX_MANIFEST_BYTES: usize = 10 * 1024 * 1024;

/// How an unknown field is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// A warning, as the reference reads static pods.
    Lenient,
    /// An error, as `kubectl create` has it.
    Strict,
}

/// Whether a list of pods may stand where a pod is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListPolicy {
    OnePod,
    PodOrList,
}

/// A typed pod and the tree that it came from.
#[derive(Debug, Clone)]
pub struct ManifestPod {
    pub pod: Pod,
    tree: Node,
    /// The path of the pod in its file: empty, or `items[3]`.
    base: String,
}

/// The result of decoding one file.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// Only pods of which every value could be decoded.
    pub pods: Vec<ManifestPod>,
    pub diagnostics: Vec<Diagnostic>,
}

impl Decoded {
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

impl ManifestPod {
    /// Sets the file, the line, and the list path of findings about the pod.
    pub fn locate(&self, diagnostics: &mut [Diagnostic]) {
        for diagnostic in diagnostics {
            diagnostic.origin = self.tree.find_nearest(&diagnostic.field).origin.clone();
            diagnostic.field = self.full_path(&diagnostic.field);
        }
    }

    fn full_path(&self, field: &str) -> String {
        match (self.base.is_empty(), field.is_empty()) {
            (true, _) => field.to_owned(),
            (false, true) => self.base.clone(),
            (false, false) => format!("{}.{field}", self.base),
        }
    }
}

/// Reads a manifest.
pub fn decode(bytes: &[u8], origin: &Origin, strictness: Strictness, lists: ListPolicy) -> Decoded {
    let mut decoded = Decoded::default();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let told = Diagnostic::error("", "the manifest is empty, expected a Pod");
        decoded.diagnostics.push(told.at(origin.clone()));
        return decoded;
    }
    let parsed = match document::parse_at_most(bytes, origin, MAX_MANIFEST_BYTES) {
        Ok(parsed) => parsed,
        Err(diagnostic) => {
            decoded.diagnostics.push(diagnostic);
            return decoded;
        }
    };
    decoded.diagnostics.extend(parsed.repeated_keys.into_iter().map(
        |diagnostic| match strictness {
            Strictness::Lenient => diagnostic,
            Strictness::Strict => {
                Diagnostic { severity: document::diagnostic::Severity::Error, ..diagnostic }
            }
        },
    ));
    match kind_of(&parsed.root, lists) {
        Ok(ManifestKind::Pod) => read_pod(parsed.root, String::new(), strictness, &mut decoded),
        Ok(ManifestKind::List) => read_list(parsed.root, strictness, &mut decoded),
        Err(diagnostic) => decoded.diagnostics.push(diagnostic),
    }
    decoded
}

/// The kind of a manifest.
enum ManifestKind {
    Pod,
    List,
}

fn kind_of(root: &Node, lists: ListPolicy) -> Result<ManifestKind, Diagnostic> {
    let refuse = |field: &str, message: &str| {
        let at = root.get(field).unwrap_or(root);
        let diagnostic = Diagnostic::error(field, message).at(at.origin.clone());
        match root.get(field) {
            Some(node) => diagnostic.with_value(node.shown()),
            None => diagnostic,
        }
    };
    if root.as_map().is_none() {
        let diagnostic =
            Diagnostic::error("", format!("expected an object, found {}", root.kind_name()));
        return Err(diagnostic.at(root.origin.clone()));
    }
    let word = |field: &str| root.get(field).and_then(Node::as_str).unwrap_or_default();
    match (word("kind"), lists) {
        ("Pod", _) => {}
        ("PodList" | "List", ListPolicy::PodOrList) => {}
        ("PodList" | "List", ListPolicy::OnePod) => {
            return Err(refuse("kind", "expected Pod; lists of pods are read from a URL only"));
        }
        ("", _) => return Err(refuse("kind", "the kind is missing, expected Pod")),
        _ => return Err(refuse("kind", "expected Pod")),
    }
    match word("apiVersion") {
        "v1" if word("kind") == "Pod" => Ok(ManifestKind::Pod),
        "v1" => Ok(ManifestKind::List),
        "" => Err(refuse("apiVersion", "the version is missing, expected v1")),
        _ => Err(refuse("apiVersion", "expected v1")),
    }
}

fn read_pod(tree: Node, base: String, strictness: Strictness, decoded: &mut Decoded) {
    let sink = DiagnosticSink::new(strictness);
    let document_node = DocumentNode::root(&tree, &base, &sink);
    let pod = Pod::read(&document_node as &dyn DecodeNode);
    let diagnostics = sink.into_diagnostics();
    let refused = diagnostics.iter().any(Diagnostic::is_error);
    decoded.diagnostics.extend(diagnostics);
    if let (Some(pod), false) = (pod, refused) {
        decoded.pods.push(ManifestPod { pod, tree, base });
    }
}

fn read_list(root: Node, strictness: Strictness, decoded: &mut Decoded) {
    use document::Value;
    let Value::Map(mut fields) = root.value else { return };
    let Some(items) = fields.remove("items").filter(|items| !items.is_null()) else { return };
    if !matches!(items.value, Value::List(_)) {
        let diagnostic = Diagnostic::error("items", "expected a list").with_value(items.shown());
        decoded.diagnostics.push(diagnostic.at(items.origin));
        return;
    }
    let Value::List(items) = items.value else { return };
    for (index, item) in items.into_iter().enumerate() {
        // The items of a PodList need not have a kind; where they do, it must match.
        let strange = |field: &str, expected: &str| {
            item.get(field).filter(|node| node.as_str() != Some(expected)).cloned()
        };
        let base = document::item_path("items", index);
        match strange("kind", "Pod").or_else(|| strange("apiVersion", "v1")) {
            Some(node) => {
                let diagnostic =
                    Diagnostic::error(base, "expected a Pod of v1").with_value(node.shown());
                decoded.diagnostics.push(diagnostic.at(node.origin));
            }
            None => read_pod(item, base, strictness, decoded),
        }
    }
}
