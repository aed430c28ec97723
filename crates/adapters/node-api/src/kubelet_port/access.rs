//! Authentication and authorization of callers of the kubelet's port.
//!
//! Rule: a client certificate takes precedence over a bearer token; invalid credentials never make
//! a caller anonymous. Without an API server only certificates of the configured authorities count.
//! Codes and texts are upstream's (pkg/kubelet/server/server.go, InstallAuthFilter). Tokens never
//! appear in logs or messages.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{AUTHORIZATION, HeaderMap};
use rustls::pki_types::CertificateDer;
use tracing::{error, info};

use super::attributes::{NodeAttributes, subresources, verb};
use super::credentials::PortCredentials;
use super::reply::KubeletReply;
use crate::caller::{Caller, NotValid, VerifiedCertificate};
use crate::review::{ReviewError, Reviews};

const ALL_AUTHENTICATED: &str = "system:authenticated";
const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
/// The group that the API server allows everything.
const MASTERS: &str = "system:masters";

/// `authorization.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Every authenticated caller may do everything.
    AlwaysAllow,
    /// The API server authorizes. Without one: members of `system:masters` only.
    Webhook,
}

/// Authenticates and authorizes requests.
pub(super) struct AccessControl {
    pub(super) credentials: Arc<PortCredentials>,
    pub(super) reviews: Reviews,
    /// Bearer tokens are reviewed.
    pub(super) tokens: bool,
    pub(super) anonymous: bool,
    pub(super) mode: AuthorizationMode,
    pub(super) node: String,
}

impl AccessControl {
    /// Lets a request through, or returns the response that rejects it.
    pub(super) async fn check(
        &self,
        certificates: &[CertificateDer<'_>],
        headers: &HeaderMap,
        method: &str,
        path: &str,
    ) -> Result<(), KubeletReply> {
        let caller = self.caller(certificates, headers).await?;
        self.authorize(&caller, method, path).await
    }

    async fn caller(
        &self,
        certificates: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> Result<Caller, KubeletReply> {
        let mut bad = false;
        match self.credentials.current().chain_verifier(certificates) {
            Some(Ok(())) => {
                match certificates.first().map(|first| VerifiedCertificate::read(first)) {
                    Some(Some(certificate)) => match certificate.caller_at(SystemTime::now()) {
                        Ok(Some(caller)) => return Ok(caller.clone()),
                        Ok(None) => {}
                        Err(NotValid) => bad = true,
                    },
                    _ => bad = true,
                }
            }
            Some(Err(why)) => {
                info!(v = 2, err = %why, "Unable to verify a client certificate");
                bad = true;
            }
            None => {}
        }
        if let Some(token) = bearer(headers).filter(|_| self.tokens) {
            match self.reviews.token_review(token).await {
                Ok(Some(caller)) => return Ok(authenticated(caller)),
                Ok(None) => bad = true,
                Err(ReviewError::TooMany) => return Err(KubeletReply::too_many()),
                Err(why) => {
                    error!(err = %why, "Unable to authenticate the request due to an error");
                    bad = true;
                }
            }
        }
        if bad || !self.anonymous {
            return Err(KubeletReply::text(401, "Unauthorized"));
        }
        Ok(Caller::anonymous())
    }

    async fn authorize(
        &self,
        caller: &Caller,
        method: &str,
        path: &str,
    ) -> Result<(), KubeletReply> {
        if self.mode == AuthorizationMode::AlwaysAllow {
            return Ok(());
        }
        let (verb, subresources) = (verb(method), subresources(path));
        for subresource in &subresources {
            let attributes = NodeAttributes { verb, subresource, node: &self.node };
            match self.reviews.is_allowed_on_node(caller, &attributes).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(ReviewError::NoApiServer) => {
                    if caller.groups.iter().any(|group| group == MASTERS) {
                        return Ok(());
                    }
                }
                Err(ReviewError::TooMany) => return Err(KubeletReply::too_many()),
                Err(why) => {
                    error!(err = %why, user = caller.name, verb, subresource, "Authorization error");
                    return Err(KubeletReply::text(
                        500,
                        format!(
                            "Authorization error (user={}, verb={verb}, resource=nodes, \
                             subresource={subresource})",
                            caller.name
                        ),
                    ));
                }
            }
        }
        let subresources = subresources.join(" ");
        info!(v = 2, user = caller.name, verb, resource = "nodes", subresources, "Forbidden");
        Err(KubeletReply::text(
            403,
            format!(
                "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n",
                caller.name
            ),
        ))
    }
}

/// Adds the group of all authenticated callers. upstream: authentication/group
fn authenticated(mut caller: Caller) -> Caller {
    let is_listed = |group: &String| [ALL_AUTHENTICATED, ALL_UNAUTHENTICATED].contains(&&**group);
    if caller.name != ANONYMOUS && !caller.groups.iter().any(is_listed) {
        caller.groups.push(ALL_AUTHENTICATED.to_owned());
    }
    caller
}

/// The bearer token; `None` if there is no such header or it is empty.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_is_one() {
        let table = [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("", None),
        ];
        for (header, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, header.parse().expect("a header"));
            assert_eq!(bearer(&headers), expected, "{header:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn an_authenticated_caller_is_in_the_group_of_all_of_them_once() {
        let caller = |name: &str, groups: &[&str]| Caller {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Caller::default()
        };
        let table: &[(&str, &[&str], &[&str])] = &[
            ("user", &["a"], &["a", ALL_AUTHENTICATED]),
            ("user", &[ALL_AUTHENTICATED, "a"], &[ALL_AUTHENTICATED, "a"]),
            ("user", &[ALL_UNAUTHENTICATED], &[ALL_UNAUTHENTICATED]),
            (ANONYMOUS, &["a"], &["a"]),
        ];
        for (name, groups, expected) in table {
            assert_eq!(authenticated(caller(name, groups)), caller(name, expected));
        }
    }
}
