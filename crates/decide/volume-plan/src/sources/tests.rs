//! What volumes need.

use super::*;
use crate::testing::{source, with_volume};

#[test]
fn objects_tokens_and_fields() {
    for (volume, expected) in [
        ("configMap: {name: a}", "configmap a"),
        ("secret: {secretName: a}", "secret a"),
        ("downwardAPI: {items: []}", "pod"),
        ("emptyDir: {}", ""),
        (
            "projected: {sources: [{secret: {name: s}}, {configMap: {name: c}}, {configMap: {name: c}}, \
             {downwardAPI: {}}, {serviceAccountToken: {path: t, expirationSeconds: 600}}, \
             {serviceAccountToken: {path: u, audience: vault}}]}",
            "configmap c, secret s, token None Some(600), token Some(\"vault\") None, pod",
        ),
    ] {
        let pod = with_volume("", volume);
        let PayloadSources { objects, tokens, uses_pod } = of(source(&pod));
        let mut all: Vec<String> =
            objects.iter().map(|(kind, name)| format!("{} {name}", kind.resource())).collect();
        all.extend(
            tokens
                .iter()
                .map(|key| format!("token {:?} {:?}", key.audience, key.expiration_seconds)),
        );
        all.extend(uses_pod.then(|| "pod".to_owned()));
        assert_eq!(all.join(", "), expected, "{volume}");
        assert_eq!(kind(source(&pod)).is_none(), expected.is_empty());
        assert_eq!(objects_of_pod(&pod), objects);
    }
}
