//! Variables from every source, in their order.

use super::*;
use crate::contents::Contents;
use crate::inputs::ReadyVolume;
use crate::testing::{first, node, one, texts};
use ports::{ContentData, ContentError};

fn facts() -> ContainerSetupInputs {
    let data = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        let data = pairs.map(|(key, value)| ((*key).into(), value.as_bytes().into())).collect();
        Ok(ContentData(data))
    };
    ContainerSetupInputs {
        pod_ips: texts(&["10.0.0.7"]),
        contents: [
            ((ContentKind::ConfigMap, "cm".into()), data(&[("B", "cm-b"), ("A", "cm-a")])),
            ((ContentKind::Secret, "s".into()), data(&[("A", "secret-a"), ("P", "pass")])),
            ((ContentKind::Secret, "none".into()), Err(ContentError::NotFound)),
            ((ContentKind::ConfigMap, "none".into()), Err(ContentError::NotFound)),
        ]
        .into(),
        ..ContainerSetupInputs::default()
    }
}

fn made_with(container: &str, facts: &ContainerSetupInputs) -> Result<String, String> {
    let pod = one(container);
    let source = EnvironmentSource { pod: &pod, container: first(&pod), node: &node(), facts };
    let variables = make(&source).map_err(|error| error.to_string())?;
    let shown: Vec<String> =
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(shown.join(" "))
}

fn made(container: &str) -> Result<String, String> {
    made_with(container, &facts())
}

#[test]
fn variables() {
    for (container, expected) in [
        ("", ""),
        ("env: [{name: X, value: v}]", "X=v"),
        ("env: [{name: X}]", "X="),
        (
            "env: [{name: X, value: a}, {name: U, value: \"$(X)$(Z)\"}, {name: Z, value: c}]",
            "X=a U=a$(Z) Z=c",
        ),
        ("env: [{name: X, value: a}, {name: U, value: \"$$(X)\"}]", "X=a U=$(X)"),
        (
            "env: [{name: X, value: a}, {name: U, value: b}, {name: X, value: \"$(X)c\"}]",
            "X=ac U=b",
        ),
        ("env: [{name: X, value: \"$(X)\"}]", "X=$(X)"),
        ("envFrom: [{configMapRef: {name: cm}}]", "A=cm-a B=cm-b"),
        ("envFrom: [{prefix: p_, configMapRef: {name: cm}}]", "p_A=cm-a p_B=cm-b"),
        (
            "envFrom: [{configMapRef: {name: cm}}, {secretRef: {name: s}}]",
            "A=secret-a B=cm-b P=pass",
        ),
        ("envFrom: [{secretRef: {name: s}}], env: [{name: A, value: own}]", "A=own P=pass"),
        (
            "envFrom: [{secretRef: {name: s}}], env: [{name: X, value: \"$(P)!\"}]",
            "A=secret-a P=pass X=pass!",
        ),
        ("envFrom: [{secretRef: {name: none, optional: true}}, {}]", ""),
        ("env: [{name: X, valueFrom: {configMapKeyRef: {name: cm, key: A}}}]", "X=cm-a"),
        ("env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: P}}}]", "X=pass"),
        (
            "env: [{name: X, valueFrom: {secretKeyRef: {name: none, key: P, optional: true}}}, {name: U, value: \"$(X)\"}]",
            "U=$(X)",
        ),
        ("env: [{name: X, value: v, valueFrom: {secretKeyRef: {name: unread, key: P}}}]", "X=v"),
        (
            "env: [{name: X, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]",
            "X=web",
        ),
        (
            "env: [{name: X, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}]",
            "X=10.0.0.7",
        ),
        ("env: [{name: X, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]", "X=4"),
        ("env: [{name: X, valueFrom: {}}]", "X="),
    ] {
        assert_eq!(made(container).as_deref(), Ok(expected), "{container}");
    }
}

#[test]
fn setup_errors() {
    for (container, expected) in [
        ("envFrom: [{secretRef: {name: none}}]", "secret \"none\" not found"),
        ("envFrom: [{configMapRef: {name: none}}]", "configmap \"none\" not found"),
        (
            "env: [{name: X, valueFrom: {configMapKeyRef: {name: cm, key: Q}}}]",
            "couldn't find key Q in ConfigMap shop/cm",
        ),
        (
            "env: [{name: X, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.containers}}}]",
            "field label not supported: spec.containers",
        ),
        (
            "env: [{name: X, valueFrom: {resourceFieldRef: {resource: limits.gold}}}]",
            "unsupported container resource : limits.gold",
        ),
        (
            "env: [{name: X, valueFrom: {fileKeyRef: {volumeName: gone, path: p, key: K}}}]",
            "cannot find the volume \"gone\" referenced by FileKeyRef",
        ),
    ] {
        assert_eq!(made(container), Err(expected.to_owned()), "{container}");
    }
    let mut alone = facts();
    let no_content_source = Err(ContentError::NoSource("nobody is here".into()));
    alone.contents = Contents::from([((ContentKind::ConfigMap, "cm".into()), no_content_source)]);
    let container = "envFrom: [{configMapRef: {name: cm}}]";
    let text = "couldn't get configMap shop/cm, no kubeClient defined: nobody is here";
    assert_eq!(made_with(container, &alone), Err(text.to_owned()));
    let container = "envFrom: [{configMapRef: {name: cm, optional: true}}]";
    assert_eq!(made_with(container, &alone), Ok(String::new()));
}

#[test]
fn services_can_be_referred_to_and_come_last() {
    let mut facts = facts();
    facts.service_environment =
        [("SVC_HOST", "10.9.9.9"), ("TAKEN", "service")].map(|(a, b)| (a.into(), b.into())).into();
    facts.given.env = vec![("GPU".into(), "0".into())];
    let container = "env: [{name: X, value: \"$(SVC_HOST):1\"}, {name: TAKEN, value: own}]";
    let expected = "GPU=0 X=10.9.9.9:1 TAKEN=own SVC_HOST=10.9.9.9";
    assert_eq!(made_with(container, &facts).as_deref(), Ok(expected));
}

#[test]
fn files_of_variables() {
    let mut facts = facts();
    let path = "/pods/u/volumes/v".to_owned();
    facts.volumes.insert("v".into(), ReadyVolume { path, ..ReadyVolume::default() });
    facts.env_files.insert(("v".into(), "p".into()), b"K='file'\n".to_vec());
    facts.env_files.insert(("v".into(), "bad".into()), b"K=file\n".to_vec());
    let reference = |path: &str, key: &str, more: &str| {
        format!(
            "env: [{{name: X, valueFrom: {{fileKeyRef: {{volumeName: v, path: {path}, key: {key}{more}}}}}}}]"
        )
    };
    for (container, expected) in [
        (reference("p", "K", ""), Ok("X=file")),
        (reference("p", "Q", ", optional: true"), Ok("")),
        (
            reference("p", "Q", ""),
            Err("environment variable key \"Q\" not found in file \"/pods/u/volumes/v/p\""),
        ),
        (reference("bad", "K", ""), Err("couldn't parse env file")),
        (reference("absent", "K", ", optional: true"), Err("couldn't parse env file")),
    ] {
        let outcome = made_with(&container, &facts);
        assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{container}");
    }
    let pod = one(&reference("p", "K", ""));
    assert_eq!(wanted_files(first(&pod)), [("v".to_owned(), "p".to_owned())]);
    let mut without = node();
    without.gates.env_files = false;
    let source =
        EnvironmentSource { pod: &pod, container: first(&pod), node: &without, facts: &facts };
    assert_eq!(make(&source), Ok(vec![("X".to_owned(), String::new())]));
}
