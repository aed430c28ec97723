//! Laws of the whole: nothing panics, defaults settle at once, JSON comes back, pods stay small.

use document::diagnostic::Origin;
use proptest::prelude::*;

use crate::static_pod::SourceKind;
use crate::validation::tests::{plain_pod, set_all, typed};
use crate::{
    ListPolicy, PodGates, StaticPodSource, Strictness, apply_defaults, decode, prepare_for_create,
    read_static_pods, validate,
};

const VERDICTS: &str = include_str!("validation/tests/verdicts.txt");

/// The left sides of the table of verdicts, with whether they are taken.
fn assignments() -> Vec<(&'static str, bool)> {
    VERDICTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(" =>"))
        .map(|(left, right)| (left, right.trim().is_empty()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes, &Origin::Default, Strictness::Lenient, ListPolicy::PodOrList);
    }

    #[test]
    fn no_damage_to_a_manifest_panics(
        (row, at, byte) in (0..assignments().len(), any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let mut pod = plain_pod();
        set_all(&mut pod, assignments()[row].0);
        let mut bytes = pod.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let decoded = decode(&bytes, &Origin::Default, Strictness::Lenient, ListPolicy::OnePod);
        for manifest in decoded.pods {
            let mut pod = manifest.pod;
            apply_defaults(&mut pod, &PodGates::default());
            prepare_for_create(&mut pod, &PodGates::default());
            for diagnostic in validate(&pod, &PodGates::default()) {
                prop_assert!(!diagnostic.to_string().contains('\n'));
            }
        }
    }

    /// Rows of the table, several at once: the verdict changes only for the worse, defaults
    /// settle, and what is written reads back as the same pod.
    #[test]
    fn invariants_hold_on_mixed_rows(rows in prop::collection::vec(0..assignments().len(), 1..4)) {
        let table = assignments();
        let mut pod = plain_pod();
        for row in &rows {
            set_all(&mut pod, table[*row].0);
        }
        let pod = typed(&pod);
        let gates = PodGates::default();
        let mut once = pod.clone();
        apply_defaults(&mut once, &gates);
        let mut twice = once.clone();
        apply_defaults(&mut twice, &gates);
        prop_assert_eq!(&once, &twice);
        // Sources beyond the first are kept by name only, so they are not written.
        if once.spec.volumes.iter().all(|volume| volume.surplus.is_empty()) {
            let again = typed(&with_kind(&once));
            prop_assert_eq!(&again, &once);
            // Defaults refuse nothing that was sound with all of them written out.
            prop_assert_eq!(validate(&again, &gates), validate(&twice, &gates));
        }
    }
}

fn with_kind(pod: &pod_model::pod::Pod) -> serde_json::Value {
    let mut json = serde_json::to_value(pod).expect("JSON");
    json["apiVersion"] = "v1".into();
    json["kind"] = "Pod".into();
    json
}

#[test]
fn a_typical_pod_is_small() {
    let mut pod = plain_pod();
    set_all(
        &mut pod,
        r#"spec.containers[0].env=[{"name":"A_LONG_VARIABLE","value":"with a long value in it"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}] && spec.containers[0].livenessProbe={"httpGet":{"port":8080,"path":"/healthz"}} && spec.containers[0].readinessProbe={"httpGet":{"port":8080,"path":"/ready"}} && spec.containers[0].resources={"limits":{"cpu":"1","memory":"1Gi"}} && spec.containers[0].volumeMounts=[{"name":"dir","mountPath":"/data"},{"name":"host","mountPath":"/host"}] && spec.containers[1]={"name":"second","image":"registry.example.com/team/second:v1.2.3"} && spec.initContainers=[{"name":"proxy","image":"proxy:1","restartPolicy":"Always"}]"#,
    );
    let mut pod = typed(&pod);
    apply_defaults(&mut pod, &PodGates::default());
    let bytes = pod.total_bytes();
    assert!(bytes < 8 * 1024, "{bytes} bytes");
    assert!(bytes > 2 * 1024, "{bytes} bytes: the count misses something");
}

/// The tree with its places takes many times as much while the manifest is read, and goes with that.
#[test]
fn a_pod_of_a_large_manifest_keeps_only_its_own_size() {
    let value = "x".repeat(100);
    let mut text = "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\nspec:\n  containers:\n  \
                    - name: main\n    image: i:1\n    env:\n"
        .to_owned();
    for number in 0..8000 {
        text.push_str(&format!("    - {{name: N{number}, value: {value}}}\n"));
    }
    let source = StaticPodSource {
        node_name: "n",
        kind: SourceKind::File,
        strictness: Strictness::Lenient,
        gates: PodGates::default(),
    };
    let read = read_static_pods(text.as_bytes(), &Origin::Default, &source);
    let [pod] = read.pods.as_slice() else { panic!("{:?}", read.diagnostics) };
    let (bytes, given) = (pod.total_bytes(), text.len());
    assert!(bytes < given * 3 / 2, "{bytes} bytes of a manifest of {given}");
}
