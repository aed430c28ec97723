//! The registry answers over plain HTTP, and with TLS and a password when asked.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::parts;
use node_testkit::start::{PASSWORD, RegistryOptions, RegistryServer, USER, get};

#[test]
fn registry_answers() -> Result<()> {
    BedTest::new().needs(RegistryServer::NEEDS).deadline(Duration::from_secs(60)).run(|bed| {
        let registry = RegistryServer::start(bed, RegistryOptions::default())?;
        let answer = get(registry.address(), "/v2/")?;
        ensure!(answer.status == 200, "{answer:?}");
        let answer = get(registry.address(), "/v2/_catalog")?;
        ensure!(answer.body.trim() == r#"{"repositories":[]}"#, "{answer:?}");
        Ok(())
    })
}

/// kubectl is the client here: it speaks TLS to any server and sends a password.
#[test]
fn registry_asks_for_a_password_over_tls() -> Result<()> {
    let needs = ["registry", "kubectl"];
    BedTest::new().needs(&needs).deadline(Duration::from_secs(60)).run(|bed| {
        let registry = RegistryServer::start(bed, RegistryOptions { tls: true, password: true })?;
        let authority = registry.authority().context("its authority")?.display().to_string();
        let ask = |more: &[&str]| -> Result<(bool, String)> {
            let output = Command::new(parts::program("kubectl", "kubectl")?)
                .env("KUBECONFIG", "/dev/null")
                .arg(format!("--server={}", registry.url()))
                .arg(format!("--certificate-authority={authority}"))
                .args(more)
                .args(["get", "--raw", "/v2/_catalog"])
                .output()?;
            let printed = [output.stdout, output.stderr].concat();
            Ok((output.status.success(), String::from_utf8_lossy(&printed).into_owned()))
        };
        let password = format!("--password={PASSWORD}");
        let (good, printed) = ask(&[&format!("--username={USER}"), &password])?;
        ensure!(good && printed.contains(r#"{"repositories":[]}"#), "{printed}");
        let (good, printed) = ask(&[&format!("--username={USER}"), "--password=wrong"])?;
        ensure!(!good, "a wrong password was taken: {printed}");
        Ok(())
    })
}
