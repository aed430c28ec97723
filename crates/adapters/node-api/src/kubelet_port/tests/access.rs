//! Callers with certificates, with tokens and with neither; with an API server and without.

use super::*;

const UNAUTHORIZED: (u16, &str) = (401, "Unauthorized");

fn same(answer: &(u16, String), expected: (u16, &str)) -> bool {
    answer.0 == expected.0 && answer.1 == expected.1
}

#[tokio::test]
async fn an_unauthenticated_caller_gets_401_for_every_path() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    for path in ["/healthz", "/pods", "/configz", "/metrics", "/exec/a/b/c", "/", "/nothing"] {
        let answer = fixture.get(path, None, None).await;
        assert!(same(&answer, UNAUTHORIZED), "{path}: {answer:?}");
        let answer = fixture.get(path, Some("bad"), None).await;
        assert!(same(&answer, UNAUTHORIZED), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn the_fine_subresource_is_asked_first_and_proxy_second() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    assert_eq!(fixture.get("/healthz", Some("reader"), None).await, (200, "ok".to_owned()));
    assert_eq!(fixture.get("/healthz/ping", Some("good"), None).await, (200, "ok".to_owned()));
    let requests: Vec<(Value, Value)> = fixture
        .reviewer
        .requests("SubjectAccessReview")
        .iter()
        .map(|spec| (spec["user"].clone(), spec["resourceAttributes"]["subresource"].clone()))
        .collect();
    let expected = [("reader", "healthz"), ("good", "healthz"), ("good", "proxy")];
    assert_eq!(requests, expected.map(|(user, sub)| (json!(user), json!(sub))));
    let forbidden = fixture.get("/pods", Some("reader"), None).await;
    let text = "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
    assert!(same(&forbidden, (403, text)), "{forbidden:?}");
    let forbidden = fixture.ask("POST", "/exec/a/b/c", Some("good"), None).await;
    let text = "Forbidden (user=good, verb=create, resource=nodes, subresource(s)=[proxy])\n";
    assert!(same(&forbidden, (403, text)), "{forbidden:?}");
}

#[tokio::test]
async fn a_review_has_upstreams_form_and_is_cached() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    for _ in 0..3 {
        assert_eq!(fixture.get("/configz", Some("good"), None).await.0, 200);
    }
    assert_eq!(fixture.reviewer.requests("TokenReview"), [json!({"token": "good"})]);
    let review = |subresource: &str| {
        json!({
            "user": "good", "uid": "", "groups": ["g", "system:authenticated"], "extra": {},
            "resourceAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes",
                "subresource": subresource, "name": "node-1",
            },
        })
    };
    let requests = fixture.reviewer.requests("SubjectAccessReview");
    assert_eq!(requests, [review("configz"), review("proxy")]);
    // A token that could not be reviewed is reviewed again; a rejected one is not.
    for (token, times) in [("passing", 2), ("bad", 1)] {
        for _ in 0..2 {
            assert_eq!(fixture.get("/configz", Some(token), None).await.0, 401);
        }
        let requests = fixture.reviewer.requests("TokenReview");
        let requests = requests.iter().filter(|spec| spec["token"] == token);
        assert_eq!(requests.count(), times, "{token}");
    }
}

#[tokio::test]
async fn certificates_are_judged_after_the_handshake() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    let admin = fixture.authority.client("admin", "ops");
    assert_eq!(fixture.get("/pods", None, Some(&admin)).await.0, 200);
    let requests = fixture.reviewer.requests("SubjectAccessReview");
    assert_eq!(requests[0]["groups"], json!(["ops", "system:authenticated"]));
    let id = requests[0]["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
    assert!(id.is_some_and(|id| id.len() == 75 && id.starts_with("X509SHA256=")), "{id:?}");
    // Of another authority with the same name: not authenticated, but no broken handshake.
    let other = PortTestAuthority::new("authority").client("admin", "system:masters");
    let answer = fixture.get("/pods", None, Some(&other)).await;
    assert!(same(&answer, UNAUTHORIZED), "{answer:?}");
    assert_eq!(fixture.get("/pods", Some("good"), Some(&other)).await.0, 200);
    // No name in it: the token is used.
    let nameless = fixture.authority.client("", "ops");
    assert_eq!(fixture.get("/pods", None, Some(&nameless)).await.0, 401);
    assert_eq!(fixture.get("/pods", Some("good"), Some(&nameless)).await.0, 200);
    // A valid certificate takes precedence over a bad token.
    assert_eq!(fixture.get("/pods", Some("bad"), Some(&admin)).await.0, 200);
}

#[tokio::test]
async fn a_certificate_without_its_key_or_form_authenticates_no_caller() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    let admin = fixture.authority.client("admin", "ops");
    // Bytes that are no certificate: treated like one of an unknown authority.
    let garbage = CertificateDer::from(vec![0x30, 0x03, 0x02, 0x01, 0x05]);
    let answer = fixture.ask("GET", "/pods", None, Some(shows(vec![garbage], &admin.key))).await;
    assert!(same(&answer, UNAUTHORIZED), "{answer:?}");
    // The certificate of another user, with a key of one's own.
    let wrong_key_client = fixture.authority.client("thief", "ops");
    let key_mismatch = shows(admin.chain.clone(), &wrong_key_client.key);
    let mut stream = fixture.connect(Some(key_mismatch)).await;
    let request = b"GET /pods HTTP/1.1\r\nhost: x\r\n\r\n";
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn a_caller_without_credentials_is_anonymous_and_one_with_invalid_ones_is_not() {
    let fixture = KubeletPortFixture::new(|settings| settings.anonymous = true).await;
    let forbidden = fixture.get("/configz", None, None).await;
    let text = "Forbidden (user=system:anonymous, verb=get, resource=nodes, \
                subresource(s)=[configz proxy])\n";
    assert!(same(&forbidden, (403, text)), "{forbidden:?}");
    assert_eq!(fixture.get("/configz", Some("bad"), None).await.0, 401);
    let unknown_client = PortTestAuthority::new("other").client("admin", "ops");
    assert_eq!(fixture.get("/configz", None, Some(&unknown_client)).await.0, 401);
    let requests = fixture.reviewer.requests("SubjectAccessReview");
    assert_eq!(requests[0]["groups"], json!(["system:unauthenticated"]));
}

#[tokio::test]
async fn where_everything_is_allowed_a_caller_must_still_be_known() {
    let allow = |settings: &mut KubeletPortSettings| {
        settings.authorization = AuthorizationMode::AlwaysAllow;
    };
    let fixture = KubeletPortFixture::new(allow).await;
    assert_eq!(fixture.get("/pods", None, None).await.0, 401);
    assert_eq!(fixture.get("/pods", Some("reader"), None).await.0, 200);
    assert!(fixture.reviewer.requests("SubjectAccessReview").is_empty());
    let no_tokens = KubeletPortFixture::new(|settings| {
        allow(settings);
        settings.reviews_tokens = false;
    })
    .await;
    assert_eq!(no_tokens.get("/pods", Some("good"), None).await.0, 401);
    assert!(no_tokens.reviewer.requests("TokenReview").is_empty());
}

#[tokio::test]
async fn without_an_api_server_only_the_configured_authority_counts() {
    let fixture = KubeletPortFixture::with_api(false, |settings| settings.anonymous = true).await;
    assert_eq!(fixture.get("/pods", None, None).await.0, 401);
    assert_eq!(fixture.get("/pods", Some("good"), None).await.0, 401);
    let master = fixture.authority.client("root", "system:masters");
    assert_eq!(fixture.get("/pods", None, Some(&master)).await.0, 200);
    let other = fixture.authority.client("other", "ops");
    assert_eq!(fixture.get("/pods", None, Some(&other)).await.0, 403);
    let unknown_client = PortTestAuthority::new("other").client("root", "system:masters");
    assert_eq!(fixture.get("/pods", None, Some(&unknown_client)).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn a_review_that_fails_or_hangs_is_an_error_and_slows_down_no_other_caller() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    let admin = fixture.authority.client("admin", "ops");
    assert_eq!(fixture.get("/healthz", Some("good"), None).await.0, 200);
    assert_eq!(fixture.get("/healthz", None, Some(&admin)).await.0, 200);
    fixture.reviewer.set(ReviewerBehaviour::Refuses);
    assert_eq!(fixture.get("/healthz", Some("other"), None).await.0, 401);
    let failed = fixture.get("/metrics", Some("good"), None).await;
    let text = "Authorization error (user=good, verb=get, resource=nodes, subresource=metrics)";
    assert!(same(&failed, (500, text)), "{failed:?}");
    fixture.reviewer.set(ReviewerBehaviour::Hangs);
    // More than may be reviewed at once, each with a token that is not known yet.
    let mut waiting = Vec::new();
    for number in 0..150 {
        let mut stream = fixture.connect(None).await;
        let head =
            format!("GET /pods HTTP/1.1\r\nhost: x\r\nauthorization: Bearer t{number}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("writes");
        waiting.push(stream);
    }
    let refused = fixture.get("/pods", Some("t-last"), None).await;
    assert_eq!(refused.0, 503, "{refused:?}");
    // Callers whose reviews are cached are answered all the same.
    let known = async {
        assert_eq!(fixture.get("/healthz", Some("good"), None).await.0, 200);
        assert_eq!(fixture.get("/healthz", None, Some(&admin)).await.0, 200);
    };
    timeout(Duration::from_secs(5), known).await.expect("is not held up");
    let mut status = [0; 12];
    timeout(Duration::from_secs(30), waiting[0].read_exact(&mut status))
        .await
        .expect("ends")
        .expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 401");
}

#[tokio::test(start_paused = true)]
async fn a_file_of_authorities_that_changed_counts_for_open_connections_too() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    let file = fixture.dir.path().join("ca.crt");
    let admin = fixture.authority.client("admin", "ops");
    let mut stream = fixture.connect(Some(resolver(&admin))).await;
    assert_eq!(request(&mut stream, "GET", "/pods", None).await.0, 200);
    let next = PortTestAuthority::new("the next authority");
    let next_admin = next.client("admin", "ops");
    assert_eq!(fixture.get("/pods", None, Some(&next_admin)).await.0, 401);
    fs::write(&file, format!("{}{}", fixture.authority.pem, next.pem)).expect("written");
    tokio::time::sleep(RELOAD_PERIOD * 2).await;
    assert_eq!(fixture.get("/pods", None, Some(&next_admin)).await.0, 200);
    assert_eq!(request(&mut stream, "GET", "/pods", None).await.0, 200);
    // If a file cannot be read, the old content stays in use.
    fs::write(&file, "nothing").expect("written");
    tokio::time::sleep(RELOAD_PERIOD * 2).await;
    assert_eq!(request(&mut stream, "GET", "/pods", None).await.0, 200);
    fs::write(&file, &next.pem).expect("written");
    tokio::time::sleep(RELOAD_PERIOD * 2).await;
    assert_eq!(request(&mut stream, "GET", "/pods", None).await.0, 401);
    assert_eq!(fixture.get("/pods", None, Some(&next_admin)).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_port_whose_certificate_is_not_signed_yet_opens_no_connection() {
    let pki = tempfile::tempdir().expect("a directory");
    let pair = pki.path().join("kubelet-server-current.pem");
    let source = CertificateSource::Signed { pair: pair.clone(), until_then: None };
    let fixture = KubeletPortFixture::new(|settings| settings.tls.source = source).await;
    let mut stream = TcpStream::connect(fixture.address).await.expect("connects");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(answer, b"");
    let key = KeyPair::generate().expect("key");
    let signed = CertificateParams::new(vec!["node-1".to_owned()]).expect("params");
    let signed = signed.self_signed(&key).expect("certificate").pem();
    fs::write(&pair, format!("{signed}{}", key.serialize_pem())).expect("written");
    tokio::time::sleep(RELOAD_PERIOD * 2).await;
    assert_eq!(fixture.get("/healthz", Some("good"), None).await.0, 200);
}

#[tokio::test]
async fn a_path_has_one_authorization_however_it_is_encoded() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    assert_eq!(fixture.get("/%68ealthz", Some("reader"), None).await, (200, "ok".to_owned()));
    for path in ["/healthz/../pods", "/healthz/%2e%2e/pods", "/healthz//ping", "/healthz%00"] {
        let answer = fixture.get(path, Some("reader"), None).await;
        assert!(answer.0 == 404 || answer.0 == 403, "{path}: {answer:?}");
    }
}
