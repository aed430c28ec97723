//! Every compression as one stream, in one frame and in several; broken, truncated and endless
//! ones.

use std::io::{Read as _, Write as _};

use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{Compression, LayerDecoder, LimitedReader, read_error};
use crate::error::Error;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn plain(packed: &[u8]) -> Result<(Compression, Vec<u8>), Error> {
    let mut decoder = LayerDecoder::new("it", packed)?;
    let mut out = Vec::new();
    let kind = decoder.compression();
    decoder.read_to_end(&mut out).map_err(|error| read_error("it", &error))?;
    Ok((kind, out))
}

#[test]
fn every_compression_is_decoded() {
    let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let half = text.len() / 2;
    let several_gzip = [gzip(&text[..half]), gzip(&text[half..])].concat();
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat();
    let several_zstd =
        [skippable.clone(), zstd(&text[..half]), zstd(b""), skippable, zstd(&text[half..])]
            .concat();
    for (packed, kind) in [
        (text.clone(), Compression::None),
        (gzip(&text), Compression::Gzip),
        (several_gzip, Compression::Gzip),
        (zstd(&text), Compression::Zstd),
        (several_zstd, Compression::Zstd),
    ] {
        let (found, out) = plain(&packed).unwrap();
        assert_eq!(found, kind);
        assert!(out == text, "{kind:?} came out differently");
    }
    assert_eq!(plain(b"").unwrap(), (Compression::None, Vec::new()));
    assert_eq!(plain(b"ab").unwrap().1, b"ab");
}

#[test]
fn broken_streams_are_errors() {
    let text = vec![b'x'; 100_000];
    let mut flipped = zstd(&text);
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    for packed in [
        gzip(&text)[..60].to_vec(),
        zstd(&text)[..8].to_vec(),
        [gzip(&text), b"garbage".to_vec()].concat(),
        [zstd(&text), b"garbage".to_vec()].concat(),
        [0x5a, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0x7f].to_vec(),
        flipped,
    ] {
        assert!(plain(&packed).is_err(), "{:?}", &packed[..8]);
    }
    for (start, name) in [(&b"BZh91AY&SY"[..], "bzip2"), (b"\xfd7zXZ\0\0\0", "xz")] {
        let error = plain(start).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_decompression_bomb_is_stopped_at_the_limit() {
    for packed in [gzip(&vec![0; 50 << 20]), zstd(&vec![0; 50 << 20])] {
        assert!(packed.len() < 1 << 20, "no bomb");
        let mut capped = LimitedReader::new(LayerDecoder::new("it", &packed[..]).unwrap(), 1 << 20);
        let mut out = Vec::new();
        let error = capped.read_to_end(&mut out).unwrap_err();
        assert!(out.len() <= 1 << 20);
        assert!(matches!(read_error("it", &error), Error::Limit { limit: 1_048_576, .. }));
    }
    let mut exact = Vec::new();
    LimitedReader::new(&b"four"[..], 4).read_to_end(&mut exact).unwrap();
    assert_eq!(exact, b"four");
}
