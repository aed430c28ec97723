//! Full ids, prefixes of ids, and ambiguous prefixes.

use super::*;

#[test]
fn an_entry_is_found_by_its_id_or_the_start_of_it() {
    let entries: BTreeMap<String, u8> =
        [("abc1", 1), ("abc2", 2), ("b", 3), ("bc", 4)].map(|(id, n)| (id.to_owned(), n)).into();
    let found = |id: &str| find("container", &entries, id).map(|(_, n)| *n);
    assert_eq!(found("abc1"), Ok(1));
    assert_eq!(found("abc2"), Ok(2));
    assert_eq!(found("bc"), Ok(4));
    assert_eq!(found("b"), Ok(3), "a whole id wins over longer ones");
    for (id, code) in
        [("abc", tonic::Code::Unknown), ("x", tonic::Code::NotFound), ("", tonic::Code::Unknown)]
    {
        assert_eq!(found(id).map_err(|failure| failure.code), Err(code), "{id}");
    }
}

#[test]
fn fresh_ids_differ_and_have_64_digits() {
    let (one, other) = (fresh().unwrap(), fresh().unwrap());
    assert_ne!(one, other);
    assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
}
