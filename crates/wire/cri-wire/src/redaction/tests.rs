//! Credentials never reach a log, not even through the messages that contain them.

use prost::Message;

use crate::v1::{AuthConfig, ImageSpec, PullImageRequest};

fn credentials() -> AuthConfig {
    AuthConfig {
        username: "someone".into(),
        password: "s3cret-password".into(),
        auth: "s3cret-auth".into(),
        server_address: "registry.example".into(),
        identity_token: "s3cret-identity".into(),
        registry_token: "s3cret-registry".into(),
    }
}

#[test]
fn debug_output_shows_user_and_server_but_no_secret() {
    let request = PullImageRequest {
        image: Some(ImageSpec { image: "busybox".into(), ..Default::default() }),
        auth: Some(credentials()),
        sandbox_config: None,
    };
    let text = format!("{request:?}");
    assert!(text.contains("someone") && text.contains("registry.example"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn encoded_messages_still_contain_the_secrets() {
    let bytes = credentials().encode_to_vec();
    let decoded = AuthConfig::decode(bytes.as_slice()).expect("own bytes decode");
    assert_eq!(decoded, credentials());
    // Field 2, length-delimited, is the password, by the CRI definition.
    let password = b"\x12\x0fs3cret-password";
    assert!(bytes.windows(password.len()).any(|window| window == password));
}
