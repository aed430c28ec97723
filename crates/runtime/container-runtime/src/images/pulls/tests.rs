//! Credentials as callers write them.

use super::*;

fn auth(change: impl FnOnce(&mut v1::AuthConfig)) -> v1::AuthConfig {
    let mut auth = v1::AuthConfig::default();
    change(&mut auth);
    auth
}

fn password(user: &str, password: &str) -> Credentials {
    Credentials::Password { user: user.into(), password: password.into() }
}

#[test]
fn credentials_come_in_four_forms() {
    let of = |auth: &v1::AuthConfig| credentials(Some(auth), "r.example").unwrap();
    let named = auth(|auth| {
        auth.username = "u".into();
        auth.password = "p".into();
    });
    assert_eq!(of(&named), password("u", "p"));
    assert_eq!(of(&auth(|auth| auth.auth = "dTpwOnE=".into())), password("u", "p:q"));
    let identity = of(&auth(|auth| auth.identity_token = "i".into()));
    assert_eq!(identity, Credentials::Identity { token: "i".into() });
    let token = of(&auth(|auth| auth.registry_token = "t".into()));
    assert_eq!(token, Credentials::Token { token: "t".into() });
    assert_eq!(of(&auth(|_| ())), Credentials::None);
    assert_eq!(credentials(None, "r").unwrap(), Credentials::None);
    for wrong in ["%%", "dXNlcg=="] {
        let wrong = auth(|auth| auth.auth = wrong.into());
        assert!(credentials(Some(&wrong), "r").is_err());
    }
}

#[test]
fn credentials_for_another_server_are_not_used() {
    for (server, registry, used) in [
        ("", "r.example", true),
        ("r.example", "r.example", true),
        ("https://r.example/v1/", "r.example", true),
        ("https://index.docker.io/v1/", "docker.io", true),
        ("other.example", "r.example", false),
        ("r.example", "r.example:5000", false),
    ] {
        let auth = auth(|auth| {
            auth.username = "u".into();
            auth.server_address = server.into();
        });
        let found = credentials(Some(&auth), registry).unwrap();
        assert_eq!(found != Credentials::None, used, "{server} for {registry}");
    }
}
