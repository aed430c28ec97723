//! The images that upstream's node specs name, made from files of this machine.
//!
//! Rule: one name for each image, since a status shows an image's first name and specs compare it.
//! They are not the published images; what they lack fails over every runtime alike.

use anyhow::Result;
use node_testkit::images::{self, TestImage};
use node_testkit::parts;
use node_testkit::start::{CertificateAuthority, CertificateSubject};

const TOOLS: &str = include_str!("small_tools.rs");
const SUITE: &str = "registry.k8s.io/e2e-test-images";

/// The part from which agnhost's program comes.
pub const NEEDS: &[&str] = &["agnhost"];

/// Every image that the specs of our list use.
pub fn all() -> Result<Vec<TestImage>> {
    let tools = images::static_program("small_tools", TOOLS)?;
    let agnhost = images::agnhost(&parts::program("agnhost", "agnhost")?)?
        .with_host_file("/usr/bin/curl", 0o755, &tools)
        .with_host_file("/bin/nc", 0o755, &tools)
        .with_host_file("/bin/nmeter", 0o755, &tools)
        .with_bytes("/bin/bash", 0o755, "#!/bin/sh\nexec /bin/sh \"$@\"\n");
    let agnhost = with_certificate(agnhost)?;
    let busybox = images::busybox()?.with_host_file("/bin/nmeter", 0o755, &tools);
    let named = |name: &str| busybox.clone().named(&format!("{SUITE}/{name}"));
    let web = |name: &str| {
        let image = named(name).with_host_file("/usr/sbin/nginx", 0o755, &tools);
        image.configured(|config| config.cmd = vec!["/usr/sbin/nginx".to_owned()])
    };
    Ok(vec![
        images::pause()?,
        agnhost.clone(),
        agnhost.named(&format!("{SUITE}/agnhost:2.55")),
        web("nginx:1.15-4"),
        web("nginx:1.27-0"),
        named("glibc-dns-testing:2.0.0"),
        named("ipc-utils:1.4").with_host_file("/bin/ipcs", 0o755, &tools),
        named("nonroot:1.5").configured(|config| config.user = "1234".to_owned()),
        // Gains its owner's rights when it is run, unless that was forbidden.
        TestImage::new(&format!("{SUITE}/nonewprivs:1.4"))
            .with_host_file("/nnp", 0o4755, &tools)
            .with_directory("/proc", 0o555)
            .configured(|config| config.entrypoint = vec!["/nnp".to_owned()]),
        busybox,
    ])
}

/// With the certificate that the specs of https hooks start its server with.
fn with_certificate(agnhost: TestImage) -> Result<TestImage> {
    let dir = tempfile::tempdir()?;
    let authority = CertificateAuthority::make(dir.path(), "specs")?;
    let names = ["localhost"];
    let subject = CertificateSubject {
        common_name: "localhost",
        alternative_names: &names,
        ..CertificateSubject::default()
    };
    let issued = authority.issue("localhost", &subject)?;
    Ok(agnhost.with_bytes("/localhost.crt", 0o644, std::fs::read(&issued.certificate)?).with_bytes(
        "/localhost.key",
        0o644,
        std::fs::read(&issued.key)?,
    ))
}
