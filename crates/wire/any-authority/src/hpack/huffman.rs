//! The Huffman code of header compression: each byte has a code of 5 to 30 bits.
//!
//! Decoding walks the codes in order of length: within one length they are consecutive numbers, so
//! a table of where each length begins is enough.

use std::sync::OnceLock;

use super::table::CODES;

/// The codes of one length: from `first`, one for each of `bytes`.
struct CodesOfLength {
    bits: u8,
    first: u32,
    bytes: Vec<u8>,
}

fn lengths() -> &'static [CodesOfLength] {
    static LENGTHS: OnceLock<Vec<CodesOfLength>> = OnceLock::new();
    LENGTHS.get_or_init(|| {
        let mut lengths = Vec::new();
        for bits in 5..=30 {
            let mut codes: Vec<(u32, u8)> = (0..=u8::MAX)
                .zip(CODES)
                .filter(|(_, (_, length))| *length == bits)
                .map(|(byte, (code, _))| (code, byte))
                .collect();
            codes.sort_unstable();
            if let Some((first, _)) = codes.first().copied() {
                let bytes = codes.into_iter().map(|(_, byte)| byte).collect();
                lengths.push(CodesOfLength { bits, first, bytes });
            }
        }
        lengths
    })
}

/// The decoded bytes, or `None` if the code is invalid: an unknown code, or wrong padding.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(coded.len() * 2);
    let mut buffered: u64 = 0;
    let mut bits: u8 = 0;
    let mut input = coded.iter();
    loop {
        while bits <= 48
            && let Some(byte) = input.next()
        {
            buffered = (buffered << 8) | u64::from(*byte);
            bits += 8;
        }
        match huffman_symbol(buffered, bits) {
            Some((byte, length)) => {
                text.push(byte);
                bits -= length;
                buffered &= (1 << bits) - 1;
            }
            // The remaining bits must be a prefix of the EOS code, which is all ones.
            None => return (bits < 8 && buffered == (1 << bits) - 1).then_some(text),
        }
    }
}

fn huffman_symbol(buffered: u64, bits: u8) -> Option<(u8, u8)> {
    for length in lengths() {
        if length.bits > bits {
            return None;
        }
        let code = u32::try_from(buffered >> (bits - length.bits)).ok()?;
        if let Some(at) = code.checked_sub(length.first)
            && let Some(byte) = usize::try_from(at).ok().and_then(|at| length.bytes.get(at))
        {
            return Some((*byte, length.bits));
        }
    }
    None
}
