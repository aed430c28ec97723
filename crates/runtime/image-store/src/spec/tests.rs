//! Documents of both families, contradictory ones, and a property: no input panics.

use proptest::prelude::*;

use super::{ImageConfig, ImageDocument};
use crate::limits::Limits;

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn document(text: &str) -> Result<ImageDocument, String> {
    ImageDocument::parse("it", text.replace("DIGEST", DIGEST).as_bytes(), &Limits::default())
        .map_err(|error| error.to_string())
}

#[test]
fn both_families_are_read() {
    for (kind, manifests) in [
        (r#""mediaType":"application/vnd.oci.image.index.v1+json","#, 1),
        (r#""mediaType":"application/vnd.docker.distribution.manifest.list.v2+json","#, 1),
        ("", 1),
    ] {
        let text = format!(
            r#"{{"schemaVersion":2,{kind}"manifests":[{{"digest":"DIGEST","size":3,
            "mediaType":"x","platform":{{"os":"linux","architecture":"arm","variant":"v7"}}}}]}}"#
        );
        match document(&text).unwrap() {
            ImageDocument::Index(index) => assert_eq!(index.manifests.len(), manifests),
            ImageDocument::ImageManifest(_) => panic!("{text} was read as a manifest"),
        }
    }
    for kind in [
        r#""mediaType":"application/vnd.oci.image.manifest.v1+json","#,
        r#""mediaType":"application/vnd.docker.distribution.manifest.v2+json","#,
        r#""mediaType":null,"unknown":{"deep":[1]},"#,
    ] {
        let text = format!(
            r#"{{"schemaVersion":2,{kind}"config":{{"digest":"DIGEST","size":1}},
            "layers":[{{"digest":"DIGEST","size":9,
            "mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip"}}]}}"#
        );
        match document(&text).unwrap() {
            ImageDocument::ImageManifest(manifest) => assert!(manifest.layers[0].is_layer()),
            ImageDocument::Index(_) => panic!("{text} was read as an index"),
        }
    }
}

#[test]
fn lying_documents_are_refused() {
    let many = format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        [r#"{"digest":"DIGEST","size":1}"#; 1025].join(",")
    );
    let layers = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"DIGEST","size":1}},"layers":[{}]}}"#,
        [r#"{"digest":"DIGEST","size":1}"#; 201].join(",")
    );
    let deep =
        format!(r#"{{"schemaVersion":2,"config":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let positional = r#"[2,"",null,null,[]]"#;
    let rows: &[(&str, &str)] = &[
        ("", "is no JSON object"),
        ("[]", "is no JSON object"),
        ("{}", "schemaVersion is none"),
        (r#"{"schemaVersion":1,"fsLayers":[]}"#, "first schema"),
        (r#"{"schemaVersion":3,"manifests":[]}"#, "schemaVersion is 3"),
        (r#"{"schemaVersion":2}"#, "neither"),
        (
            r#"{"schemaVersion":2,"config":{"digest":"DIGEST","size":1},"layers":[],"manifests":[]}"#,
            "two different images",
        ),
        (
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","manifests":[]}"#,
            "neither",
        ),
        (
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","config":{"digest":"DIGEST","size":1}}"#,
            "neither",
        ),
        (r#"{"schemaVersion":2,"mediaType":"text/html","manifests":[]}"#, "text/html"),
        (r#"{"schemaVersion":2,"config":{"digest":"sha256:../x","size":1}}"#, "no digest"),
        (r#"{"schemaVersion":2,"config":{"digest":"DIGEST","size":-1}}"#, "-1"),
        (&many, "exceeds the limit of 1024"),
        (&layers, "exceeds the limit of 200"),
        (&deep, "it:"),
        (positional, "is no JSON object"),
    ];
    for (text, reason) in rows {
        let error = document(text).expect_err(&text[..text.len().min(80)]);
        assert!(error.contains(reason), "{error}; expected {reason}");
    }
    let huge = Limits { document_bytes: 10, ..Limits::default() };
    assert!(ImageDocument::parse("it", b"{           }", &huge).is_err());
}

#[test]
fn a_configuration_is_read_with_everything_that_matters() {
    let text = format!(
        r#"{{"architecture":"amd64","os":"linux","created":"2020-01-01T00:00:00Z","config":{{
        "User":"1:2","Env":["A=b"],"Entrypoint":["/e"],"Cmd":null,"WorkingDir":"/w",
        "StopSignal":"SIGQUIT","Labels":{{"k":"v"}},"ExposedPorts":{{"80/tcp":{{}}}},
        "Volumes":{{"/data":{{}}}},"OnBuild":null}},
        "rootfs":{{"type":"layers","diff_ids":["{DIGEST}"]}},
        "history":[{{"created_by":"x","empty_layer":true}},{{"comment":"c"}}]}}"#
    );
    let image = ImageConfig::parse("it", text.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(image.config.user, "1:2");
    assert_eq!(image.config.env, ["A=b"]);
    assert_eq!(image.config.entrypoint, ["/e"]);
    assert!(image.config.cmd.is_empty());
    assert_eq!(image.config.working_dir, "/w");
    assert_eq!(image.config.stop_signal, "SIGQUIT");
    assert_eq!(image.config.labels["k"], "v");
    assert_eq!(image.config.exposed_ports, ["80/tcp"]);
    assert_eq!(image.config.volumes, ["/data"]);
    assert_eq!(image.diff_ids().len(), 1);
    assert!(image.history[0].empty_layer && !image.history[1].empty_layer);
    let bare = ImageConfig::parse("it", br#"{"config":null,"rootfs":null}"#, &Limits::default());
    assert!(bare.unwrap().diff_ids().is_empty());
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ImageDocument::parse("it", &bytes, &Limits::default());
        let _ = ImageConfig::parse("it", &bytes, &Limits::default());
    }
}
