//! What is filled in, by table: assignments on the plain pod, then what a field has become.

use serde_json::Value;

use crate::validation::tests::{plain_pod, set_all, typed};
use crate::{PodGates, apply_defaults};

fn defaulted(assignments: &str) -> Value {
    let mut pod = plain_pod();
    if !assignments.is_empty() {
        set_all(&mut pod, assignments);
    }
    let mut pod = typed(&pod);
    apply_defaults(&mut pod, &PodGates::default());
    let once = pod.clone();
    apply_defaults(&mut pod, &PodGates::default());
    assert_eq!(pod, once, "{assignments}: twice is not once");
    serde_json::to_value(&pod).expect("JSON")
}

/// What is set on the plain pod, where to look, what is there.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("", "/spec/restartPolicy", r#""Always""#),
    ("", "/spec/dnsPolicy", r#""ClusterFirst""#),
    ("", "/spec/schedulerName", r#""default-scheduler""#),
    ("", "/spec/terminationGracePeriodSeconds", "30"),
    ("spec.terminationGracePeriodSeconds=0", "/spec/terminationGracePeriodSeconds", "0"),
    ("spec.terminationGracePeriodSeconds=-5", "/spec/terminationGracePeriodSeconds", "1"),
    ("", "/spec/securityContext", "{}"),
    ("", "/spec/enableServiceLinks", "true"),
    ("spec.enableServiceLinks=false", "/spec/enableServiceLinks", "false"),
    ("", "/spec/containers/0/imagePullPolicy", r#""IfNotPresent""#),
    (r#"spec.containers[0].image="a""#, "/spec/containers/0/imagePullPolicy", r#""Always""#),
    (r#"spec.containers[0].image="A""#, "/spec/containers/0/imagePullPolicy", r#""IfNotPresent""#),
    ("", "/spec/containers/0/terminationMessagePath", r#""/dev/termination-log""#),
    ("", "/spec/containers/0/terminationMessagePolicy", r#""File""#),
    ("", "/spec/containers/0/resources", "{}"),
    ("", "/spec/volumes/1/hostPath/type", r#""""#),
    (r#"spec.volumes[3]={"name":"n"}"#, "/spec/volumes/3/emptyDir", "{}"),
    (
        r#"spec.volumes[3]={"name":"n","secret":{"secretName":"s"}}"#,
        "/spec/volumes/3/secret/defaultMode",
        "420",
    ),
    (
        r#"spec.volumes[3]={"name":"n","configMap":{"name":"s"}}"#,
        "/spec/volumes/3/configMap/defaultMode",
        "420",
    ),
    (
        r#"spec.volumes[3]={"name":"n","downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.name"}}]}}"#,
        "/spec/volumes/3/downwardAPI",
        r#"{"items":[{"path":"p","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}],"defaultMode":420}"#,
    ),
    (
        r#"spec.volumes[3]={"name":"n","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}"#,
        "/spec/volumes/3/projected",
        r#"{"sources":[{"serviceAccountToken":{"expirationSeconds":3600,"path":"t"}}],"defaultMode":420}"#,
    ),
    (
        r#"spec.volumes[3]={"name":"n","image":{"reference":"a:latest"}}"#,
        "/spec/volumes/3/image/pullPolicy",
        r#""Always""#,
    ),
    (
        r#"spec.volumes[3]={"name":"n","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}"#,
        "/spec/volumes/3/ephemeral/volumeClaimTemplate/spec/volumeMode",
        r#""Filesystem""#,
    ),
    (
        r#"spec.volumes[3]={"name":"n","iscsi":{"targetPortal":"a","iqn":"i","lun":0}}"#,
        "/spec/volumes/3/iscsi/iscsiInterface",
        r#""default""#,
    ),
    (
        r#"spec.volumes[3]={"name":"n","rbd":{"monitors":["m"],"image":"i"}}"#,
        "/spec/volumes/3/rbd",
        r#"{"monitors":["m"],"image":"i","pool":"rbd","user":"admin","keyring":"/etc/ceph/keyring"}"#,
    ),
    (
        r#"spec.volumes[3]={"name":"n","azureDisk":{"diskName":"d","diskURI":"u"}}"#,
        "/spec/volumes/3/azureDisk",
        r#"{"diskName":"d","diskURI":"u","cachingMode":"ReadWrite","fsType":"ext4","readOnly":false,"kind":"Shared"}"#,
    ),
    (
        r#"spec.containers[0].ports=[{"containerPort":1}]"#,
        "/spec/containers/0/ports/0/protocol",
        r#""TCP""#,
    ),
    (
        r#"spec.hostNetwork=true && spec.containers[0].ports=[{"containerPort":1}]"#,
        "/spec/containers/0/ports/0/hostPort",
        "1",
    ),
    (
        r#"spec.hostNetwork=true && spec.initContainers=[{"name":"i","image":"i","ports":[{"containerPort":2}]}]"#,
        "/spec/initContainers/0/ports/0/hostPort",
        "2",
    ),
    (
        r#"spec.containers[0].livenessProbe={"httpGet":{"port":1}}"#,
        "/spec/containers/0/livenessProbe",
        r#"{"httpGet":{"path":"/","port":1,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}"#,
    ),
    (
        r#"spec.containers[0].startupProbe={"grpc":{"port":1},"failureThreshold":9}"#,
        "/spec/containers/0/startupProbe",
        r#"{"grpc":{"port":1,"service":""},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":9}"#,
    ),
    (
        r#"spec.containers[0].lifecycle={"preStop":{"httpGet":{"port":"web"}}}"#,
        "/spec/containers/0/lifecycle/preStop/httpGet",
        r#"{"path":"/","port":"web","scheme":"HTTP"}"#,
    ),
    (
        r#"spec.containers[0].env=[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]"#,
        "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion",
        r#""v1""#,
    ),
    (
        r#"spec.containers[0].env=[{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"dir","path":"p","key":"k"}}}]"#,
        "/spec/containers/0/env/0/valueFrom/fileKeyRef/optional",
        "false",
    ),
    (
        r#"spec.containers[0].resources={"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}"#,
        "/spec/containers/0/resources/requests",
        r#"{"cpu":"500m","memory":"1Gi"}"#,
    ),
    (
        r#"spec.containers[0].resources={"requests":{"cpu":"1n"}}"#,
        "/spec/containers/0/resources/requests/cpu",
        r#""1m""#,
    ),
    (r#"spec.serviceAccount="a""#, "/spec/serviceAccountName", r#""a""#),
    (r#"spec.serviceAccountName="a""#, "/spec/serviceAccount", r#""a""#),
    (
        r#"spec.resources={"limits":{"cpu":"2"}} && spec.containers[0].resources={"requests":{"cpu":"1","memory":"1Gi"}}"#,
        "/spec/resources/requests",
        r#"{"cpu":"1","memory":"1Gi"}"#,
    ),
    (r#"spec.resources={"limits":{"cpu":"2"}}"#, "/spec/resources/requests", r#"{"cpu":"2"}"#),
    (
        r#"spec.resources={"requests":{"cpu":"2"}} && spec.containers[0].resources={"limits":{"hugepages-2Mi":"4Mi"}}"#,
        "/spec/resources",
        r#"{"limits":{"hugepages-2Mi":"4Mi"},"requests":{"cpu":"2","hugepages-2Mi":"4Mi"}}"#,
    ),
    (
        r#"metadata.annotations={"pod.beta.kubernetes.io/init-containers":"x"}"#,
        "/metadata",
        r#"{"name":"plain","namespace":"default"}"#,
    ),
];

#[test]
fn defaults() {
    for (assignments, pointer, expected) in DEFAULTS {
        let pod = defaulted(assignments);
        let expected: Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(pod.pointer(pointer), Some(&expected), "{assignments} {pointer}");
    }
}
