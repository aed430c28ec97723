//! The files of each kind of volume, and the errors.

use super::*;
use crate::testing::{source, with_volume};
use ports::ContentData;

const APP: &str = "containers: [{name: app, image: i}],";

fn states() -> ObjectStates {
    let object = |data: &[(&str, &str)]| {
        let data = data.iter().map(|(key, value)| ((*key).into(), value.as_bytes().into()));
        Ok(Arc::new(ContentObject {
            data: ContentData(data.collect()),
            ..ContentObject::default()
        }))
    };
    use ContentKind::{ConfigMap, Secret};
    [
        ((ConfigMap, "cm"), object(&[("a", "1"), ("b.txt", "2")])),
        (
            (ConfigMap, "mixed"),
            Ok(Arc::new(ContentObject {
                data: ContentData([("t".to_owned(), b"text".to_vec())].into()),
                binary_data: ContentData([("b".to_owned(), vec![0xff, 0])].into()),
                ..ContentObject::default()
            })),
        ),
        ((ConfigMap, "bad"), object(&[("../up", "1")])),
        ((ConfigMap, "dots"), object(&[("..data", "1")])),
        ((Secret, "s"), object(&[("key", "pass"), ("a", "3")])),
        ((Secret, "none"), Err(ContentError::NotFound)),
        ((ConfigMap, "none"), Err(ContentError::NotFound)),
        ((Secret, "away"), Err(ContentError::Failed("the server is away".into()))),
        (
            (Secret, "denied"),
            Err(ContentError::Forbidden("secrets \"denied\" is forbidden".into())),
        ),
    ]
    .into_iter()
    .map(|((kind, name), state)| ((kind, name.to_owned()), state))
    .collect()
}

fn tokens() -> BTreeMap<TokenKey, Result<String, String>> {
    let key = |audience: Option<&str>| TokenKey {
        audience: audience.map(Into::into),
        expiration_seconds: Some(3607),
    };
    [
        (key(None), Ok("jwt".to_owned())),
        (key(Some("vault")), Err("serviceaccounts \"x\" not found".to_owned())),
    ]
    .into()
}

/// The files as `path:mode=content`, with the owner if there is one.
fn made(spec: &str, volume: &str) -> Result<String, String> {
    let pod = with_volume(spec, volume);
    let downward = |item: &DownwardApiFile| match &item.field_ref {
        Some(field) if &*field.field_path == "bad" => Err("unsupported fieldPath: bad".to_owned()),
        Some(field) => Ok(format!("<{}>", field.field_path)),
        None => Ok("resource".to_owned()),
    };
    let inputs = PayloadInputs {
        pod: &pod,
        source: source(&pod),
        objects: &states(),
        tokens: &tokens(),
        downward: &downward,
    };
    let files = files(&inputs).map_err(|error| error.to_string())?;
    let shown = files.iter().map(|file| {
        let owner = file.owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
        format!("{}:{:o}={}{owner}", file.path, file.mode, String::from_utf8_lossy(&file.content))
    });
    Ok(shown.collect::<Vec<_>>().join(", "))
}

#[test]
fn files_of_objects() {
    for (volume, expected) in [
        ("configMap: {name: cm}", "a:644=1, b.txt:644=2"),
        ("configMap: {name: cm, defaultMode: 256}", "a:400=1, b.txt:400=2"),
        ("configMap: {name: cm, items: [{key: a, path: x//y/./z, mode: 511}]}", "x/y/z:777=1"),
        (
            "configMap: {name: cm, optional: true, items: [{key: q, path: q}, {key: a, path: a}]}",
            "a:644=1",
        ),
        ("configMap: {name: none, optional: true}", ""),
        ("configMap: {name: mixed}", "b:644=\u{fffd}\0, t:644=text"),
        ("configMap: {name: mixed, items: [{key: b, path: b}]}", "b:644=\u{fffd}\0"),
        ("secret: {secretName: s}", "a:644=3, key:644=pass"),
        ("secret: {secretName: s, items: [{key: key, path: k}, {key: a, path: k}]}", "k:644=3"),
        ("secret: {secretName: none, optional: true, items: [{key: a, path: a}]}", ""),
    ] {
        assert_eq!(made(APP, volume).as_deref(), Ok(expected), "{volume}");
    }
}

#[test]
fn files_of_projections() {
    for (volume, expected) in [
        ("projected: {sources: []}", ""),
        (
            "projected: {defaultMode: 420, sources: [{configMap: {name: cm}}, {secret: {name: s}}]}",
            "a:644=3, b.txt:644=2, key:644=pass",
        ),
        (
            "projected: {sources: [{downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}]}}, \
             {serviceAccountToken: {path: token, expirationSeconds: 3607}}]}",
            "ns:644=<metadata.namespace>, token:644=jwt",
        ),
        ("projected: {sources: [{secret: {name: none, optional: true}}, {}]}", ""),
    ] {
        assert_eq!(made(APP, volume).as_deref(), Ok(expected), "{volume}");
    }
}

#[test]
fn a_token_belongs_to_the_single_user_or_the_group() {
    let token =
        "projected: {sources: [{serviceAccountToken: {path: d/token, expirationSeconds: 3607}}]}";
    for (spec, expected) in [
        ("securityContext: {runAsUser: 1000}, containers: [{name: a}],", "d/token:600=jwt of 1000"),
        ("securityContext: {fsGroup: 5}, containers: [{name: a}],", "d/token:600=jwt"),
        (
            "securityContext: {runAsUser: 1}, containers: [{name: a, securityContext: {runAsUser: 2}}, {name: b}],",
            "d/token:644=jwt",
        ),
    ] {
        assert_eq!(made(spec, token).as_deref(), Ok(expected), "{spec}");
    }
}

#[test]
fn errors() {
    for (volume, expected) in [
        ("configMap: {name: none}", "configmap \"none\" not found"),
        ("secret: {secretName: none}", "secret \"none\" not found"),
        ("secret: {secretName: away, optional: true}", "the server is away"),
        ("secret: {secretName: denied}", "secrets \"denied\" is forbidden"),
        (
            "secret: {secretName: unread}",
            "failed to sync secret cache: timed out waiting for the condition",
        ),
        (
            "configMap: {name: cm, items: [{key: q, path: q}]}",
            "configmap references non-existent config key: q",
        ),
        (
            "secret: {secretName: s, items: [{key: q, path: q}]}",
            "references non-existent secret key: q",
        ),
        ("configMap: {name: bad}", "invalid path: must not contain '..': ../up"),
        ("configMap: {name: dots}", "invalid path: must not start with '..': ..data"),
        (
            "configMap: {name: cm, items: [{key: a, path: /etc/x}]}",
            "invalid path: must be relative path: /etc/x",
        ),
        (
            "downwardAPI: {items: [{path: x, fieldRef: {fieldPath: bad}}]}",
            "unsupported fieldPath: bad",
        ),
        (
            "projected: {sources: [{secret: {name: none}}, {configMap: {name: cm}}, {configMap: {name: none}}, \
             {secret: {name: none}}]}",
            "[secret \"none\" not found, configmap \"none\" not found]",
        ),
        (
            "projected: {sources: [{serviceAccountToken: {path: t, audience: vault, expirationSeconds: 3607}}]}",
            "failed to fetch token: serviceaccounts \"x\" not found",
        ),
        (
            "projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}",
            "ClusterTrustBundle projection is not supported in static kubelet mode",
        ),
        (
            "projected: {sources: [{podCertificate: {signerName: s, keyType: RSA, keyPath: k}}]}",
            "unimplemented",
        ),
    ] {
        assert_eq!(made(APP, volume), Err(expected.to_owned()), "{volume}");
    }
}
