//! A proxy before a registry: it records requests with their credentials, can be closed, and can
//! add credentials.
//!
//! Rule: one request per connection, and only the credentials are changed; while the proxy is
//! closed, requests for manifests wait. Responses are the registry's own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;

/// A request that was passed on.
#[derive(Debug, Clone)]
pub(crate) struct ProxiedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The Authorization header; empty for none.
    pub(crate) login: String,
}

#[derive(Default)]
struct RegistryProxyState {
    is_shut: bool,
    /// Waiting requests by repository.
    waiting: BTreeMap<String, usize>,
    most_waiting: usize,
    asked: Vec<ProxiedRequest>,
}

#[derive(Clone)]
pub(crate) struct RegistryProxy {
    address: SocketAddr,
    registry: SocketAddr,
    /// Credentials that are added to requests without any.
    login: Option<&'static str>,
    shared: Arc<(Mutex<RegistryProxyState>, Condvar)>,
}

impl RegistryProxy {
    /// Starts it; it runs until the test's process ends.
    pub(crate) fn open(registry: SocketAddr, login: Option<&'static str>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a door")?;
        let address = listener.local_addr()?;
        let proxy = Self { address, registry, login, shared: Arc::default() };
        let served = proxy.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let proxy = served.clone();
                // A client that leaves early is the client's business.
                std::thread::spawn(move || drop(proxy.pass(stream)));
            }
        });
        Ok(proxy)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn state(&self) -> MutexGuard<'_, RegistryProxyState> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shut(&self, is_shut: bool) {
        self.state().is_shut = is_shut;
        self.shared.1.notify_all();
    }

    /// Repositories with waiting requests.
    pub(crate) fn waiting(&self) -> Vec<String> {
        self.state().waiting.keys().cloned().collect()
    }

    /// The maximum number of repositories with waiting requests at the same time, since the last
    /// call.
    pub(crate) fn most_waiting(&self) -> usize {
        std::mem::take(&mut self.state().most_waiting)
    }

    /// The requests of one repository that were passed on with credentials.
    pub(crate) fn asked(&self, repository: &str) -> Vec<ProxiedRequest> {
        let of = format!("/v2/{repository}/");
        let state = self.state();
        let through = state.asked.iter().filter(|asked| asked.path.starts_with(&of));
        through.filter(|asked| !asked.login.is_empty()).cloned().collect()
    }

    /// Manifest requests by tag with credentials: one for each pull.
    pub(crate) fn pulls(&self, repository: &str) -> usize {
        let tagged = |asked: &&ProxiedRequest| {
            asked.method == "HEAD" && asked.path.ends_with("/manifests/1")
        };
        self.asked(repository).iter().filter(tagged).count()
    }

    fn pass(&self, mut client: TcpStream) -> Result<()> {
        client.set_read_timeout(Some(WAIT_LIMIT))?;
        let mut reader = BufReader::new(client.try_clone()?);
        if reader.fill_buf()?.first() == Some(&TLS_HANDSHAKE) {
            // As a server in Go says it; clients then try without TLS.
            client.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nplain HTTP only\n")?;
            return Ok(());
        }
        let (asked, head, length) = self.read_head(&mut reader)?;
        self.wait(&asked);
        self.state().asked.push(asked);
        let mut registry = TcpStream::connect(self.registry)?;
        registry.write_all(head.as_bytes())?;
        std::io::copy(&mut reader.take(length), &mut registry)?;
        std::io::copy(&mut registry, &mut client)?;
        client.shutdown(Shutdown::Both)?;
        Ok(())
    }

    fn read_head(&self, reader: &mut impl BufRead) -> Result<(ProxiedRequest, String, u64)> {
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let mut words = first.split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let path = words.next().context("a path")?;
        let (mut head, mut login, mut length) = (first, String::new(), 0);
        loop {
            let mut line = String::new();
            ensure!(reader.take(64 << 10).read_line(&mut line)? > 0, "the head ended early");
            let (name, value) = line.split_once(':').unwrap_or((line.trim(), ""));
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("", _) => break,
                ("connection", _) => continue,
                ("authorization", trimmed) => login = trimmed.to_owned(),
                ("content-length", trimmed) => length = trimmed.parse()?,
                _ => {}
            }
            head.push_str(&line);
        }
        if let Some(known) = self.login.filter(|_| login.is_empty()) {
            head.push_str(&format!("Authorization: {known}\r\n"));
        }
        head.push_str("Connection: close\r\n\r\n");
        Ok((ProxiedRequest { method, path, login }, head, length))
    }

    fn wait(&self, asked: &ProxiedRequest) {
        let Some((repository, _)) = asked.path.split_once("/manifests/") else { return };
        let repository = repository.trim_start_matches("/v2/").to_owned();
        let mut state = self.state();
        if !state.is_shut {
            return;
        }
        *state.waiting.entry(repository.clone()).or_default() += 1;
        state.most_waiting = state.most_waiting.max(state.waiting.len());
        let opened = self.shared.1.wait_timeout_while(state, WAIT_LIMIT, |state| state.is_shut);
        let (mut state, _) = opened.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = state.waiting.get_mut(&repository) {
            *count -= 1;
            if *count == 0 {
                state.waiting.remove(&repository);
            }
        }
    }
}
