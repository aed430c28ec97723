//! Image archives from untrusted users: documents that name members, and members that are links.

use image_store::{ImageStore, ImportOptions, Limits, NoProgress, Platform, Thoroughness};

/// Separates the members of an input.
const NEXT: u8 = 0;
const BLOCK: usize = 512;

/// Small, so that an input can reach them.
fn limits() -> Limits {
    Limits {
        document_bytes: 4096,
        index_entries: 4,
        layers: 4,
        blob_bytes: 64 << 10,
        layer_bytes: 64 << 10,
        layer_entries: 16,
        archive_entries: 16,
        archive_bytes: 256 << 10,
        path_bytes: 128,
        path_depth: 8,
        parallel_layers: 1,
        ..Limits::default()
    }
}

/// Any bytes as an archive, and as the members of one (`KIND NAME`, a line break, the content or
/// the link target): what is accepted is complete, what is not is refused with an error of one
/// line, and the store is consistent after both.
pub fn archive(input: &[u8]) {
    imported(input);
    imported(&packed(input));
}

fn imported(bytes: &[u8]) {
    // In memory where that can be: the store waits for its disk, which would be most of the work.
    let around = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let Ok(around) = around else { return };
    let root = around.path().join("store");
    let store = ImageStore::open(&root, limits(), Platform::host()).expect("a store");
    let options = ImportOptions { name: None, pinned: false, preloaded: false };
    match store.import_stream("an archive", bytes, &options, &NoProgress) {
        Ok(images) => {
            assert!(!images.is_empty(), "an import of nothing");
            for image in images {
                for name in image.names {
                    // A later image of the same archive may have taken the name.
                    store.image(&name.to_string()).expect("what was imported is there");
                }
                store.image(&image.record.id.to_string()).expect("by its id");
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "not one line: {error}"),
    }
    assert_eq!(store.verify(Thoroughness::Full).expect("looked at"), [], "the store");
    let names = std::fs::read_dir(around.path()).map_or(0, Iterator::count);
    assert_eq!(names, 1, "something was made beside the store");
}

fn packed(input: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in input.split(|byte| *byte == NEXT) {
        let line = member.iter().position(|byte| *byte == b'\n').unwrap_or(member.len());
        let (head, data) = (&member[..line], member.get(line + 1..).unwrap_or_default());
        let kind = match head.first() {
            Some(b's') => b'2',
            Some(b'h') => b'1',
            Some(b'd') => b'5',
            _ => b'0',
        };
        add(&mut tar, kind, head.get(2..).unwrap_or_default(), data);
    }
    tar.extend([0; 2 * BLOCK]);
    tar
}

/// One member in the v7 format of tar.
fn add(tar: &mut Vec<u8>, kind: u8, name: &[u8], data: &[u8]) {
    let mut header = [0_u8; BLOCK];
    let mut put = |at: usize, most: usize, bytes: &[u8]| {
        let length = bytes.len().min(most);
        header[at..at + length].copy_from_slice(&bytes[..length]);
    };
    let content = if kind == b'0' { data } else { &[] };
    put(0, 100, name);
    put(100, 8, b"0000644\0");
    put(124, 12, format!("{:011o}\0", content.len()).as_bytes());
    put(148, 8, b"        ");
    put(156, 1, &[kind]);
    if kind != b'0' {
        put(157, 100, data);
    }
    put(257, 8, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(header);
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
}
