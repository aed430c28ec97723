//! Secrets of both formats, and what is no login.

use super::*;
use crate::contents::ContentChangeStrategy;
use pod_model::pod::volume::NamedReference;
use ports::ContentData;
use runtime_fake::{FakeContents, FakeHost};

fn secret(kind: &str, key: &str, text: &str) -> ContentObject {
    ContentObject {
        uid: format!("uid of {key}"),
        secret_type: kind.to_owned(),
        data: ContentData([(key.to_owned(), text.as_bytes().to_vec())].into()),
        ..ContentObject::default()
    }
}

#[tokio::test(start_paused = true)]
async fn logins_of_secrets() {
    let contents = FakeContents::default();
    let new = r#"{"auths": {"registry.test": {"username": "new", "password": "p<"}}}"#;
    let old = r#"{"registry.test": {"username": "old", "password": "p"}}"#;
    let objects = [
        ("new", secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", new)),
        ("old", secret("kubernetes.io/dockercfg", ".dockercfg", old)),
        ("other", secret("Opaque", ".dockerconfigjson", new)),
        ("broken", secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "hunter2")),
        ("empty", secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "")),
    ];
    for (name, object) in objects {
        contents.put_object(&format!("Secret shop/{name}"), object);
    }
    contents.hang("Secret shop/slow");
    let store = PodContentStore::new(Arc::new(contents), ContentChangeStrategy::Watch);
    let logins = PodLogins::new(store, Arc::new(FakeHost::default()));
    for (names, image, users, missing) in [
        (&["new", "old"][..], "registry.test/app:1", "new,old", ""),
        (&["new"], "docker.io/library/app:1", "", ""),
        (&["other", "broken", "empty", ""], "registry.test/app:1", "", ""),
        (&["gone", "slow", "old"], "registry.test/app:1", "old", "gone,slow"),
        (&["gone", "old"], "registry.test/app:1", "old", "gone"),
    ] {
        let mut pod = Pod::default();
        pod.metadata.namespace = "shop".into();
        pod.spec.image_pull_secrets =
            names.iter().map(|name| NamedReference { name: (*name).into() }).collect();
        let found = logins.for_image(&pod, image).await;
        let known: Vec<&str> = found.logins.iter().map(|own| own.login.username.as_str()).collect();
        assert_eq!(
            (known.join(","), found.missing.join(",")),
            (users.into(), missing.into()),
            "{names:?}"
        );
        for own in &found.logins {
            let CredentialOwner::Secret(owner) = &own.owner else { panic!("{own:?}") };
            assert_eq!((owner.namespace.as_str(), &owner.uid[..7]), ("shop", "uid of "));
        }
    }
}

#[test]
fn the_text_that_is_hashed_is_gos() {
    let login = RegistryLogin {
        username: "u".into(),
        password: "<p&\">".into(),
        server_address: "r".into(),
        ..RegistryLogin::default()
    };
    let text = r#"{"username":"u","password":"\u003cp\u0026\"\u003e","serveraddress":"r"}"#;
    assert_eq!(hashed_form(&login), text);
}
