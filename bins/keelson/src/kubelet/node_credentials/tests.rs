//! A kubelet's files in every state that kubeadm and restarts leave them in.

use super::*;
use certificate_files::CertificateDir;
use node_config::{ConfigFiles, SourceFile, flags, load};
use ports::{CertificateStore as _, CertificateTemplate};

struct WrittenFiles {
    dir: tempfile::TempDir,
}

impl WrittenFiles {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn write_bootstrap(&self) {
        self.write("bootstrap.conf", &kubeconfig("token: abcdef.0123456789abcdef"));
    }

    fn store(&self) -> CertificateDir {
        CertificateDir::client(&self.dir.path().join("pki"))
    }

    /// The credentials of an agent with kubeadm's arguments.
    fn read(&self, rotates: bool) -> Result<ApiCredentials> {
        let arguments = [
            "--config=/config.yaml".to_owned(),
            format!("--bootstrap-kubeconfig={}", self.path("bootstrap.conf")),
            format!("--kubeconfig={}", self.path("kubelet.conf")),
            format!("--cert-dir={}", self.path("pki")),
        ];
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             failCgroupV1: false\nrotateCertificates: {rotates}\n"
        );
        let bytes = text.into_bytes();
        let files = ConfigFiles {
            config: Some(SourceFile { path: "/config.yaml".into(), bytes }),
            ..ConfigFiles::default()
        };
        let loaded = load(flags::parse(&arguments), &files);
        let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        Ok(node_credentials(&config)?.expect("a cluster"))
    }
}

fn kubeconfig(user: &str) -> String {
    format!(
        "kind: Config\ncurrent-context: c\nclusters:\n- name: a\n  \
         cluster: {{server: 'https://10.0.0.1:6443', certificate-authority-data: UEVN}}\n\
         contexts:\n- name: c\n  context: {{cluster: a, user: u}}\n\
         users:\n- name: u\n  user: {{{user}}}\n"
    )
}

/// A certificate for the key of a pending request of the store, valid for so many days from now.
fn pair(days: i64) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    let now = SystemTime::now();
    let day = std::time::Duration::from_hours(24);
    let end = match u32::try_from(days) {
        Ok(days) => now + day * days,
        Err(_) => now - day,
    };
    (params.not_before, params.not_after) = ((now - day * 2).into(), end.into());
    (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
}

#[test]
fn without_a_kubeconfig_one_is_written_that_names_the_certificate_to_come() {
    let files = WrittenFiles::new();
    files.write_bootstrap();
    let credentials = files.read(true).expect("credentials");
    let pem = files.store().current_path();
    assert_eq!(credentials.access.certificate, Some(from_file(&pem)));
    assert_eq!((&credentials.access.token, &credentials.access.exec), (&None, &None));
    assert_eq!(credentials.access.renewed_certificate, Some(pem.clone()));
    let managed = credentials.managed.expect("managed");
    assert!(managed.rotates && !managed.replace_now);
    assert!(managed.bootstrap.is_some_and(|access| access.token.is_some()));
    let written = fs::read_to_string(files.path("kubelet.conf")).expect("written");
    assert!(written.contains(&format!("client-certificate: {:?}", pem.display().to_string())));
    // The agent is restarted before the certificate has come: the same again.
    let again = files.read(true).expect("credentials");
    assert!(again.managed.expect("managed").bootstrap.is_some());
    // Without rotation it is requested all the same.
    let once = files.read(false).expect("credentials");
    let managed = once.managed.expect("managed");
    assert!(!managed.rotates && managed.bootstrap.is_some());
}

#[test]
fn a_valid_kubeconfig_needs_no_bootstrap_kubeconfig() {
    let files = WrittenFiles::new();
    let (certificate, key) = pair(1);
    files.write("a.crt", &certificate);
    files.write("a.key", &key);
    let user = kubeconfig("client-certificate: a.crt, client-key: a.key");
    files.write("kubelet.conf", &user);
    let credentials = files.read(true).expect("credentials");
    let managed = credentials.managed.expect("managed");
    assert!(managed.bootstrap.is_none() && !managed.replace_now);
    assert_eq!(fs::read_to_string(files.path("kubelet.conf")).expect("text"), user);
    assert!(files.read(false).expect("credentials").managed.is_none());
    // Expired, unreadable or not there: then it is needed.
    let (expired, key) = pair(-1);
    for certificate in [Some(expired.as_str()), Some("nothing"), None] {
        match certificate {
            Some(text) => files.write("a.crt", text),
            None => fs::remove_file(files.path("a.crt")).expect("removed"),
        }
        files.write("a.key", &key);
        let error = files.read(true).err().map(|error| format!("{error:#}"));
        let error = error.expect("no bootstrap kubeconfig");
        assert!(error.starts_with("unable to load bootstrap kubeconfig"), "{error}");
    }
    files.write_bootstrap();
    assert!(files.read(true).expect("credentials").managed.expect("managed").bootstrap.is_some());
}

#[tokio::test]
async fn a_certificate_inside_the_kubeconfig_is_taken_out_and_replaced() {
    use base64::Engine as _;
    let files = WrittenFiles::new();
    let (certificate, key) = pair(1);
    let data = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let user =
        format!("client-certificate-data: {}, client-key-data: {}", data(&certificate), data(&key));
    files.write("kubelet.conf", &kubeconfig(&user));
    let credentials = files.read(true).expect("credentials");
    assert!(credentials.managed.expect("managed").replace_now);
    let store = files.store();
    let current = store.current().await.expect("readable").expect("a certificate");
    assert_eq!(Some(&current), certificate_facts(certificate.as_bytes()).as_ref());
    // Once it is there it is not replaced with every start.
    assert!(!files.read(true).expect("credentials").managed.expect("managed").replace_now);
    let request = store.request(&CertificateTemplate::default()).await.expect("a request");
    assert_eq!(request.digest.len(), 64);
}
