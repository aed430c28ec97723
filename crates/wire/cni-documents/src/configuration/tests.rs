//! The version used with plugins, and what a configuration disables.

use super::*;

fn parsed(fields: &str) -> Result<NetworkConfigList, String> {
    let text = format!(r#"{{"name":"n","plugins":[{{"type":"x"}}]{fields}}}"#);
    NetworkConfigList::parse("x", text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn the_highest_version_both_sides_know_is_used() {
    for (fields, expected) in [
        ("", "0.1.0"),
        (r#","cniVersion":"0.4.0""#, "0.4.0"),
        (r#","cniVersion":"0.4.0","cniVersions":null"#, "0.4.0"),
        (r#","cniVersion":"0.4.0","cniVersions":[]"#, "0.4.0"),
        (r#","cniVersion":"0.4.0","cniVersions":["1.0.0","0.3.1","1.1.0"]"#, "1.1.0"),
        (r#","cniVersion":"1.1.0","cniVersions":["1.0.0"]"#, "1.1.0"),
        (r#","cniVersions":["0.3.1","1.0.0"]"#, "1.0.0"),
        (r#","cniVersion":"1.0.0","cniVersions":["1.0.0","2.0.0","1.10.0"]"#, "1.0.0"),
        (r#","cniVersion":"2.0.0""#, "2.0.0"),
    ] {
        let list = parsed(fields).expect(fields);
        let input = list.plugins[0].input(&list, None, &Map::new());
        let input_json: Value = serde_json::from_slice(&input).expect("JSON");
        assert_eq!(input_json["cniVersion"], expected, "{fields}");
    }
    for wrong in [r#","cniVersions":"1.0.0""#, r#","cniVersions":[1]"#] {
        assert!(parsed(wrong).expect_err(wrong).contains("cniVersions"), "{wrong}");
    }
}

#[test]
fn disable_gc_is_read_from_the_configuration() {
    for (fields, expected) in [
        ("", false),
        (r#","disableGC":false"#, false),
        (r#","disableGC":true"#, true),
        (r#","disableGC":"True""#, true),
        (r#","disableGC":"false""#, false),
    ] {
        assert_eq!(parsed(fields).expect(fields).gc_disabled, expected, "{fields}");
    }
    for wrong in [r#","disableGC":1"#, r#","disableGC":"yes""#] {
        assert!(parsed(wrong).expect_err(wrong).contains("disableGC"), "{wrong}");
    }
}
