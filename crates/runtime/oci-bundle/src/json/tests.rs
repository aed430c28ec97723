//! Every kind of value as JSON, parsed again by serde_json.

use super::*;

#[test]
fn every_string_survives_a_round_trip() {
    for text in ["", "plain", "a \"quoted\" \\ path", "line\nbreak\ttab", "\u{1}\u{1f}", "ö☂🦀"]
    {
        let written = Json::from(text).write();
        let read: String = serde_json::from_str(&written).unwrap();
        assert_eq!(read, text, "{written}");
    }
}

#[test]
fn values_are_written_in_order_and_nothing_empty_is_put() {
    let mut inner = Members::default();
    inner.put_some("limit", Some(-1_i64));
    let mut all = Members::default();
    all.put("yes", true);
    all.put_text("nothing", "");
    all.put_texts("none", &[]);
    all.put_members("empty", Members::default());
    all.put_members("memory", inner);
    all.put("largest", u64::MAX);
    all.put("list", Json::List(vec![Json::from("a"), Json::Raw("{\"b\":1}".to_owned())]));
    assert_eq!(
        Json::from(all).write(),
        r#"{"yes":true,"memory":{"limit":-1},"largest":18446744073709551615,"list":["a",{"b":1}]}"#
    );
}
