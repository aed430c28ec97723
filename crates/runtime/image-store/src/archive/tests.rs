//! Well-formed and hostile tar streams; agreement with the `tar` crate's reader.

use std::io::{Read as _, Write as _};

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::{TarEntries, TarEntry, TarEntryKind};
use crate::error::Error;
use crate::limits::Limits;

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(1);
    header.set_gid(2);
    header.set_mtime(3);
    header.set_size(size);
    header
}

fn read(bytes: &[u8]) -> Result<Vec<(TarEntry, Vec<u8>)>, Error> {
    let limits = Limits { extension_bytes: 1000, ..Limits::default() };
    let mut entries = TarEntries::new("it", bytes, &limits, 100);
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        let mut data = Vec::new();
        entries.read_to_end(&mut data).map_err(|e| super::read_error("it", &e))?;
        found.push((entry, data));
    }
    Ok(found)
}

#[test]
fn entries_are_read_with_all_their_metadata() {
    let long = format!("folder/{}", "n".repeat(150));
    let mut builder = Builder::new(Vec::new());
    builder.append_data(&mut header(EntryType::Regular, 5), "a", &b"hello"[..]).unwrap();
    builder.append_data(&mut header(EntryType::Regular, 3), &long, &b"abc"[..]).unwrap();
    builder.append_link(&mut header(EntryType::Symlink, 0), "s", "../a").unwrap();
    builder
        .append_pax_extensions([
            ("mtime", &b"-1.25"[..]),
            ("uid", b"70000"),
            ("SCHILY.xattr.user.x", b"v\0\n="),
        ])
        .unwrap();
    builder.append_link(&mut header(EntryType::Link, 0), "h", "a").unwrap();
    let bytes = builder.into_inner().unwrap();
    let found = read(&bytes).unwrap();
    assert_eq!(found.len(), 4);
    assert_eq!((&found[0].0.path[..], &found[0].1[..]), (&b"a"[..], &b"hello"[..]));
    assert_eq!((found[0].0.user, found[0].0.group, found[0].0.modified), (1, 2, (3, 0)));
    assert_eq!((&found[1].0.path[..], &found[1].1[..]), (long.as_bytes(), &b"abc"[..]));
    assert_eq!(found[2].0.kind, TarEntryKind::Symlink(b"../a".to_vec()));
    let last = &found[3].0;
    assert_eq!(last.kind, TarEntryKind::HardLink(b"a".to_vec()));
    assert_eq!((last.user, last.modified), (70000, (-2, 750_000_000)));
    assert_eq!(last.attributes, [(b"user.x".to_vec(), b"v\0\n=".to_vec())]);
    // Skipping data gives the same entries.
    let limits = Limits::default();
    let mut entries = TarEntries::new("it", &bytes[..], &limits, 100);
    for (expected, _) in &found {
        assert_eq!(entries.next_entry().unwrap().as_ref(), Some(expected));
    }
    assert_eq!(entries.next_entry().unwrap(), None);
    assert_eq!(entries.next_entry().unwrap(), None);
}

#[test]
fn the_size_in_an_extended_header_wins() {
    // A reader that used the plain header's size (0) would see an entry "evil" inside the data.
    let mut inner = Builder::new(Vec::new());
    inner.append_data(&mut header(EntryType::Regular, 0), "evil", &b""[..]).unwrap();
    let inner = inner.into_inner().unwrap();
    let mut builder = Builder::new(Vec::new());
    builder.append_pax_extensions([("size", inner.len().to_string().as_bytes())]).unwrap();
    let mut outer = header(EntryType::Regular, 0);
    outer.set_path("good").unwrap();
    outer.set_cksum();
    builder.append(&outer, &b""[..]).unwrap();
    builder.get_mut().write_all(&inner).unwrap();
    let found = read(&builder.into_inner().unwrap()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0.path, b"good");
    assert_eq!(found[0].1, inner);
}

#[test]
fn sparse_files_are_read_with_their_data_offsets() {
    let mut sparse = header(EntryType::GNUSparse, 4);
    sparse.set_path("s").unwrap();
    let gnu = sparse.as_gnu_mut().unwrap();
    gnu.set_real_size(1 << 20);
    gnu.sparse[0].set_offset(4096);
    gnu.sparse[0].set_length(4);
    gnu.sparse[1].set_offset(1 << 20);
    gnu.sparse[1].set_length(0);
    sparse.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&sparse, &b"data"[..]).unwrap();
    let found = read(&builder.into_inner().unwrap()).unwrap();
    assert_eq!(found[0].0.kind, TarEntryKind::Sparse(vec![(4096, 4), (1 << 20, 0)]));
    assert_eq!((found[0].0.size, &found[0].1[..]), (1 << 20, &b"data"[..]));
}

#[test]
fn malformed_streams_are_refused() {
    let good = {
        let mut builder = Builder::new(Vec::new());
        builder.append_data(&mut header(EntryType::Regular, 600), "a", &[7; 600][..]).unwrap();
        builder.into_inner().unwrap()
    };
    let pax = |records: &[u8], kind: u8| {
        let mut extended = header(EntryType::new(kind), records.len() as u64);
        extended.set_path("pax").unwrap();
        extended.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&extended, records).unwrap();
        builder.append_data(&mut header(EntryType::Regular, 0), "a", &b""[..]).unwrap();
        builder.into_inner().unwrap()
    };
    let odd = |kind: u8| {
        let mut odd = header(EntryType::new(kind), 0);
        odd.set_path("odd").unwrap();
        odd.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&odd, &b""[..]).unwrap();
        builder.into_inner().unwrap()
    };
    let mut flipped = good.clone();
    flipped[3] ^= 1;
    let many = {
        let mut builder = Builder::new(Vec::new());
        for _ in 0..101 {
            builder.append_data(&mut header(EntryType::Regular, 0), "a", &b""[..]).unwrap();
        }
        builder.into_inner().unwrap()
    };
    let lone = [&[0; 512][..], &good].concat();
    let orphan = pax(b"10 path=x\n", b'x')[..1024].to_vec();
    let rows: &[(&str, &[u8], &str)] = &[
        ("garbage", &[b'x'; 1024], "checksum"),
        ("a flipped bit", &flipped, "checksum"),
        ("cut in a header", &good[..300], "truncated"),
        ("cut in data", &good[..800], "truncated"),
        ("an empty header first", &lone, "empty header"),
        ("too many entries", &many, "exceeds the limit of 100"),
        ("unknown type", &odd(b'Q'), "unknown type"),
        ("a header for nothing", &orphan, "before its entry"),
        ("record without length", &pax(b"path=x\n", b'x'), "malformed"),
        ("record too long", &pax(b"99 path=x\n", b'x'), "malformed"),
        ("record too short", &pax(b"3 path=x\n", b'x'), "malformed"),
        ("record of no length", &pax(b"0 path=x\n", b'x'), "malformed"),
        ("record without key", &pax(b"5 =x\n", b'x'), "malformed"),
        ("size is no number", &pax(b"10 size=-\n", b'x'), "expected a number"),
        ("size overflows", &pax(b"29 size=18446744073709551615\n", b'x'), "claims"),
        ("owner is the no-owner", &pax(b"18 uid=4294967295\n", b'x'), "no owner"),
        ("path with NUL", &pax(b"12 path=a\0b\n", b'x'), "NUL"),
        ("empty path", &pax(b"8 path=\n", b'x'), "empty path"),
        ("sparse by record", &pax(b"22 GNU.sparse.major=1\n", b'x'), "not supported"),
        ("huge records", &pax(&[b'1'; 2000], b'x'), "exceeds the limit of 1000"),
        ("huge long name", &pax(&[b'n'; 2000], b'L'), "exceeds the limit of 1000"),
    ];
    for (name, bytes, reason) in rows {
        let error = read(bytes).expect_err(name).to_string();
        assert!(error.contains(reason), "{name}: {error}; expected {reason}");
    }
    let ends_early = &good[..good.len() - 1024];
    assert_eq!(read(ends_early).unwrap().len(), 1, "an end mark may lack");
}

proptest! {
    /// Both readers agree on the output of the `tar` crate's writer.
    #[test]
    fn agrees_with_the_usual_reader(
        files in proptest::collection::vec(("[a-z]{1,120}(/[a-z]{1,120})?", 0_usize..2000), 0..8)
    ) {
        let mut builder = Builder::new(Vec::new());
        for (path, size) in &files {
            let data = vec![1; *size];
            let mut header = header(EntryType::Regular, *size as u64);
            builder.append_data(&mut header, path, &data[..]).unwrap();
        }
        let bytes = builder.into_inner().unwrap();
        let ours: Vec<_> =
            read(&bytes).unwrap().into_iter().map(|(entry, data)| (entry.path, data)).collect();
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut theirs = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            theirs.push((entry.path_bytes().into_owned(), data));
        }
        prop_assert_eq!(ours, theirs);
    }

    /// A flipped byte may give an error or other entries, never a panic.
    #[test]
    fn arbitrary_bytes_do_not_panic(at in 0_usize..3000, byte in any::<u8>()) {
        let mut builder = Builder::new(Vec::new());
        builder.append_pax_extensions([("path", &b"x/y"[..])]).unwrap();
        builder.append_data(&mut header(EntryType::Regular, 5), "a", &b"hello"[..]).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes);
    }
}
