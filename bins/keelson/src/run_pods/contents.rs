//! ConfigMaps and Secrets of manifests, and the pods that use them.
//!
//! Rule: a pod gets what it refers to from the files that are given with it, in its namespace. One
//! that it cannot run without must be there: nothing else could provide it later.

use super::manifest::PodManifest;
use node_config::document;
use node_config::{Diagnostic, Origin};
use pod_manifest::{ContentManifest, content_kind, decode_content};
use std::sync::Arc;

/// A ConfigMap or a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentDocument {
    /// File and line.
    pub(crate) location: String,
    /// The document, with as many empty lines before it as in the file.
    pub(crate) text: Arc<str>,
    pub(crate) content: Arc<ContentManifest>,
}

/// What one file has.
#[derive(Debug, Default)]
pub(crate) struct ManifestDocuments {
    pub(crate) pods: Vec<PodManifest>,
    pub(crate) contents: Vec<ContentDocument>,
}

impl ContentDocument {
    /// None where the document is of another kind.
    pub(crate) fn of(
        parsed: &document::Document,
        text: &str,
    ) -> Option<Result<Self, Vec<Diagnostic>>> {
        let kind = content_kind(&parsed.root)?;
        if !parsed.repeated_keys.is_empty() {
            return Some(Err(parsed.repeated_keys.clone()));
        }
        Some(decode_content(kind, &parsed.root).map(|content| Self {
            location: parsed.root.origin.to_string(),
            text: text.into(),
            content: Arc::new(content),
        }))
    }

    /// Reads again what was kept of one.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let origin = Origin::File { path: "".into(), line: 0, column: 0 };
        let parsed =
            document::parse(text.as_bytes(), &origin).map_err(|error| error.to_string())?;
        let content = Self::of(&parsed, text).ok_or("neither a ConfigMap nor a Secret")?;
        content.map_err(|errors| errors.iter().map(ToString::to_string).collect::<String>())
    }
}

/// The pods of some files that are given together, each with what it uses; or every error.
pub(crate) fn assign(files: Vec<ManifestDocuments>) -> Result<Vec<PodManifest>, Vec<String>> {
    let mut all = ManifestDocuments::default();
    for file in files {
        all.pods.extend(file.pods);
        all.contents.extend(file.contents);
    }
    let mut errors = Vec::new();
    for (at, document) in all.contents.iter().enumerate() {
        let name = &document.content.name;
        if let Some(first) = all.contents[..at].iter().find(|one| one.content.name == *name) {
            errors.push(format!("{}: {name} is in {} already", document.location, first.location));
        }
    }
    for pod in &mut all.pods {
        for reference in &pod.references {
            let found = all.contents.iter().find(|document| {
                let name = &document.content.name;
                name.kind == reference.kind
                    && name.name == reference.name
                    && name.namespace == pod.namespace
            });
            match found {
                Some(document) => pod.contents.push(document.clone()),
                None if !reference.is_required => {}
                None => errors.push(format!(
                    "{}: pod {}/{} needs the {} {:?}, which is in none of the files; give it a \
                     document of its own, or make the reference optional",
                    pod.location,
                    pod.namespace,
                    pod.name,
                    reference.kind.resource(),
                    reference.name
                )),
            }
        }
    }
    if errors.is_empty() { Ok(all.pods) } else { Err(errors) }
}

/// Whether two sets say the same, wherever they are written.
pub(crate) fn are_same(one: &[ContentDocument], other: &[ContentDocument]) -> bool {
    let of = |documents: &[ContentDocument]| -> Vec<Arc<ContentManifest>> {
        documents.iter().map(|document| document.content.clone()).collect()
    };
    of(one) == of(other)
}

/// A pod and what it uses as one manifest, in which the pod keeps its lines.
pub(crate) fn as_one_text(pod: &PodManifest) -> String {
    if pod.contents.is_empty() {
        return pod.text.to_string();
    }
    let contents = pod.contents.iter().map(|document| document.text.trim_start_matches('\n'));
    // With a marker first, JSON is one document of several too.
    let mut text = format!("--- {}", pod.text);
    contents.for_each(|content| text.push_str(&format!("\n---\n{content}")));
    text
}
