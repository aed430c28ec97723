//! The client: which hosts to ask for an image, with which credentials, and which redirects to
//! follow.
//!
//! Rule: mirrors are tried in order, then the registry itself; the first host that has an image
//! serves all of it. Plain HTTP is used on loopback only, unless configured otherwise; a redirect
//! from TLS to plain HTTP is never followed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RANGE};
use image_store::{Descriptor, Digest, ImageReference};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::address::{HttpUrl, is_loopback_host};
use crate::challenge::{self, Challenge};
use crate::connection::{HttpRequest, HttpResponse, send};
use crate::error::{Error, Result};
use crate::login::{Login, RegistryCredentials};
use crate::tokens::{Token, TokenCache, basic, escaped};

/// Accepted manifest media types.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
/// Usual paths of the system's trusted certificates.
const TRUSTED_CERTIFICATE_PATHS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const MAX_REDIRECTS: usize = 5;
const MAX_TOKEN_SIZE: usize = 1 << 20;

/// Limits on a registry's responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub manifest_bytes: usize,
    /// Timeout for a document, a token or an error body.
    pub document_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { manifest_bytes: 8 << 20, document_time: Duration::from_secs(120) }
    }
}

/// Settings for one registry.
#[derive(Debug, Clone, Default)]
pub struct HostSettings {
    /// Tried in order before the registry itself, for example `http://127.0.0.1:5000`.
    pub mirrors: Vec<String>,
    pub mirrors_only: bool,
    pub plain_http: Option<bool>,
    /// PEM certificates to trust beside the system's.
    pub certificates: Vec<u8>,
}

/// Clones share tokens.
#[derive(Debug, Clone)]
pub struct RegistryClient {
    hosts: Arc<BTreeMap<String, HostSettings>>,
    machine: Arc<RootCertStore>,
    tls: Arc<BTreeMap<String, Arc<ClientConfig>>>,
    default_tls: Arc<ClientConfig>,
    tokens: Arc<TokenCache>,
    pub(crate) limits: Limits,
}

/// An image found at a host, with its top document.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub descriptor: Descriptor,
    /// The document, verified against the descriptor.
    pub document: Vec<u8>,
    pub(crate) endpoint: RegistryEndpoint,
}

/// A repository at one host, with the credentials for it.
#[derive(Debug, Clone)]
pub(crate) struct RegistryEndpoint {
    /// The registry in the image's name, which selects the settings.
    registry: String,
    /// `/v2/` of the host.
    base: HttpUrl,
    repository: String,
    /// For a mirror: the registry that it mirrors.
    namespace: Option<String>,
    credentials: RegistryCredentials,
}

impl RegistryClient {
    /// `hosts` is keyed by the registry in image names.
    pub fn new(hosts: BTreeMap<String, HostSettings>, limits: Limits) -> Result<Self> {
        let mut machine = RootCertStore::empty();
        if let Some(bundle) =
            TRUSTED_CERTIFICATE_PATHS.iter().find_map(|path| std::fs::read(path).ok())
        {
            machine.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).flatten());
        }
        let mut tls = BTreeMap::new();
        for (host, settings) in &hosts {
            if settings.certificates.is_empty() {
                continue;
            }
            let mut roots = machine.clone();
            let certificates = CertificateDer::pem_slice_iter(&settings.certificates).flatten();
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err(Error::Settings {
                    what: format!("certificates of {host}"),
                    reason: "no certificate in PEM form is there".to_owned(),
                });
            }
            tls.insert(host.clone(), client_config(roots)?);
        }
        let default_tls = client_config(machine.clone())?;
        Ok(Self {
            hosts: Arc::new(hosts),
            machine: Arc::new(machine),
            tls: Arc::new(tls),
            default_tls,
            tokens: Arc::default(),
            limits,
        })
    }

    /// Number of trusted system certificates.
    pub fn trusted(&self) -> usize {
        self.machine.len()
    }

    /// Every host that may have the image, in order.
    fn endpoints(&self, name: &ImageReference, login: &Login) -> Result<Vec<RegistryEndpoint>> {
        let registry = name.registry();
        let settings = self.hosts.get(registry).cloned().unwrap_or_default();
        let endpoint = |base: HttpUrl, namespace: Option<String>| RegistryEndpoint {
            registry: registry.to_owned(),
            repository: name.repository().to_owned(),
            namespace,
            // Selected by the contacted host: a mirror is not the registry.
            credentials: login.at(&base),
            base,
        };
        let mut all = Vec::new();
        for mirror in &settings.mirrors {
            let address = HttpUrl::parse(mirror).map_err(|error| Error::Settings {
                what: format!("mirror of {registry}"),
                reason: error.to_string(),
            })?;
            let path = address.path.trim_end_matches('/');
            let path = if path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") };
            all.push(endpoint(address.at(&format!("{path}/")), Some(registry.to_owned())));
        }
        if !settings.mirrors_only {
            // The registry's name differs from its host.
            let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
            let alone = host.rsplit_once(':').map_or(host, |(alone, _)| alone);
            let plain = settings
                .plain_http
                .unwrap_or_else(|| is_loopback_host(alone) && settings.certificates.is_empty());
            let scheme = if plain { "http" } else { "https" };
            all.push(endpoint(HttpUrl::parse(&format!("{scheme}://{host}/v2/"))?, None));
        }
        Ok(all)
    }

    /// Finds an image: tries each host in order until one has it.
    pub async fn resolve(
        &self,
        name: &ImageReference,
        login: impl Into<Login>,
    ) -> Result<Resolved> {
        let mut first = None;
        for endpoint in self.endpoints(name, &login.into())? {
            match self.manifest(&endpoint, name).await {
                Ok(resolved) => return Ok(resolved),
                Err(error) => {
                    tracing::debug!(host = %endpoint.base, %error, "no image here");
                    // The registry's own error matters most, and it comes last.
                    first = Some(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| Error::Settings {
            what: format!("registry {}", name.registry()),
            reason: "it may only be reached by mirrors, and has none".to_owned(),
        }))
    }

    async fn manifest(
        &self,
        endpoint: &RegistryEndpoint,
        name: &ImageReference,
    ) -> Result<Resolved> {
        let wanted = match (name.digest(), name.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.to_owned(),
            (None, None) => "latest".to_owned(),
        };
        let what = format!("{} at {}", name, endpoint.base.origin());
        let mut answer = self.get(endpoint, &format!("manifests/{wanted}"), None).await?;
        let kind = answer.header("content-type").unwrap_or_default();
        let media_type = kind.split(';').next().unwrap_or_default().trim().to_owned();
        let document =
            answer.all(&what, (self.limits.manifest_bytes, self.limits.document_time)).await?;
        let digest = Digest::of(&document);
        if let Some(expected) = name.digest().filter(|expected| **expected != digest) {
            return Err(Error::Answer {
                what,
                reason: format!("the document has the digest {digest}; {expected} was asked for"),
            });
        }
        let descriptor = Descriptor {
            media_type,
            digest,
            size: document.len() as u64,
            platform: None,
            annotations: BTreeMap::new(),
        };
        Ok(Resolved { descriptor, document, endpoint: endpoint.clone() })
    }

    /// Opens content at `offset`. Status 206 means that the response starts there.
    pub(crate) async fn open(
        &self,
        endpoint: &RegistryEndpoint,
        descriptor: &Descriptor,
        offset: u64,
    ) -> Result<HttpResponse> {
        let document = descriptor.media_type.contains("manifest")
            || descriptor.media_type.contains("image.index");
        let kind = if document { "manifests" } else { "blobs" };
        self.get(endpoint, &format!("{kind}/{}", descriptor.digest), Some(offset)).await
    }

    /// A GET below the repository, authenticated as the host requires, redirects followed.
    async fn get(
        &self,
        endpoint: &RegistryEndpoint,
        path: &str,
        offset: Option<u64>,
    ) -> Result<HttpResponse> {
        let mut target = format!("{}{}/{path}", endpoint.base.path, endpoint.repository);
        if let Some(namespace) = &endpoint.namespace {
            target.push_str(&format!("?ns={}", escaped(namespace)));
        }
        let mut request = HttpRequest::get(endpoint.base.at(&target));
        if path.starts_with("manifests/") {
            request.headers.insert(ACCEPT, HeaderValue::from_static(MANIFESTS));
        }
        if let Some(offset) = offset.filter(|offset| *offset > 0)
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={offset}-"))
        {
            request.headers.insert(RANGE, range);
        }
        let key = format!("{} {}", endpoint.base.origin(), endpoint.repository);
        let key = format!("{key} {}", fingerprint(&endpoint.credentials));
        if let Some(token) = self.tokens.get(&key) {
            authorize(&mut request, &token)?;
        } else if let RegistryCredentials::Token { token } = &endpoint.credentials {
            authorize(&mut request, &format!("Bearer {token}"))?;
        }
        let (answer, at) = self.follow(endpoint, request.clone()).await?;
        // Only the original host may request credentials: a redirect's target would name its own
        // token service and receive the password.
        if answer.status != 401 || !at.same_origin(&request.address) {
            return self.check_status(endpoint, answer, &request.address).await;
        }
        // A challenge: the cached token is not valid any more.
        self.tokens.forget(&key);
        let headers: Vec<String> = answer
            .headers
            .get_all("www-authenticate")
            .iter()
            .filter_map(|value| value.to_str().ok().map(str::to_owned))
            .collect();
        let authorization = match challenge::best(&headers) {
            Some(Challenge::Bearer { realm, service, scope }) => {
                let token = self.token(endpoint, &realm, service, scope).await?;
                self.tokens.store(&key, &token)
            }
            Some(Challenge::Basic) => match &endpoint.credentials {
                RegistryCredentials::Password { user, password } => basic(user, password),
                _ => return self.check_status(endpoint, answer, &request.address).await,
            },
            None => return self.check_status(endpoint, answer, &request.address).await,
        };
        drop(answer);
        authorize(&mut request, &authorization)?;
        let (answer, _) = self.follow(endpoint, request.clone()).await?;
        self.check_status(endpoint, answer, &request.address).await
    }

    /// Follows redirects and returns the last URL. Credentials are not sent to another host.
    async fn follow(
        &self,
        endpoint: &RegistryEndpoint,
        mut request: HttpRequest,
    ) -> Result<(HttpResponse, HttpUrl)> {
        let origin = request.address.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer = send(&request, &self.tls_for(endpoint)).await?;
            let moved = matches!(answer.status, 301 | 302 | 303 | 307 | 308);
            let Some(location) = answer.header("location").filter(|_| moved) else {
                return Ok((answer, request.address));
            };
            let next = request.address.follow(&location)?;
            if request.address.secure && !next.secure {
                return Err(Error::Answer {
                    what: request.address.to_string(),
                    reason: format!("redirects from TLS to plain HTTP at {}", next.origin()),
                });
            }
            if !next.same_origin(&origin) {
                // Only the form for a token service has a body, and it contains a secret.
                if !request.body.is_empty() {
                    return Err(Error::Answer {
                        what: request.address.to_string(),
                        reason: format!(
                            "redirects to {}, which would show it the identity token",
                            next.origin()
                        ),
                    });
                }
                request.headers.remove(AUTHORIZATION);
            }
            request.address = next;
        }
        Err(Error::Answer {
            what: origin.to_string(),
            reason: format!("redirects more than {MAX_REDIRECTS} times"),
        })
    }

    /// A successful response, or the registry's error.
    async fn check_status(
        &self,
        endpoint: &RegistryEndpoint,
        answer: HttpResponse,
        address: &HttpUrl,
    ) -> Result<HttpResponse> {
        let what = address.to_string();
        match answer.status {
            200 | 206 => Ok(answer),
            404 => Err(Error::NotFound { what }),
            status @ (401 | 403) => Err(Error::Denied {
                what,
                status,
                response_text: self.response_text(endpoint, answer).await,
            }),
            status => Err(Error::Status {
                what,
                status,
                response_text: self.response_text(endpoint, answer).await,
            }),
        }
    }

    /// The text of an error response, without secrets.
    async fn response_text(&self, endpoint: &RegistryEndpoint, mut answer: HttpResponse) -> String {
        endpoint.credentials.redact(answer.response_text(self.limits.document_time).await)
    }

    fn tls_for(&self, endpoint: &RegistryEndpoint) -> Arc<ClientConfig> {
        self.tls.get(&endpoint.registry).map_or_else(|| Arc::clone(&self.default_tls), Arc::clone)
    }

    /// Requests a token from the token service that the registry names.
    async fn token(
        &self,
        endpoint: &RegistryEndpoint,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<Token> {
        let mut address = HttpUrl::parse(realm)?;
        if endpoint.base.secure && !address.secure {
            return Err(Error::Answer {
                what: endpoint.base.origin(),
                reason: "its token service speaks plain HTTP, which would show the password"
                    .to_owned(),
            });
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", endpoint.repository));
        let mut fields = vec![("scope", scope)];
        fields.extend(service.map(|service| ("service", service)));
        let mut request = if let RegistryCredentials::Identity { token } = &endpoint.credentials {
            fields.push(("grant_type", "refresh_token".to_owned()));
            fields.push(("client_id", "keelson".to_owned()));
            fields.push(("refresh_token", token.clone()));
            let mut request = HttpRequest::get(address);
            request.method = hyper::Method::POST;
            request.headers.insert(
                CONTENT_TYPE,
                HeaderValue::from_static("application/x-www-form-urlencoded"),
            );
            request.body = form(&fields).into_bytes().into();
            request
        } else {
            let joint = if address.path.contains('?') { '&' } else { '?' };
            address.path = format!("{}{joint}{}", address.path, form(&fields));
            HttpRequest::get(address)
        };
        if let RegistryCredentials::Password { user, password } = &endpoint.credentials {
            authorize(&mut request, &basic(user, password))?;
        }
        let what = format!("token service {}", request.address);
        let (mut answer, _) = self.follow(endpoint, request).await?;
        if answer.status != 200 {
            let (status, response_text) =
                (answer.status, self.response_text(endpoint, answer).await);
            return Err(Error::Denied { what, status, response_text });
        }
        let bytes = answer.all(&what, (MAX_TOKEN_SIZE, self.limits.document_time)).await?;
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Answer { what: what.clone(), reason: error.to_string() })?;
        if token.text().is_empty() {
            return Err(Error::Answer { what, reason: "it gave no token".to_owned() });
        }
        Ok(token)
    }
}

fn client_config(roots: RootCertStore) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Settings { what: "TLS".to_owned(), reason: error.to_string() })?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn authorize(request: &mut HttpRequest, text: &str) -> Result<()> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Error::Settings {
        what: format!("credentials for {}", request.address.origin()),
        reason: "they have characters that no header can carry".to_owned(),
    })?;
    value.set_sensitive(true);
    request.headers.insert(AUTHORIZATION, value);
    Ok(())
}

fn form(fields: &[(&str, String)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    pairs.join("&")
}

/// Distinguishes credentials without storing them.
fn fingerprint(credentials: &RegistryCredentials) -> String {
    let text = match credentials {
        RegistryCredentials::None => return "none".to_owned(),
        RegistryCredentials::Password { user, password } => format!("p\0{user}\0{password}"),
        RegistryCredentials::Identity { token } => format!("i\0{token}"),
        RegistryCredentials::Token { token } => format!("t\0{token}"),
    };
    Digest::of(text.as_bytes()).to_string()
}
