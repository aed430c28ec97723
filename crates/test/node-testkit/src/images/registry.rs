//! Pushes images to a plain-HTTP registry on loopback, and lists what it holds.
//!
//! The rule: one request per connection, every one with a deadline, and nothing is believed but the
//! status that the registry answers. Only for the test registry: no TLS, no credentials, no redirects,
//! and addresses other than loopback are refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::TestImage;
use super::build::{Blob, CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, descriptor};

const DEADLINE: Duration = Duration::from_secs(60);
/// Responses are lists and errors; a larger one is refused.
const MAX_RESPONSE: u64 = 4 << 20;

/// Pushes the image under its repository and tag; returns the manifest's digest.
pub fn push(registry: SocketAddr, image: &TestImage) -> Result<String> {
    let built = image.build()?;
    let reference = image.reference()?;
    for blob in [&built.config, &built.layer] {
        push_blob(registry, reference.repository, blob)
            .with_context(|| format!("pushing {} of {} to {registry}", blob.digest, built.name))?;
    }
    let path = format!("/v2/{}/manifests/{}", reference.repository, reference.tag);
    let put = RegistryRequest {
        method: "PUT",
        path: &path,
        body: &built.manifest.bytes,
        kind: MANIFEST_TYPE,
    };
    put.send(registry)?.expect(201)?;
    Ok(built.manifest.digest)
}

/// Pushes one image whose layers are those of the given images, the lowest first; its name and
/// configuration are the first one's. Returns the manifest's digest.
pub fn push_stack(registry: SocketAddr, stack: &[TestImage]) -> Result<String> {
    let first = stack.first().context("an image of no layers")?;
    let reference = first.reference()?;
    let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
    let mut config = Value::Null;
    for (at, image) in stack.iter().enumerate() {
        let built = image.build()?;
        push_blob(registry, reference.repository, &built.layer)?;
        layers.push(descriptor(LAYER_TYPE, &built.layer));
        diff_ids.push(built.layer_tar.digest);
        if at == 0 {
            config = serde_json::from_slice(&built.config.bytes)?;
        }
    }
    config["rootfs"]["diff_ids"] = json!(diff_ids);
    let config = Blob::new(serde_json::to_vec(&config)?);
    push_blob(registry, reference.repository, &config)?;
    let manifest = Blob::new(serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, &config),
        "layers": layers,
    }))?);
    let path = format!("/v2/{}/manifests/{}", reference.repository, reference.tag);
    let put =
        RegistryRequest { method: "PUT", path: &path, body: &manifest.bytes, kind: MANIFEST_TYPE };
    put.send(registry)?.expect(201)?;
    Ok(manifest.digest)
}

/// The repositories that the registry holds.
pub fn repositories(registry: SocketAddr) -> Result<Vec<String>> {
    listed(registry, "/v2/_catalog?n=1000", "repositories")
}

/// The tags of one repository.
pub fn tags(registry: SocketAddr, repository: &str) -> Result<Vec<String>> {
    listed(registry, &format!("/v2/{repository}/tags/list"), "tags")
}

fn listed(registry: SocketAddr, path: &str, field: &str) -> Result<Vec<String>> {
    let answer =
        RegistryRequest { method: "GET", path, body: &[], kind: "" }.send(registry)?.expect(200)?;
    let value: Value = serde_json::from_slice(&answer.body)
        .with_context(|| format!("{path} of {registry}: expected JSON"))?;
    let list = value[field]
        .as_array()
        .with_context(|| format!("{path} of {registry}: no list {field:?} in {value}"))?;
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn push_blob(registry: SocketAddr, repository: &str, blob: &Blob) -> Result<()> {
    let path = format!("/v2/{repository}/blobs/{}", blob.digest);
    if (RegistryRequest { method: "HEAD", path: &path, body: &[], kind: "" }).send(registry)?.status
        == 200
    {
        return Ok(());
    }
    let path = format!("/v2/{repository}/blobs/uploads/");
    let begun = RegistryRequest { method: "POST", path: &path, body: &[], kind: "" }
        .send(registry)?
        .expect(202)?;
    let location = begun.header("location").context("the registry gave no upload location")?;
    let place = upload_path(location)?;
    let joint = if place.contains('?') { '&' } else { '?' };
    let path = format!("{place}{joint}digest={}", blob.digest.replace(':', "%3A"));
    RegistryRequest {
        method: "PUT",
        path: &path,
        body: &blob.bytes,
        kind: "application/octet-stream",
    }
    .send(registry)?
    .expect(201)?;
    Ok(())
}

/// A location is a path, or a whole address whose host is the one that we talk to anyway.
pub(super) fn upload_path(location: &str) -> Result<&str> {
    if location.starts_with('/') {
        return Ok(location);
    }
    let rest = location
        .strip_prefix("http://")
        .with_context(|| format!("upload location {location:?}: expected a path or http://"))?;
    let slash = rest.find('/').with_context(|| format!("upload location {location:?}: no path"))?;
    Ok(&rest[slash..])
}

struct RegistryRequest<'a> {
    method: &'a str,
    path: &'a str,
    body: &'a [u8],
    /// The body's media type; empty when there is none.
    kind: &'a str,
}

impl RegistryRequest<'_> {
    fn send(&self, registry: SocketAddr) -> Result<RegistryResponse> {
        let what = || format!("{} http://{registry}{}", self.method, self.path);
        ensure!(
            registry.ip().is_loopback(),
            "{}: only a registry on loopback is spoken to",
            what()
        );
        let mut stream = TcpStream::connect_timeout(&registry, DEADLINE).with_context(what)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {registry}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.method,
            self.path,
            self.body.len()
        );
        if !self.kind.is_empty() {
            head.push_str(&format!("Content-Type: {}\r\n", self.kind));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).with_context(what)?;
        stream.write_all(self.body).with_context(what)?;
        let mut answer = RegistryResponse::read(BufReader::new(stream), self.method == "HEAD")
            .with_context(what)?;
        answer.of = what();
        Ok(answer)
    }
}

pub(super) struct RegistryResponse {
    of: String,
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl RegistryResponse {
    /// Reads one HTTP/1.1 answer; `bodiless` when the request was a HEAD.
    pub(super) fn read(mut stream: impl BufRead, bodiless: bool) -> Result<Self> {
        let first = line(&mut stream)?;
        let status = first
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1))
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("expected an HTTP/1.1 status line, got {first:?}"))?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut stream)?;
            if line.is_empty() {
                break;
            }
            let (name, value) =
                line.split_once(':').with_context(|| format!("header line {line:?}: no colon"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Self { of: String::new(), status, headers, body: Vec::new() };
        if !bodiless {
            answer.body = answer.read_body(&mut stream)?;
        }
        Ok(answer)
    }

    fn read_body(&self, stream: &mut impl BufRead) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_some_and(|value| value == "chunked") {
            loop {
                let line = line(stream)?;
                let size = line.split(';').next().unwrap_or_default();
                let size = u64::from_str_radix(size, 16)
                    .with_context(|| format!("chunk size {line:?}: expected hexadecimal"))?;
                ensure!(size + body.len() as u64 <= MAX_RESPONSE, "the answer is too long");
                if size == 0 {
                    return Ok(body);
                }
                let before = body.len() as u64;
                stream.take(size).read_to_end(&mut body)?;
                ensure!(body.len() as u64 == before + size, "the answer ended within a chunk");
                self::line(stream)?;
            }
        }
        let length = match self.header("content-length") {
            Some(text) => text.parse().with_context(|| format!("content-length {text:?}"))?,
            None => MAX_RESPONSE,
        };
        ensure!(length <= MAX_RESPONSE, "the answer is too long: {length} bytes");
        stream.take(length).read_to_end(&mut body)?;
        Ok(body)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn expect(self, status: u16) -> Result<Self> {
        if self.status != status {
            let body = String::from_utf8_lossy(&self.body);
            bail!("{}: status {}, expected {status}: {body}", self.of, self.status);
        }
        Ok(self)
    }
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    stream.take(64 << 10).read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the answer ended within a line");
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
