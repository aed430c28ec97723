//! CDI files, which device drivers and administrators write.

use std::fs;

use oci_bundle::cdi::CdiRegistry;

/// Any bytes as a CDI file, as JSON and as YAML: devices or errors of one line; the same bytes
/// always give the same result; and a device that no file describes is never found.
pub fn cdi(input: &[u8]) {
    let Ok(dir) = tempfile::tempdir() else { return };
    for name in ["one.json", "one.yaml"] {
        let path = dir.path().join(name);
        if fs::write(&path, input).is_err() {
            return;
        }
        let dirs = [dir.path().to_owned()];
        let (one, two) = (CdiRegistry::read(&dirs), CdiRegistry::read(&dirs));
        assert_eq!(one.errors(), two.errors(), "read twice");
        for diagnostic in one.errors() {
            assert!(!diagnostic.contains('\n'), "not one line: {diagnostic}");
        }
        for wanted in ["vendor.com/thing=0", "vendor.com/thing=all", "nobody.test/nothing=none"] {
            let names = [wanted.to_owned()];
            let found = one.edits(&names);
            assert_eq!(found, two.edits(&names), "read twice");
            assert!(found.is_err() || contains(input, wanted), "{wanted} was never described");
        }
        let _ = fs::remove_file(&path);
    }
}

/// Whether the file contains the vendor's name, unless it is escaped.
fn contains(input: &[u8], name: &str) -> bool {
    let text = String::from_utf8_lossy(input);
    let vendor = name.split('/').next().unwrap_or(name);
    text.contains(vendor) || text.contains('\\')
}
