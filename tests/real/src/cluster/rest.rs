//! Objects of a real API server as JSON, over plain HTTP: `kubectl proxy` does TLS and credentials.
//!
//! Rule: one connection for each request, and every step has a timeout. Objects are whole and
//! untyped, so that a test sees what the API server stores and not what our types keep of it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, free_port};
use node_testkit::start::{ControlPlane, RunningPart, get};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(20);
const READY: Duration = Duration::from_secs(30);

/// A client of the API server with the administrator's rights.
#[derive(Debug)]
pub struct RestClient {
    _proxy: RunningPart,
    address: SocketAddr,
}

/// The API server's answer to a request.
#[derive(Debug, Clone)]
pub struct RestAnswer {
    pub status: u16,
    pub body: Value,
}

impl RestAnswer {
    /// The object, or an error with the status that came instead.
    ///
    /// # Errors
    /// When the status is not one of success.
    pub fn object(self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "status {}: {}", self.status, self.body);
        Ok(self.body)
    }
}

impl RestClient {
    /// Starts the proxy and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(bed: &Bed, plane: &ControlPlane) -> Result<Self> {
        let port = free_port()?;
        let mut command = plane.kubectl_command()?;
        command.args(["proxy", &format!("--port={port}")]);
        let mut proxy = RunningPart::start(bed, "kubectl-proxy", &mut command)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        proxy.wait_until("answer", READY, || {
            let answer = get(address, "/readyz")?;
            ensure!(answer.status == 200, "/readyz: {}", answer.status);
            Ok(())
        })?;
        Ok(Self { _proxy: proxy, address })
    }

    /// One request.
    ///
    /// # Errors
    /// When there is no answer, or it is no HTTP.
    pub fn request(&self, head: &str, kind: &str, body: &str) -> Result<RestAnswer> {
        let ask = || -> Result<String> {
            let mut connection = TcpStream::connect_timeout(&self.address, TIMEOUT)?;
            connection.set_read_timeout(Some(TIMEOUT))?;
            connection.set_write_timeout(Some(TIMEOUT))?;
            write!(
                connection,
                "{head} HTTP/1.0\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
                self.address,
                body.len()
            )?;
            let mut answer = Vec::new();
            connection.read_to_end(&mut answer)?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        let text = ask().with_context(|| head.to_owned())?;
        let (first, body) =
            text.split_once("\r\n\r\n").with_context(|| format!("{head}: {text}"))?;
        let status = first.split(' ').nth(1).context("an answer without a status")?;
        let status = status.parse().with_context(|| format!("{head}: status {status:?}"))?;
        let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
        Ok(RestAnswer { status, body })
    }

    /// An object or a list.
    ///
    /// # Errors
    /// When it cannot be read, or does not exist.
    pub fn read(&self, path: &str) -> Result<Value> {
        self.request(&format!("GET {path}"), "application/json", "")?
            .object()
            .with_context(|| path.to_owned())
    }

    /// An object, if it exists.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.request(&format!("GET {path}"), "application/json", "")?;
        if answer.status == 404 {
            return Ok(None);
        }
        answer.object().map(Some).with_context(|| path.to_owned())
    }

    /// The items of a list.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn items(&self, path: &str) -> Result<Vec<Value>> {
        match self.read(path)?["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("{path}: no list: {other}"),
        }
    }

    /// Creates an object below a collection's path.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.request(&format!("POST {collection}"), "application/json", &object.to_string())?
            .object()
            .with_context(|| format!("create in {collection}"))
    }

    /// Changes an object by a JSON merge patch.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        let kind = "application/merge-patch+json";
        self.request(&format!("PATCH {path}"), kind, &patch.to_string())?
            .object()
            .with_context(|| format!("patch {path}"))
    }

    /// Deletes an object; one that does not exist is no error.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn delete(&self, path: &str, grace_seconds: Option<u32>) -> Result<()> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": "Background"});
        if let Some(seconds) = grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        let kind = "application/json";
        let answer = self.request(&format!("DELETE {path}"), kind, &options.to_string())?;
        if answer.status == 404 {
            return Ok(());
        }
        answer.object().map(drop).with_context(|| format!("delete {path}"))
    }
}
