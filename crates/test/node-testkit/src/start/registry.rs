//! An image registry on the bed's loopback.
//!
//! Rule: plain HTTP without authentication, unless TLS or a password is requested.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::certificates::{CertificateAuthority, CertificateSubject};
use super::http;
use super::process::RunningPart;
use crate::bed::{Bed, free_port};
use crate::parts;

/// The user when a password is required.
pub const USER: &str = "bed";
pub const PASSWORD: &str = "bed-password";
/// The registry takes bcrypt only. A hash of the password above, with the lowest cost.
const PASSWORD_LINE: &str = "bed:$2a$04$z/jnzsUA4XhlZYuDiBwD4uBij3hmTwohYch971KIXUe6HZgjKklLG\n";

const READY: Duration = Duration::from_secs(20);

/// Options of a registry.
#[derive(Debug, Clone, Copy, Default)]
pub struct RegistryOptions {
    pub tls: bool,
    pub password: bool,
}

/// A running registry.
#[derive(Debug)]
pub struct RegistryServer {
    running: RunningPart,
    address: SocketAddr,
    authority: Option<PathBuf>,
}

impl RegistryServer {
    /// The parts to name in a test's needs.
    pub const NEEDS: &'static [&'static str] = &["registry"];

    /// Starts a registry and waits until it answers.
    ///
    /// # Errors
    /// When the part is missing or does not come up, with the end of its log.
    pub fn start(bed: &Bed, options: RegistryOptions) -> Result<Self> {
        let port = free_port()?;
        let name = format!("registry-{port}");
        let dir = bed.create_dir(&name)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut text = format!(
            "version: 0.1\nlog: {{level: info, accesslog: {{disabled: false}}}}\n\
             storage: {{filesystem: {{rootdirectory: {}/data}}, delete: {{enabled: true}}}}\n\
             http:\n  addr: {address}\n  secret: only-in-this-bed\n",
            dir.display()
        );
        let mut authority_file = None;
        if options.tls {
            let authority = CertificateAuthority::make(&dir, "bed registry authority")?;
            let subject = CertificateSubject {
                common_name: "registry",
                alternative_names: &["127.0.0.1", "localhost"],
                ..CertificateSubject::default()
            };
            let files = authority.issue("registry", &subject)?;
            writeln!(
                text,
                "  tls: {{certificate: {}, key: {}}}",
                files.certificate.display(),
                files.key.display()
            )?;
            authority_file = Some(authority.files.certificate);
        }
        if options.password {
            let path = dir.join("passwords");
            fs::write(&path, PASSWORD_LINE).with_context(|| format!("write {}", path.display()))?;
            writeln!(text, "auth: {{htpasswd: {{realm: bed, path: {}}}}}", path.display())?;
        }
        let configuration = dir.join("config.yml");
        fs::write(&configuration, text)
            .with_context(|| format!("write {}", configuration.display()))?;
        let mut command = Command::new(parts::program("registry", "registry")?);
        // Traces would be sent to a collector that is not there.
        command.arg("serve").arg(&configuration).env("OTEL_TRACES_EXPORTER", "none");
        let mut running = RunningPart::start(bed, &name, &mut command)?;
        running.wait_until("answer", READY, || {
            if options.tls {
                TcpStream::connect_timeout(&address, READY).map(drop).context("connect")
            } else {
                let expected = if options.password { 401 } else { 200 };
                let answer = http::get(address, "/v2/")?;
                ensure!(answer.status == expected, "/v2/ answered {}", answer.status);
                Ok(())
            }
        })?;
        Ok(Self { running, address, authority: authority_file })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients, such as `http://127.0.0.1:5000`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate of its authority, when it serves TLS.
    #[must_use]
    pub fn authority(&self) -> Option<&PathBuf> {
        self.authority.as_ref()
    }

    /// The process and its log.
    pub fn process(&mut self) -> &mut RunningPart {
        &mut self.running
    }
}
