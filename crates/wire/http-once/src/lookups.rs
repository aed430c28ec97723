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

use crate::failure::Failure;

#[cfg(test)]
mod tests;

/// Lookups in flight in this process: with a resolver that hangs, so many threads and no more.
pub(crate) const MOST: usize = 32;
/// Enough for the buffers of any C library's resolver.
const STACK: usize = 256 * 1024;

type Found = Result<Vec<SocketAddr>, String>;
type Resolve = fn(&str) -> io::Result<Vec<SocketAddr>>;
type UnderWay = Arc<Mutex<HashMap<String, watch::Receiver<Option<Found>>>>>;

pub(crate) static SYSTEM: LazyLock<Lookups> = LazyLock::new(|| Lookups::new(MOST, of_the_system));

#[derive(Debug)]
pub(crate) struct Lookups {
    most: usize,
    resolve: Resolve,
    under_way: UnderWay,
}

/// Frees a name's slot however its thread ends.
struct Place {
    name: String,
    under_way: UnderWay,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut names = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

impl Lookups {
    pub(crate) fn new(most: usize, resolve: Resolve) -> Self {
        Self { most, resolve, under_way: Arc::default() }
    }

    /// The addresses of a name, each with this port.
    pub(crate) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let refused = |why: String| Failure::Lookup { host: host.to_owned(), why };
        let mut answer = self.ask(host).map_err(refused)?;
        let told = answer.wait_for(Option::is_some).await;
        let found = told.ok().and_then(|found| found.clone());
        let mut found = found.unwrap_or_else(|| Err("the lookup failed".to_owned()));
        if let Ok(addresses) = &mut found {
            addresses.iter_mut().for_each(|address| address.set_port(port));
        }
        found.map_err(refused)
    }

    fn ask(&self, host: &str) -> Result<watch::Receiver<Option<Found>>, String> {
        let mut names = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = names.get(host) {
            return Ok(answer.clone());
        }
        if names.len() >= self.most {
            let most = self.most;
            return Err(format!("{most} lookups are under way and none ends; not looked up"));
        }
        let (tell, answer) = watch::channel(None);
        names.insert(host.to_owned(), answer.clone());
        drop(names);
        let (name, resolve) = (host.to_owned(), self.resolve);
        // If no thread can be started, the slot is dropped with the closure.
        let place = Place { name: name.clone(), under_way: self.under_way.clone() };
        std::thread::Builder::new()
            .name("lookup".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let found = resolve(&name).map_err(|_| "no such host".to_owned());
                drop(place);
                // The caller may have gone on without it.
                let _gone = tell.send(Some(found));
            })
            .map_err(|error| format!("no thread could be started for it: {error}"))?;
        Ok(answer)
    }
}

fn of_the_system(host: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((host, 0).to_socket_addrs()?.collect())
}
