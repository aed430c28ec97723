//! Credential provider programs in memory: their output, their duration, and a record of their
//! runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::{CredentialProgramError, CredentialPrograms, PortFuture};

/// Cheap to clone; clones share one set of programs.
#[derive(Clone, Default)]
pub struct FakeCredentialPrograms {
    shared: Arc<Mutex<FakeProgramsState>>,
}

#[derive(Default)]
struct FakeProgramsState {
    answers: BTreeMap<String, Result<String, String>>,
    takes: Duration,
    requests: Vec<String>,
    running: usize,
    most_running: usize,
}

impl FakeCredentialPrograms {
    fn state(&self) -> MutexGuard<'_, FakeProgramsState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what a program prints, or its error.
    pub fn answer(&self, provider: &str, answer: Result<&str, &str>) {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        self.state().answers.insert(provider.to_owned(), answer);
    }

    /// Sets how long every run takes.
    pub fn take(&self, time: Duration) {
        self.state().takes = time;
    }

    /// The program and request of each run.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// The maximum number of concurrent runs.
    pub fn most_running(&self) -> usize {
        self.state().most_running
    }
}

impl CredentialPrograms for FakeCredentialPrograms {
    fn ask<'a>(
        &'a self,
        provider: &'a str,
        request: Vec<u8>,
    ) -> PortFuture<'a, Result<Vec<u8>, CredentialProgramError>> {
        Box::pin(async move {
            let takes = {
                let mut state = self.state();
                let request = String::from_utf8_lossy(&request).trim_end().to_owned();
                state.requests.push(format!("{provider} {request}"));
                state.running += 1;
                state.most_running = state.most_running.max(state.running);
                state.takes
            };
            tokio::time::sleep(takes).await;
            let mut state = self.state();
            state.running -= 1;
            let failed = |cause| CredentialProgramError { provider: provider.to_owned(), cause };
            match state.answers.get(provider).cloned() {
                Some(answer) => answer.map(String::into_bytes).map_err(failed),
                None => Err(failed("not there".to_owned())),
            }
        })
    }
}
