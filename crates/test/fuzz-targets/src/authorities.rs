//! Connections of gRPC clients with arbitrary `:authority` values.

use any_authority::AuthorityFilter;

use crate::streams::cut;

fn filtered(parts: &[&[u8]]) -> Result<Vec<u8>, String> {
    let (mut filter, mut output) = (AuthorityFilter::default(), Vec::new());
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let taken = filter.push(rest, &mut output).map_err(|error| error.to_string())?;
            rest = &rest[taken..];
        }
    }
    Ok(output)
}

/// Any bytes as a client's connection: the result is the same in one piece, in two and byte by
/// byte; and the filter's output passes the filter unchanged.
pub fn authority(input: &[u8]) {
    let Some((first, second)) = cut(input) else { return };
    let whole = filtered(&[&input[1..]]);
    assert_eq!(whole, filtered(&[first, second]), "it depends on the pieces");
    let bytes: Vec<&[u8]> = input[1..].chunks(1).collect();
    assert_eq!(whole, filtered(&bytes), "it depends on the bytes coming one by one");
    if let Ok(output) = whole {
        assert_eq!(filtered(&[&output]).as_ref(), Ok(&output), "changed a second time");
    }
}
