//! Untrusted images: layers and the documents that describe them.

use std::fs;
use std::io::Read as _;

use image_store::{
    ImageConfig, ImageDocument, LayerDecoder, Limits, TarEntries, TarEntryKind, unpack_layer,
};

/// Small, so that an input can reach them.
fn limits() -> Limits {
    Limits {
        document_bytes: 64 << 10,
        index_entries: 8,
        layers: 8,
        layer_bytes: 1 << 20,
        layer_entries: 64,
        path_bytes: 256,
        path_depth: 16,
        extension_bytes: 4096,
        ..Limits::default()
    }
}

/// Any bytes as a layer, compressed or not: reading keeps the limits, and unpacking touches nothing
/// outside its own directory.
pub fn layer(input: &[u8]) {
    let limits = limits();
    if let Ok(plain) = LayerDecoder::new("a layer", input) {
        // As much as the store itself would take.
        let plain = plain.take(limits.layer_bytes);
        let mut entries = TarEntries::new("a layer", plain, &limits, limits.layer_entries);
        let mut seen = 0;
        while let Ok(Some(entry)) = entries.next_entry() {
            seen += 1;
            assert!(seen <= limits.layer_entries, "more entries than allowed");
            assert!(entry.path.len() <= limits.path_bytes, "a path beyond the limit");
            assert!(!entry.path.contains(&0), "a path with a zero byte");
            if entry.kind == TarEntryKind::File {
                let mut data = Vec::new();
                let read = (&mut entries).take(limits.layer_bytes).read_to_end(&mut data);
                assert!(read.is_err() || data.len() as u64 <= entry.size, "more data than said");
            }
        }
    }
    unpacked(input, &limits);
}

fn unpacked(input: &[u8], limits: &Limits) {
    let Ok(around) = tempfile::tempdir() else { return };
    let (place, beside) = (around.path().join("layer"), around.path().join("beside"));
    if fs::create_dir(&place).and_then(|()| fs::write(&beside, "untouched")).is_err() {
        return;
    }
    let _ = unpack_layer(&place, input, limits);
    assert_eq!(fs::read(&beside).ok().as_deref(), Some(&b"untouched"[..]), "a file beside it");
    let names = fs::read_dir(around.path()).map_or(0, Iterator::count);
    assert_eq!(names, 2, "something was made beside it");
}

/// Any bytes as a manifest, an index or a configuration: a value within the limits, or an error of
/// one sentence; the same bytes always give the same result.
pub fn image_document(input: &[u8]) {
    let limits = limits();
    match ImageDocument::parse("a document", input, &limits) {
        Ok(document) => {
            match &document {
                ImageDocument::ImageManifest(manifest) => {
                    assert!(manifest.layers.len() <= limits.layers);
                }
                ImageDocument::Index(index) => {
                    assert!(index.manifests.len() <= limits.index_entries);
                }
            }
            let again = ImageDocument::parse("a document", input, &limits).ok();
            assert_eq!(again, Some(document), "read twice");
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "not one line: {error}"),
    }
    let _ = ImageConfig::parse("a configuration", input, &limits);
}
