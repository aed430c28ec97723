//! Pulls through the server from real registries: by tag, by digest, multi-platform, with a
//! password, over TLS with a private CA, through a mirror, in every compression.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cri_wire::v1;
use node_testkit::bed::{Bed, BedTest};
use node_testkit::images::{self, BuiltImage};
use node_testkit::start::{PASSWORD, RegistryOptions, RegistryServer, USER};
use serde_json::{Value, json};

use crate::server;
use crate::support::Cri;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
const REPOSITORY: &str = "tests/busybox";
/// A wrong password, which must not be logged either.
const WRONG: &str = "not-the-password-at-all";
/// The correct user and password, encoded as in docker's configuration file.
const ENCODED: &str = "YmVkOmJlZC1wYXNzd29yZA==";
const IDENTITY: &str = "an-identity-for-a-token-service";
const TOKEN: &str = "a-token-of-the-registry";

#[test]
fn registries_are_pulled_from() -> Result<()> {
    let built = images::busybox()?.named("registry.test/tests/busybox:1").build()?;
    let programs = server::build()?;
    BedTest::new().needs(RegistryServer::NEEDS).deadline(Duration::from_secs(240)).run(|bed| {
        let plain = RegistryServer::start(bed, RegistryOptions::default())?;
        let guarded = RegistryServer::start(
            bed,
            RegistryOptions { password: true, ..RegistryOptions::default() },
        )?;
        let secure = RegistryServer::start(bed, RegistryOptions { password: true, tls: true })?;
        let digests = push(plain.address(), &built)?;
        for other in [&guarded, &secure] {
            copy(bed, &plain, other)?;
        }
        let gate = RegistryGate::before(plain.address())?;
        // The highest log level, so that everything is logged.
        let keelson = server::CriServer::start_with_verbosity(bed, &programs, 10, |config, _| {
            let name = |host: &str| format!("{host}:{}", secure.address().port());
            config["registries"] = json!({
                "registry.test": { "mirrors": [plain.url()] },
                "gated.test": { "mirrors": [gate.url()], "mirrorsOnly": true },
                "lonely.test": { "mirrors": [guarded.url()], "mirrorsOnly": true },
                name("127.0.0.1"): { "certificates": secure.authority() },
                // The same registry, of which nothing is known.
                name("localhost"): { "plainHttp": false },
            });
        })?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let cri = Cri::connect(&keelson.socket(), bed.dir(), "registries").await?;
            from_the_plain_one(&cri, plain.address(), &digests).await?;
            two_at_once_are_one_pull(&cri, &gate, &digests).await?;
            with_passwords(&cri, guarded.address()).await?;
            over_tls(&cri, secure.address().port()).await?;
            in_other_forms(&cri, guarded.address()).await?;
            cri.clean().await;
            anyhow::Ok(())
        })?;
        log_contains_no_secret(&keelson.log_text()?, guarded.address())
    })
}

struct Digests {
    manifest: String,
    index: String,
    config: String,
}

async fn pull(
    cri: &Cri,
    image: &str,
    auth: Option<v1::AuthConfig>,
) -> Result<String, tonic::Status> {
    let image = Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() });
    let request = v1::PullImageRequest { image, auth, sandbox_config: None };
    Ok(Box::pin(cri.im().pull_image(request)).await?.into_inner().image_ref)
}

async fn remove(cri: &Cri, image: &str) -> Result<()> {
    let image = Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() });
    cri.im().remove_image(v1::RemoveImageRequest { image }).await?;
    Ok(())
}

async fn from_the_plain_one(cri: &Cri, address: SocketAddr, digests: &Digests) -> Result<()> {
    let at = |rest: &str| format!("{address}/{REPOSITORY}{rest}");
    let by_tag = pull(cri, &at(":1"), None).await?;
    ensure!(by_tag == digests.config, "{by_tag} is not {}", digests.config);
    remove(cri, &by_tag).await?;
    let by_digest = pull(cri, &at(&format!("@{}", digests.manifest)), None).await?;
    ensure!(by_digest == digests.config, "{by_digest}");
    remove(cri, &by_digest).await?;
    let several = at(":several");
    ensure!(pull(cri, &several, None).await? == digests.config);
    let image = Some(v1::ImageSpec { image: several, ..Default::default() });
    let request = v1::ImageStatusRequest { image, verbose: false };
    let known = cri.im().image_status(request).await?.into_inner().image.context("no image")?;
    ensure!(known.repo_digests == [at(&format!("@{}", digests.index))], "{known:?}");
    remove(cri, &digests.config).await?;
    // What is packed with zstd runs.
    let packed = at(":zstd");
    pull(cri, &packed, None).await?;
    let mut container = cri.container("echo pulled");
    container.image = Some(v1::ImageSpec { image: packed.clone(), ..Default::default() });
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!((code, output.as_str()) == (0, "pulled\n"), "{output:?}");
    cri.clean().await;
    remove(cri, &packed).await?;
    // A mirror answers for a registry that does not exist.
    let mirrored = pull(cri, "registry.test/tests/busybox:1", None).await?;
    ensure!(mirrored == digests.config);
    remove(cri, &mirrored).await?;
    for (missing, words) in
        [(at(":none"), "not found"), (at(&format!("@sha256:{}", "0".repeat(64))), "not found")]
    {
        let Err(status) = pull(cri, &missing, None).await else { bail!("{missing} was pulled") };
        ensure!(status.code() == tonic::Code::NotFound, "{status}");
        ensure!(status.message().contains(words), "{status}");
    }
    Ok(())
}

/// The second pull starts while the gate holds the first; nothing is requested twice.
async fn two_at_once_are_one_pull(cri: &Cri, gate: &RegistryGate, digests: &Digests) -> Result<()> {
    let image = format!("gated.test/{REPOSITORY}:several");
    let watching = async {
        gate.wait_for_request().await?;
        let second = pull(cri, &image, None);
        let open = async {
            // Sent after the second pull was received: they share one connection, in order.
            for _ in 0..10 {
                cri.rt().version(v1::VersionRequest::default()).await?;
            }
            gate.open();
            anyhow::Ok(())
        };
        let (two, opened) = tokio::join!(second, open);
        opened?;
        anyhow::Ok(two?)
    };
    let (one, two) = tokio::join!(pull(cri, &image, None), watching);
    ensure!(one? == digests.config && two? == digests.config);
    let asked = gate.asked();
    let layers = asked.iter().filter(|line| line.contains("/blobs/")).count();
    ensure!(layers >= 2, "a configuration and a layer: {asked:?}");
    let mut once = asked.clone();
    once.sort();
    once.dedup();
    ensure!(once.len() == asked.len(), "asked twice: {asked:?}");
    remove(cri, &digests.config).await
}

/// A proxy before a registry: it records requests, and passes none on until it is opened.
struct RegistryGate {
    address: SocketAddr,
    state: Arc<RegistryGateState>,
}

#[derive(Default)]
struct RegistryGateState {
    open: AtomicBool,
    asked: Mutex<Vec<String>>,
}

impl RegistryGate {
    fn before(registry: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let gate = Self { address: listener.local_addr()?, state: Arc::default() };
        let state = Arc::clone(&gate.state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                std::thread::spawn(move || state.pass(client, registry));
            }
        });
        Ok(gate)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> Vec<String> {
        self.state.asked().clone()
    }

    async fn wait_for_request(&self) -> Result<()> {
        let begun = std::time::Instant::now();
        while self.state.asked().is_empty() {
            ensure!(begun.elapsed() < Duration::from_secs(30), "nobody came");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    fn open(&self) {
        self.state.open.store(true, Ordering::SeqCst);
    }
}

impl RegistryGateState {
    fn asked(&self) -> MutexGuard<'_, Vec<String>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One request per connection.
    fn pass(&self, mut client: TcpStream, registry: SocketAddr) -> Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head)?;
        let mut lines = head.lines();
        let first = lines.next().context("a request")?;
        self.asked().push(first.to_owned());
        while !self.open.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let others = lines.filter(|line| {
            let name = line.split(':').next().unwrap_or_default().to_lowercase();
            !line.is_empty() && name != "connection" && name != "host"
        });
        let rest: String = others.map(|line| format!("{line}\r\n")).collect();
        let mut server = TcpStream::connect(registry)?;
        server.write_all(
            format!("{first}\r\nhost: {registry}\r\nconnection: close\r\n{rest}\r\n").as_bytes(),
        )?;
        std::io::copy(&mut server, &mut client)?;
        Ok(())
    }
}

fn login(user: &str, password: &str) -> Option<v1::AuthConfig> {
    Some(v1::AuthConfig {
        username: user.to_owned(),
        password: password.to_owned(),
        ..Default::default()
    })
}

async fn refused(cri: &Cri, image: &str, auth: Option<v1::AuthConfig>) -> Result<String> {
    match pull(cri, image, auth).await {
        Ok(_) => bail!("{image} was pulled"),
        Err(status) => Ok(status.message().to_owned()),
    }
}

async fn with_passwords(cri: &Cri, address: SocketAddr) -> Result<()> {
    let image = format!("{address}/{REPOSITORY}:1");
    for auth in [None, login(USER, WRONG)] {
        let why = refused(cri, &image, auth).await?;
        ensure!(why.contains("401"), "{why}");
    }
    // Credentials of another registry: not sent, so the pull is rejected.
    let mut elsewhere = login(USER, PASSWORD).unwrap_or_default();
    elsewhere.server_address = "https://elsewhere.test".to_owned();
    let why = refused(cri, &image, Some(elsewhere)).await?;
    ensure!(why.contains("401"), "{why}");
    let id = pull(cri, &image, login(USER, PASSWORD)).await?;
    remove(cri, &id).await?;
    let why = refused(cri, "lonely.test/tests/busybox:1", None).await?;
    ensure!(why.contains("401"), "{why}");
    let id = pull(cri, "lonely.test/tests/busybox:1", login(USER, PASSWORD)).await?;
    remove(cri, &id).await?;
    // With a server it is the host that is asked which counts, not the name of the image.
    let mut named = login(USER, PASSWORD).unwrap_or_default();
    named.server_address = "https://lonely.test".to_owned();
    let why = refused(cri, "lonely.test/tests/busybox:1", Some(named.clone())).await?;
    ensure!(why.contains("401"), "{why}");
    named.server_address = format!("http://{address}");
    let id = pull(cri, "lonely.test/tests/busybox:1", Some(named)).await?;
    remove(cri, &id).await
}

async fn in_other_forms(cri: &Cri, address: SocketAddr) -> Result<()> {
    let image = format!("{address}/{REPOSITORY}:1");
    let file = v1::AuthConfig { auth: ENCODED.to_owned(), ..Default::default() };
    let id = pull(cri, &image, Some(file)).await?;
    remove(cri, &id).await?;
    let identity = v1::AuthConfig { identity_token: IDENTITY.to_owned(), ..Default::default() };
    let token = v1::AuthConfig { registry_token: TOKEN.to_owned(), ..Default::default() };
    for auth in [identity, token] {
        let why = refused(cri, &image, Some(auth)).await?;
        ensure!(why.contains("401"), "{why}");
        ensure!(!why.contains(IDENTITY) && !why.contains(TOKEN), "{why}");
    }
    Ok(())
}

/// CVE-2020-8564 and -8563: no credentials at any log level.
fn log_contains_no_secret(log: &str, address: SocketAddr) -> Result<()> {
    ensure!(log.contains(&address.to_string()), "the log says nothing of pulls: nothing is shown");
    for secret in [PASSWORD, WRONG, IDENTITY, TOKEN, ENCODED] {
        let leaked = log.lines().find(|line| line.contains(secret));
        ensure!(leaked.is_none(), "{secret:?} is told: {leaked:?}");
    }
    Ok(())
}

async fn over_tls(cri: &Cri, port: u16) -> Result<()> {
    let at = |host: &str| format!("{host}:{port}/{REPOSITORY}:1");
    let why = refused(cri, &at("localhost"), login(USER, PASSWORD)).await?;
    ensure!(why.contains("TLS"), "{why}");
    let id = pull(cri, &at("127.0.0.1"), login(USER, PASSWORD)).await?;
    remove(cri, &id).await
}

/// Copies one registry's content to one with TLS or a password, which the push client lacks.
fn copy(bed: &Bed, from: &RegistryServer, to: &RegistryServer) -> Result<()> {
    let data = |registry: &RegistryServer| {
        bed.dir().join(format!("registry-{}", registry.address().port())).join("data")
    };
    copy_dir(&data(from), &data(to))
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &place)?;
        } else {
            std::fs::copy(entry.path(), &place)?;
        }
    }
    Ok(())
}

/// The image under its own manifest, in an index with another platform, and packed with zstd.
fn push(registry: SocketAddr, built: &BuiltImage) -> Result<Digests> {
    let packed = stored_as_zstd(&built.layer_tar.bytes);
    let packed_digest = digest(&packed);
    for (digest, bytes) in [
        (&built.config.digest, &built.config.bytes),
        (&built.layer.digest, &built.layer.bytes),
        (&packed_digest, &packed),
    ] {
        push_blob(registry, digest, bytes)?;
    }
    let manifest = &built.manifest;
    push_manifest(registry, "1", MANIFEST, &manifest.bytes)?;
    let mut with_zstd: Value = serde_json::from_slice(&manifest.bytes)?;
    with_zstd["layers"] =
        json!([{ "mediaType": ZSTD, "digest": packed_digest, "size": packed.len() }]);
    push_manifest(registry, "zstd", MANIFEST, with_zstd.to_string().as_bytes())?;
    // Of another machine: never fetched beyond its entry in the index.
    let mut foreign: Value = serde_json::from_slice(&manifest.bytes)?;
    foreign["annotations"] = json!({ "for": "another machine" });
    let foreign = foreign.to_string();
    push_manifest(registry, "foreign", MANIFEST, foreign.as_bytes())?;
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let entry = |digest: &str, size: usize, machine: &str| {
        json!({ "mediaType": MANIFEST, "digest": digest, "size": size,
                "platform": { "os": "linux", "architecture": machine } })
    };
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [
        entry(&digest(foreign.as_bytes()), foreign.len(), "s390x"),
        entry(&manifest.digest, manifest.bytes.len(), machine),
    ]})
    .to_string();
    push_manifest(registry, "several", INDEX, index.as_bytes())?;
    Ok(Digests {
        manifest: manifest.digest.clone(),
        index: digest(index.as_bytes()),
        config: built.config.digest.clone(),
    })
}

fn digest(bytes: &[u8]) -> String {
    image_store::Digest::of(bytes).to_string()
}

/// A zstd frame of blocks that are not compressed: valid, and needs no compressor.
fn stored_as_zstd(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    out.extend(u32::try_from(bytes.len()).unwrap_or_default().to_le_bytes());
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
    for (at, block) in blocks.iter().enumerate() {
        let last = u32::from(at + 1 == blocks.len());
        let header = last | (u32::try_from(block.len()).unwrap_or_default() << 3);
        out.extend(&header.to_le_bytes()[..3]);
        out.extend_from_slice(block);
    }
    out
}

fn push_blob(registry: SocketAddr, digest: &str, bytes: &[u8]) -> Result<()> {
    let begun = send(registry, "POST", &format!("/v2/{REPOSITORY}/blobs/uploads/"), "", &[])?;
    let location = begun
        .lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
        })
        .with_context(|| format!("no location in {begun:?}"))?;
    let path = location.find("/v2/").map_or(location.as_str(), |at| &location[at..]);
    let joint = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{joint}digest={}", digest.replace(':', "%3A"));
    send(registry, "PUT", &path, "application/octet-stream", bytes).map(drop)
}

fn push_manifest(registry: SocketAddr, tag: &str, kind: &str, bytes: &[u8]) -> Result<()> {
    send(registry, "PUT", &format!("/v2/{REPOSITORY}/manifests/{tag}"), kind, bytes).map(drop)
}

/// The head of the response; an HTTP error is an error.
fn send(registry: SocketAddr, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<String> {
    let limit = Duration::from_secs(30);
    let mut stream = TcpStream::connect_timeout(&registry, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let kind = if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\n") };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {registry}\r\nconnection: close\r\n\
         content-length: {}\r\n{kind}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    ensure!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
    Ok(answer)
}
