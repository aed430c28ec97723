//! The text round-trips.

use super::Uid;

#[test]
fn every_uid_text_round_trips() {
    for (text, usual) in [
        ("0f8fad5b-d9cb-469f-a165-70867728950e", true),
        ("00000000-0000-4000-8000-0000000000ff", true),
        ("0F8FAD5B-D9CB-469F-A165-70867728950E", false),
        ("0f8fad5bd9cb469fa16570867728950e", false),
        ("0f8fad5b-d9cb-469f-a165-70867728950", false),
        ("0f8fad5b-d9cb-469f-a165-7086772895 0", false),
        ("static-pod-hash", false),
        ("", false),
        ("äöü-🦀", false),
    ] {
        let uid = Uid::new(text);
        assert_eq!(uid.to_string(), text);
        assert_eq!(matches!(uid, Uid::Usual(_)), usual, "{text}");
    }
}
