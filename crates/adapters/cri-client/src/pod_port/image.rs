//! Images: names and credentials as CRI messages, and image records from CRI.
//!
//! Rule: an image that does not exist is a result, not an error; one without an id is an error,
//! since it could not be used.

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{ImageRecord, ImageSpec, PullRequest, RegistryLogin};

use super::{malformed_response, named, sandbox};
use crate::client::CriClient;

pub(super) fn spec_to_wire(spec: &ImageSpec) -> v1::ImageSpec {
    v1::ImageSpec {
        image: spec.image.clone(),
        annotations: spec.annotations.clone(),
        user_specified_image: spec.user_specified_image.clone(),
        runtime_handler: spec.runtime_handler.clone(),
        image_ref: String::new(),
    }
}

pub(super) fn spec_from_wire(spec: v1::ImageSpec) -> ImageSpec {
    ImageSpec {
        image: spec.image,
        user_specified_image: spec.user_specified_image,
        runtime_handler: spec.runtime_handler,
        annotations: spec.annotations,
    }
}

pub(super) fn record(image: v1::Image) -> ImageRecord {
    ImageRecord {
        id: image.id,
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        uid: image.uid.map(|uid| uid.value),
        user_name: image.username,
        pinned: image.pinned,
    }
}

pub(super) fn login_to_wire(login: &RegistryLogin) -> v1::AuthConfig {
    v1::AuthConfig {
        username: login.username.clone(),
        password: login.password.clone(),
        auth: login.auth.clone(),
        server_address: login.server_address.clone(),
        identity_token: login.identity_token.clone(),
        registry_token: login.registry_token.clone(),
    }
}

pub(super) async fn status(
    client: &CriClient,
    image: &ImageSpec,
) -> Result<Option<ImageRecord>, ContainerRuntimeError> {
    let request = v1::ImageStatusRequest { image: Some(spec_to_wire(image)), verbose: false };
    let answer = match client.image_status(request).await {
        Err(ContainerRuntimeError::NotFound { .. }) => return Ok(None),
        answer => answer?,
    };
    let found = answer.image.map(record);
    if found.as_ref().is_some_and(|found| found.id.is_empty()) {
        let message = format!("the runtime has image {:?} but reported no id of it", image.image);
        return Err(malformed_response("ImageStatus", message));
    }
    Ok(found)
}

pub(super) async fn pull(
    client: &CriClient,
    request: &PullRequest,
) -> Result<String, ContainerRuntimeError> {
    let mut client = client.clone();
    if let Some(limit) = request.limit {
        client.limits.pull = limit;
    }
    let wire = v1::PullImageRequest {
        image: Some(spec_to_wire(&request.image)),
        auth: request.login.as_ref().map(login_to_wire),
        sandbox_config: request.sandbox.as_ref().map(sandbox::to_wire),
    };
    let reference = client.pull_image(wire).await?.image_ref;
    named("PullImage", &format!("image {:?}", request.image.image), reference)
}
