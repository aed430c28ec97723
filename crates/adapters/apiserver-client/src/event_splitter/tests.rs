//! Streams split at any byte give the same events.

use super::*;

fn all(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, EventTooLong> {
    let mut event_splitter = EventSplitter::new(limit);
    let mut found = Vec::new();
    for chunk in chunks {
        event_splitter.add(Bytes::copy_from_slice(chunk));
        while let Some(line) = event_splitter.next()? {
            found.push(String::from_utf8_lossy(&line).into_owned());
        }
    }
    Ok(found)
}

fn frames(chunks: &[&[u8]], limit: usize) -> Result<Vec<Vec<u8>>, EventTooLong> {
    let mut event_splitter = EventSplitter::length_prefixed(limit);
    let mut found = Vec::new();
    for chunk in chunks {
        event_splitter.add(Bytes::copy_from_slice(chunk));
        while let Some(frame) = event_splitter.next()? {
            found.push(frame.to_vec());
        }
    }
    Ok(found)
}

#[test]
fn wherever_the_stream_is_cut_the_frames_are_the_same() {
    // Three events, an empty one that is skipped, and the beginning of another.
    let stream = b"\0\0\0\x01a\0\0\0\x05\nbcd\n\0\0\0\0\0\0\0\x02ef\0\0\0\x03g";
    let whole = Ok(vec![b"a".to_vec(), b"\nbcd\n".to_vec(), b"ef".to_vec()]);
    for cut in 0..=stream.len() {
        for second in cut..=stream.len() {
            let (first, rest) = stream.split_at(cut);
            let (middle, last) = rest.split_at(second - cut);
            assert_eq!(frames(&[first, middle, last], 100), whole, "cut at {cut} and {second}");
        }
    }
    let single: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(frames(&single, 100), whole);
}

#[test]
fn an_oversized_frame_is_refused_by_its_length_prefix() {
    assert_eq!(frames(&[b"\0\0\0\x06abc"], 5), Err(EventTooLong));
    assert_eq!(frames(&[b"\xff\xff\xff\xff"], 5), Err(EventTooLong));
    assert_eq!(frames(&[b"\0\0\0\x05abcde"], 5), Ok(vec![b"abcde".to_vec()]));
}

#[test]
fn wherever_the_stream_is_cut_the_lines_are_the_same() {
    let stream = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":\"\xc3\xa9\"}\nrest";
    let whole = all(&[stream], 100);
    assert_eq!(whole.as_ref().map(Vec::len), Ok(3));
    for cut in 0..=stream.len() {
        for second in cut..=stream.len() {
            let (first, rest) = stream.split_at(cut);
            let (middle, last) = rest.split_at(second - cut);
            assert_eq!(all(&[first, middle, last], 100), whole, "cut at {cut} and {second}");
        }
    }
    let single: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(all(&single, 100), whole);
}

#[test]
fn the_limit_is_exact_wherever_the_line_is_cut() {
    assert_eq!(all(&[b"12345\n"], 5), Ok(vec!["12345".to_owned()]));
    assert_eq!(all(&[b"123456\n"], 5), Err(EventTooLong));
    assert_eq!(all(&[b"123", b"456\n"], 5), Err(EventTooLong));
    assert_eq!(all(&[b"123", b"456"], 5), Err(EventTooLong));
    assert_eq!(all(&[b"123", b"45"], 5), Ok(vec![]));
}

#[test]
fn chunks_that_were_not_drained_are_joined() {
    let mut event_splitter = EventSplitter::new(10);
    event_splitter.add(Bytes::from_static(b"a\nb"));
    event_splitter.add(Bytes::from_static(b"c\n"));
    assert_eq!(event_splitter.next(), Ok(Some(Bytes::from_static(b"a"))));
    assert_eq!(event_splitter.next(), Ok(Some(Bytes::from_static(b"bc"))));
    assert_eq!(event_splitter.next(), Ok(None));
}
