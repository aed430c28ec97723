//! The API server and the credentials: kubeconfig, `--master`, or the pod's service account.
//!
//! Rule: as client-go: a kubeconfig counts, the address of `--master` wins over its own; without
//! both, the service account of the pod that this process runs in.

use crate::config_files;
use crate::environment::Environment;
use anyhow::{Context, Result, anyhow, bail};
use apiserver_client::access::{Impersonation, ServerAddress, Trust};
use apiserver_client::{ApiClient, ClientOptions, ClusterAccess, RateLimit, parse_kubeconfig};
use std::path::Path;
use std::time::Duration;

/// The directory in which a pod finds its token and CA.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The access that a kubeconfig file describes.
pub(super) fn of_file(path: &str, working_directory: &Path) -> Result<ClusterAccess> {
    let path = working_directory.join(path);
    let file = config_files::read_file(&path).map_err(|error| anyhow!("{error}"))?;
    Ok(parse_kubeconfig(&file.bytes, &path, None)?)
}

/// The access of the pod that this process runs in; none if it runs in no pod.
pub(super) fn of_pod(environment: &Environment) -> Option<Result<ClusterAccess>> {
    let (host, port) = environment.cluster_service.as_ref()?;
    let dir = Path::new(SERVICE_ACCOUNT);
    let namespace = std::fs::read_to_string(dir.join("namespace")).unwrap_or_default();
    let access = ClusterAccess::in_cluster(host, port, dir, namespace.trim());
    Some(access.map_err(|error| anyhow!("{error}")))
}

/// The access for the controllers themselves.
pub(super) fn main(
    kubeconfig: &str,
    master: &str,
    environment: &Environment,
    working_directory: &Path,
) -> Result<ClusterAccess> {
    let address = |has_material: bool| {
        ServerAddress::parse(master, has_material).map_err(|error| anyhow!("--master: {error}"))
    };
    match (kubeconfig, master) {
        ("", "") => of_pod(environment)
            .context("expected --kubeconfig or --master: this process runs in no pod")?,
        ("", _) => Ok(ClusterAccess {
            server: address(false)?,
            proxy: None,
            trust: Trust::System,
            tls_server_name: None,
            certificate: None,
            renewed_certificate: None,
            token: None,
            exec: None,
            impersonation: Impersonation::default(),
            namespace: "default".to_owned(),
        }),
        (file, _) => {
            let mut access = of_file(file, working_directory).context("--kubeconfig")?;
            if !master.is_empty() {
                access.server = address(true)?;
            }
            Ok(access)
        }
    }
}

/// The longest delay until a change of a node or its lease is read.
const LONGEST_STRIDE: Duration = Duration::from_millis(100);

/// A client with this rate and burst; None for no limit. It uses the environment's proxy where the
/// kubeconfig names none. Heartbeats are read in batches, in a small part of the grace period of a
/// node.
pub(super) fn client(
    access: ClusterAccess,
    rate: Option<(f32, u32)>,
    monitor_grace: Duration,
    environment: &Environment,
) -> Result<ApiClient> {
    let access =
        access.with_proxy_from(&environment.proxies).map_err(|error| anyhow!("{error}"))?;
    let rate = match rate {
        None => None,
        Some((per_second, at_once)) if per_second > 0.0 => {
            Some(RateLimit { per_second: f64::from(per_second), burst: at_once })
        }
        Some(_) => bail!("a rate of nothing"),
    };
    let options = ClientOptions {
        user_agent: format!("keelson-node-controller/{}", env!("CARGO_PKG_VERSION")),
        field_manager: "keelson-node-controller".to_owned(),
        rate,
        deadline: Duration::from_secs(10),
        heartbeat_batch_interval: (monitor_grace / 40).min(LONGEST_STRIDE),
        ..ClientOptions::default()
    };
    ApiClient::new(access, options).map_err(|error| anyhow!("{error}"))
}
