//! Which forbidden requests count.

use serde_json::{Value, json};

use super::forbidden;

fn request(verb: &str, resource: &str, name: &str, code: u16) -> Value {
    json!({
        "verb": verb,
        "objectRef": {"resource": resource, "namespace": "default", "name": name},
        "responseStatus": {"code": code, "message": "m"},
    })
}

#[test]
fn a_request_counts_unless_the_same_one_is_granted_later() {
    let secret = |code: u16| request("get", "secrets", "s", code);
    let rows: [(&str, Vec<Value>, &[&str]); 5] = [
        ("granted", vec![secret(200)], &[]),
        ("forbidden", vec![secret(403)], &["get secrets default/s: m"]),
        ("granted later", vec![secret(403), secret(403), secret(200)], &[]),
        ("granted before", vec![secret(200), secret(403)], &["get secrets default/s: m"]),
        (
            "another one is granted",
            vec![secret(403), request("get", "secrets", "t", 200), secret(404)],
            &["get secrets default/s: m"],
        ),
    ];
    for (what, entries, expected) in rows {
        assert_eq!(forbidden(&entries), expected, "{what}");
    }
}
