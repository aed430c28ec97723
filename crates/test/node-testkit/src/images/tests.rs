//! Images as bytes: consistent digests, valid layouts, equal bytes for equal images.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::build::{digest, gzip};
use super::known::names_interpreter;
use super::registry::{RegistryResponse, upload_path};
use super::{NAME_LABEL, TestImage, TestImageName};

fn sample(name: &str) -> TestImage {
    TestImage::new(name)
        .with_bytes("/etc/motd", 0o644, "hello\n")
        .with_link("/bin/sh", "busybox")
        .with_directory("/tmp", 0o1777)
        .configured(|config| config.cmd = vec!["sh".to_owned()])
}

#[test]
fn digest_is_sha256_in_hexadecimal() {
    assert_eq!(
        digest(b"abc"),
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn layout_leads_from_index_to_every_blob() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("layout");
    sample("example.test/one:1").build()?.write_oci_layout(&dir)?;

    let read = |path: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(dir.join(path)).context(path.to_owned())?)?)
    };
    assert_eq!(read("oci-layout")?["imageLayoutVersion"], "1.0.0");
    let index = read("index.json")?;
    let top = &index["manifests"][0];
    assert_eq!(top["annotations"]["io.containerd.image.name"], "example.test/one:1");
    assert_eq!(top["annotations"]["org.opencontainers.image.ref.name"], "1");

    let manifest: Value = serde_json::from_slice(&checked(&dir, top)?)?;
    let config: Value = serde_json::from_slice(&checked(&dir, &manifest["config"])?)?;
    let layer = checked(&dir, &manifest["layers"][0])?;
    let mut plain = Vec::new();
    GzDecoder::new(layer.as_slice()).read_to_end(&mut plain)?;
    assert_eq!(config["rootfs"]["diff_ids"][0], digest(&plain).as_str());
    assert_eq!(config["config"]["Cmd"][0], "sh");
    assert_eq!(config["config"]["Labels"][NAME_LABEL], "example.test/one:1");
    assert_eq!(config["os"], "linux");

    let blobs = fs::read_dir(dir.join("blobs/sha256"))?.count();
    assert_eq!(blobs, 3, "a layout holds its three blobs and no other");
    Ok(())
}

/// The content that a descriptor names; its size and digest are what the descriptor says.
fn checked(dir: &Path, descriptor: &Value) -> Result<Vec<u8>> {
    let name = descriptor["digest"].as_str().context("a descriptor has a digest")?;
    let hex = name.strip_prefix("sha256:").context("a sha256 digest")?;
    let bytes = fs::read(dir.join("blobs/sha256").join(hex))?;
    assert_eq!(descriptor["size"], bytes.len());
    assert_eq!(digest(&bytes), name);
    Ok(bytes)
}

#[test]
fn layer_holds_every_parent_and_each_mode() -> Result<()> {
    let built = sample("example.test/one:1").build()?;
    let mut archive = tar::Archive::new(built.layer_tar.bytes.as_slice());
    let mut seen = Vec::new();
    for entry in archive.entries()? {
        let entry = entry?;
        assert_eq!(entry.header().mtime()?, 0);
        let path = entry.path()?.to_string_lossy().into_owned();
        seen.push((path, entry.header().mode()?));
    }
    let wanted = [
        ("bin/", 0o755),
        ("bin/sh", 0o777),
        ("etc/", 0o755),
        ("etc/motd", 0o644),
        ("tmp/", 0o1777),
    ];
    assert_eq!(seen, wanted.map(|(path, mode)| (path.to_owned(), mode)));
    Ok(())
}

#[test]
fn equal_images_give_equal_archives() -> Result<()> {
    let place = tempfile::tempdir()?;
    let written = |round: &str| -> Result<(Vec<u8>, Vec<u8>)> {
        let built = sample("example.test/one:1").build()?;
        let (oci, docker) = (
            place.path().join(format!("{round}.oci")),
            place.path().join(format!("{round}.docker")),
        );
        built.write_oci_archive(&oci)?;
        built.write_docker_archive(&docker)?;
        Ok((fs::read(oci)?, fs::read(docker)?))
    };
    assert_eq!(written("first")?, written("second")?);
    assert_eq!(gzip(b"some bytes")?, gzip(b"some bytes")?);
    Ok(())
}

#[test]
fn another_name_is_another_image() -> Result<()> {
    let one = sample("example.test/one:1").build()?;
    let two = sample("example.test/one:1").named("example.test/two:1").build()?;
    assert_eq!(one.layer.digest, two.layer.digest);
    assert_ne!(one.config.digest, two.config.digest);
    assert_ne!(one.manifest.digest, two.manifest.digest);
    Ok(())
}

#[test]
fn docker_archive_names_files_that_it_holds() -> Result<()> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("image.tar");
    let built = sample("example.test/one:1").build()?;
    built.write_docker_archive(&path)?;
    let mut held = BTreeSet::new();
    let mut manifest = Value::Null;
    for entry in tar::Archive::new(fs::File::open(&path)?).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        if name == "manifest.json" {
            manifest = serde_json::from_slice(&bytes)?;
        }
        held.insert((name, digest(&bytes)));
    }
    let named = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(manifest[0]["RepoTags"][0], "example.test/one:1");
    assert!(held.contains(&(named(&manifest[0]["Config"]), built.config.digest)));
    assert!(held.contains(&(named(&manifest[0]["Layers"][0]), built.layer_tar.digest)));
    Ok(())
}

#[test]
fn names_are_split_or_refused() {
    let parsed = TestImageName::parse("registry.test:5000/group/thing:1.0-2").ok();
    let wanted =
        TestImageName { registry: "registry.test:5000", repository: "group/thing", tag: "1.0-2" };
    assert_eq!(parsed, Some(wanted));
    for short in
        ["busybox", "busybox:1", "library/busybox:1", "docker.io/library/busybox", "a.b/:1"]
    {
        assert!(TestImageName::parse(short).is_err(), "{short} is no whole name");
    }
}

#[test]
fn an_interpreter_is_detected_in_a_program() -> Result<()> {
    let own = fs::read(std::env::current_exe()?)?;
    assert_eq!(names_interpreter(&own), Some(true), "this test is dynamically linked");
    let mut header = own[..64].to_vec();
    header[56..58].copy_from_slice(&0_u16.to_le_bytes());
    assert_eq!(names_interpreter(&header), Some(false), "no program headers, no loader");
    assert_eq!(names_interpreter(b"#!/bin/sh\n"), None);
    assert_eq!(names_interpreter(&own[..60]), None, "cut within its header");
    Ok(())
}

#[test]
fn responses_are_read_in_each_form() -> Result<()> {
    let body = |text: &str, bodiless| -> Result<(u16, Vec<u8>)> {
        let answer = RegistryResponse::read(text.as_bytes(), bodiless)?;
        Ok((answer.status, answer.body))
    };
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokrest";
    assert_eq!(body(length, false)?, (200, b"ok".to_vec()));
    assert_eq!(body(length, true)?, (200, Vec::new()));
    let chunks = "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1;x=y\r\n!\r\n0\r\n\r\n";
    assert_eq!(body(chunks, false)?, (202, b"ok!".to_vec()));
    assert_eq!(
        body("HTTP/1.0 404 Not Found\r\n\r\nto the end", false)?,
        (404, b"to the end".to_vec())
    );
    for broken in [
        "",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnocolon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
    ] {
        assert!(body(broken, false).is_err(), "{broken:?} is no answer");
    }
    Ok(())
}

#[test]
fn upload_locations_are_paths_or_whole_addresses() -> Result<()> {
    assert_eq!(upload_path("/v2/a/blobs/uploads/1?x=y")?, "/v2/a/blobs/uploads/1?x=y");
    assert_eq!(upload_path("http://127.0.0.1:5000/v2/a")?, "/v2/a");
    assert!(upload_path("https://127.0.0.1/v2/a").is_err());
    assert!(upload_path("http://nowhere").is_err());
    Ok(())
}

#[test]
fn only_loopback_is_pushed_to() -> Result<()> {
    let refused = super::push("192.0.2.1:5000".parse()?, &sample("example.test/one:1"));
    let text = format!("{:#}", refused.err().context("a foreign registry is refused")?);
    assert!(text.contains("only a registry on loopback"), "{text}");
    Ok(())
}
