//! Log files of containers in memory.

use super::FakeHost;
use ports::LogFiles;
use ports::pod_host::{HostError, HostFuture};

/// Rotated files lie beside the current one; a compressed file keeps the content of the plain one.
impl LogFiles for FakeHost {
    fn sizes<'a>(&'a self, logs: &'a [String]) -> HostFuture<'a, Vec<Option<u64>>> {
        self.done(move |disk| {
            let size = |log: &String| disk.files.get(log).map(|content| content.len() as u64);
            logs.iter().map(size).collect()
        })
    }
    fn names<'a>(&'a self, log: &'a str) -> HostFuture<'a, Vec<String>> {
        let dir = beside(log, "");
        self.done(move |disk| {
            disk.files
                .keys()
                .filter_map(|path| path.strip_prefix(&dir))
                .map(str::to_owned)
                .collect()
        })
    }
    fn rename<'a>(&'a self, log: &'a str, from: &'a str, to: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let mut disk = self.disk();
            let (from, to) = (beside(log, from), beside(log, to));
            if disk.files.contains_key(&to) {
                return Err(HostError::Permanent(format!("{to} is there")));
            }
            let Some(content) = disk.files.remove(&from) else {
                return Err(HostError::Permanent(format!("{from} is not there")));
            };
            disk.files.insert(to, content);
            Ok(())
        })
    }
    fn pack<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        self.written(move |disk| {
            if let Some(content) = disk.files.remove(&beside(log, name)) {
                disk.files.insert(beside(log, &format!("{name}.gz")), content);
            }
        })
    }
    fn remove<'a>(&'a self, log: &'a str, name: &'a str) -> HostFuture<'a, ()> {
        self.done(move |disk| {
            disk.files.remove(&beside(log, name));
        })
    }
}

fn beside(log: &str, name: &str) -> String {
    let dir = log.rsplit_once('/').map_or("", |(dir, _)| dir);
    format!("{dir}/{name}")
}
