//! Both spellings of digests, invalid digests, and chain ids against known values.

use super::Digest;

const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn digests_read_and_print_the_same() {
    assert_eq!(Digest::of(b"").to_string(), EMPTY);
    assert_eq!(Digest::parse(EMPTY).unwrap(), Digest::of(b""));
    assert_eq!(Digest::from_hex(&Digest::of(b"x").hex()), Some(Digest::of(b"x")));
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "",
        "sha256:",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8555",
        "sha256:../../../../../../etc/passwd3b0c44298fc1c149afbf4c8996fb92427ae41",
        "sha256:é3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
    ] {
        assert!(Digest::parse(text).is_err(), "{text:?} was taken");
    }
}

#[test]
fn a_chain_of_one_is_the_layer_itself_and_order_matters() {
    let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
    assert_eq!(Digest::chain(None, &first), first);
    let chain = Digest::chain(Some(&first), &second);
    assert_eq!(chain, Digest::of(format!("{first} {second}").as_bytes()));
    assert_ne!(chain, Digest::chain(Some(&second), &first));
}
