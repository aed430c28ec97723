//! Host name lookups on separate threads.
//!
//! Rule: a lookup cannot be cancelled; it ends when the system's resolver times out, which may take
//! minutes. So it never runs on threads that others wait for: each has a thread of its own, all
//! requests for one name share one lookup, and a fixed number is in flight. A request for one more
//! name fails at once with the reason. Nothing is cached after a lookup ends.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::sync::watch;

use crate::http_error::HttpError;

#[cfg(test)]
mod tests;

/// Lookups in flight in this process: with a resolver that hangs, so many threads and no more.
pub(crate) const MAX_LOOKUPS: usize = 32;
/// Enough for the buffers of any C library's resolver.
const STACK_BYTES: usize = 256 * 1024;

type LookupResult = Result<Vec<SocketAddr>, String>;
type ResolveFn = fn(&str) -> io::Result<Vec<SocketAddr>>;
type InFlightLookups = Arc<Mutex<HashMap<String, watch::Receiver<Option<LookupResult>>>>>;

pub(crate) static SYSTEM: LazyLock<Lookups> =
    LazyLock::new(|| Lookups::new(MAX_LOOKUPS, resolve_with_system));

#[derive(Debug)]
pub(crate) struct Lookups {
    max_lookups: usize,
    resolve: ResolveFn,
    in_flight: InFlightLookups,
}

/// Frees a name's slot however its thread ends.
struct InFlightName {
    name: String,
    in_flight: InFlightLookups,
}

impl Drop for InFlightName {
    fn drop(&mut self) {
        let mut names = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

impl Lookups {
    pub(crate) fn new(max_lookups: usize, resolve: ResolveFn) -> Self {
        Self { max_lookups, resolve, in_flight: Arc::default() }
    }

    /// The addresses of a name, each with this port.
    pub(crate) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, HttpError> {
        let refused = |reason: String| HttpError::Lookup { host: host.to_owned(), reason };
        let mut answer = self.start_or_join(host).map_err(refused)?;
        let received = answer.wait_for(Option::is_some).await;
        let found = received.ok().and_then(|found| found.clone());
        let mut found = found.unwrap_or_else(|| Err("the lookup failed".to_owned()));
        if let Ok(addresses) = &mut found {
            addresses.iter_mut().for_each(|address| address.set_port(port));
        }
        found.map_err(refused)
    }

    fn start_or_join(&self, host: &str) -> Result<watch::Receiver<Option<LookupResult>>, String> {
        let mut names = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = names.get(host) {
            return Ok(answer.clone());
        }
        if names.len() >= self.max_lookups {
            let max_lookups = self.max_lookups;
            return Err(format!(
                "{max_lookups} lookups are under way and none ends; not looked up"
            ));
        }
        let (result_sender, answer) = watch::channel(None);
        names.insert(host.to_owned(), answer.clone());
        drop(names);
        let (name, resolve) = (host.to_owned(), self.resolve);
        // If no thread can be started, the slot is dropped with the closure.
        let in_flight_name = InFlightName { name: name.clone(), in_flight: self.in_flight.clone() };
        std::thread::Builder::new()
            .name("lookup".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let found = resolve(&name).map_err(|_| "no such host".to_owned());
                drop(in_flight_name);
                // The caller may have gone on without it.
                let _gone = result_sender.send(Some(found));
            })
            .map_err(|error| format!("no thread could be started for it: {error}"))?;
        Ok(answer)
    }
}

fn resolve_with_system(host: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((host, 0).to_socket_addrs()?.collect())
}
