//! Credentials as clients write them.

use super::*;

fn auth(change: impl FnOnce(&mut v1::AuthConfig)) -> v1::AuthConfig {
    let mut auth = v1::AuthConfig::default();
    change(&mut auth);
    auth
}

fn password(user: &str, password: &str) -> RegistryCredentials {
    RegistryCredentials::Password { user: user.into(), password: password.into() }
}

#[test]
fn credentials_come_in_four_forms() {
    let of = |auth: &v1::AuthConfig| credentials(auth).unwrap();
    let named = auth(|auth| {
        auth.username = "u".into();
        auth.password = "p".into();
    });
    assert_eq!(of(&named), password("u", "p"));
    assert_eq!(of(&auth(|auth| auth.auth = "dTpwOnE=".into())), password("u", "p:q"));
    let identity = of(&auth(|auth| auth.identity_token = "i".into()));
    assert_eq!(identity, RegistryCredentials::Identity { token: "i".into() });
    let token = of(&auth(|auth| auth.registry_token = "t".into()));
    assert_eq!(token, RegistryCredentials::Token { token: "t".into() });
    assert_eq!(of(&auth(|_| ())), RegistryCredentials::None);
    assert_eq!(login(None).unwrap(), Login::default());
    for wrong in ["%%", "dXNlcg=="] {
        let wrong = auth(|auth| auth.auth = wrong.into());
        assert!(credentials(&wrong).is_err());
    }
}

#[test]
fn a_server_goes_with_the_credentials() {
    for (server, expected) in [("", None), ("https://r.example/v1/", Some("https://r.example/v1/"))]
    {
        let auth = auth(|auth| {
            auth.username = "u".into();
            auth.server_address = server.into();
        });
        let found = login(Some(&auth)).unwrap();
        assert_eq!(found.credentials, password("u", ""));
        assert_eq!(found.server.as_deref(), expected);
    }
}
