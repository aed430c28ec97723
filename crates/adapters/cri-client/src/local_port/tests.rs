//! Translation of the runtime's messages.

use super::*;

#[test]
fn the_container_pid_is_read_from_verbose_status_info() {
    for (info, expected) in [
        (r#"{"pid": 17, "sandboxID": "a"}"#, Some(17)),
        (r#"{"pid": 0}"#, None),
        (r#"{"pid": "17"}"#, None),
        (r#"{"pid": 99999999999}"#, None),
        (r#"{}"#, None),
        ("no json", None),
    ] {
        assert_eq!(process_in(info), expected, "{info}");
    }
}

#[test]
fn usage_belongs_to_a_pod_and_keeps_what_is_not_known_unknown() {
    let labels = [(POD_UID, "u"), (POD_NAME, "p"), (POD_NAMESPACE, "n")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let stats = v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: "c".to_owned(),
            metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            labels: labels.into(),
            ..v1::ContainerAttributes::default()
        }),
        cpu: Some(v1::CpuUsage {
            timestamp: 5,
            usage_core_nano_seconds: Some(v1::UInt64Value { value: 7 }),
            ..v1::CpuUsage::default()
        }),
        ..v1::ContainerStats::default()
    };
    let expected = LocalUsage {
        container_id: "c".to_owned(),
        name: "main".to_owned(),
        pod_namespace: "n".to_owned(),
        pod_name: "p".to_owned(),
        pod_uid: "u".to_owned(),
        at: 5,
        cpu_nanos: Some(7),
        memory_bytes: None,
        written_bytes: None,
    };
    assert_eq!(usage(stats), Some(expected));
    assert_eq!(usage(v1::ContainerStats::default()), None);
}
