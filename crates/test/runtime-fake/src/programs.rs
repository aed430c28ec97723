//! Credential provider programs in memory: their output, their duration, and a record of their
//! runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::{CredentialProgramError, CredentialPrograms, PortFuture};

/// Cheap to clone; clones share one set of programs.
#[derive(Clone, Default)]
pub struct FakePrograms {
    shared: Arc<Mutex<Folder>>,
}

#[derive(Default)]
struct Folder {
    answers: BTreeMap<String, Result<String, String>>,
    takes: Duration,
    asked: Vec<String>,
    running: usize,
    most_running: usize,
}

impl FakePrograms {
    fn folder(&self) -> MutexGuard<'_, Folder> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what a program prints, or its error.
    pub fn answer(&self, provider: &str, answer: Result<&str, &str>) {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        self.folder().answers.insert(provider.to_owned(), answer);
    }

    /// Sets how long every run takes.
    pub fn take(&self, time: Duration) {
        self.folder().takes = time;
    }

    /// The program and request of each run.
    pub fn asked(&self) -> Vec<String> {
        self.folder().asked.clone()
    }

    /// The maximum number of concurrent runs.
    pub fn most_running(&self) -> usize {
        self.folder().most_running
    }
}

impl CredentialPrograms for FakePrograms {
    fn ask<'a>(
        &'a self,
        provider: &'a str,
        request: Vec<u8>,
    ) -> PortFuture<'a, Result<Vec<u8>, CredentialProgramError>> {
        Box::pin(async move {
            let takes = {
                let mut folder = self.folder();
                let request = String::from_utf8_lossy(&request).trim_end().to_owned();
                folder.asked.push(format!("{provider} {request}"));
                folder.running += 1;
                folder.most_running = folder.most_running.max(folder.running);
                folder.takes
            };
            tokio::time::sleep(takes).await;
            let mut folder = self.folder();
            folder.running -= 1;
            let failed = |cause| CredentialProgramError { provider: provider.to_owned(), cause };
            match folder.answers.get(provider).cloned() {
                Some(answer) => answer.map(String::into_bytes).map_err(failed),
                None => Err(failed("not there".to_owned())),
            }
        })
    }
}
