//! One-time tokens: each stands for one request, for a minute.
//!
//! upstream: k8s.io/streaming request_cache.go

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tonic::Code;

use super::StreamRequest;
use crate::failure::{CriError, Result};
use crate::identity;

const TOKEN_LIFETIME: Duration = Duration::from_secs(60);
/// The limit of requests that were not redeemed yet.
const MAX_TOKENS: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct StreamTokens {
    waiting: Mutex<HashMap<String, (Instant, StreamRequest)>>,
}

impl StreamTokens {
    pub(super) fn issue(&self, wanted: StreamRequest) -> Result<String> {
        let token = identity::fresh()?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        waiting.retain(|_, (end, _)| *end > now);
        if waiting.len() >= MAX_TOKENS {
            return Err(CriError::new(
                Code::ResourceExhausted,
                "maximum number of in-flight requests exceeded",
            ));
        }
        waiting.insert(token.clone(), (now + TOKEN_LIFETIME, wanted));
        Ok(token)
    }

    /// The request of a token, which is used up.
    pub(super) fn redeem(&self, token: &str) -> Option<StreamRequest> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, wanted) = waiting.remove(token)?;
        (end > Instant::now()).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use cri_wire::v1;

    use super::*;

    #[test]
    fn a_token_works_once_and_the_number_is_limited() {
        let tokens = StreamTokens::default();
        let wanted = || StreamRequest::Exec(v1::ExecRequest::default());
        let token = tokens.issue(wanted()).unwrap();
        assert!(tokens.redeem("other").is_none());
        assert!(tokens.redeem(&token).is_some());
        assert!(tokens.redeem(&token).is_none());
        for _ in 0..MAX_TOKENS {
            tokens.issue(wanted()).unwrap();
        }
        assert_eq!(tokens.issue(wanted()).unwrap_err().code, Code::ResourceExhausted);
    }
}
