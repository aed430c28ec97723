//! Which device plugins may register.
//!
//! upstream: pkg/kubelet/cm/devicemanager/plugin/v1beta1/{server,handler}.go

use pod_model::names::check_qualified_name;

#[cfg(test)]
mod tests;

/// The version of the device plugin API.
pub const API_VERSION: &str = "v1beta1";
const QUOTA_PREFIX: &str = "requests.";

/// Judges a plugin that registers itself at the agent's socket.
pub fn check_request(version: &str, resource: &str) -> Result<(), String> {
    if version != API_VERSION {
        return Err(format!(
            "requested API version {version:?} is not supported by kubelet. Supported version is \
             [\"{API_VERSION}\"]"
        ));
    }
    if is_extended_resource(resource) { Ok(()) } else { Err(invalid_name(resource)) }
}

/// Judges a plugin that was found in the directory of plugins.
pub fn check_plugin(resource: &str, versions: &[String]) -> Result<(), String> {
    if !versions.iter().any(|version| version == API_VERSION) {
        return Err(format!(
            "manager version, {API_VERSION}, is not among plugin supported versions [{}]",
            versions.join(" ")
        ));
    }
    if is_extended_resource(resource) {
        return Ok(());
    }
    Err(format!("invalid name of device plugin resource: {}", invalid_name(resource)))
}

fn invalid_name(resource: &str) -> String {
    format!("the ResourceName {resource:?} is invalid")
}

// upstream: pkg/apis/core/v1/helper/helpers.go (IsExtendedResourceName)
fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with(QUOTA_PREFIX)
        && check_qualified_name(&format!("{QUOTA_PREFIX}{name}")).is_ok()
}
