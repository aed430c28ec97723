//! The user of a container's init process, and whether it may be root.
//!
//! Rule: the agent guarantees `runAsNonRoot`. Where numeric ids do not prove it, the container is
//! not created.
//!
//! upstream: pkg/kubelet/kuberuntime/security_context_others.go, helpers.go

use pod_model::pod::{Container, Pod};
use ports::runtime_objects::ImageRecord;

use crate::security::EffectiveSecurity;
use crate::{SetupError, pod_text, refuse};

#[cfg(test)]
mod tests;

/// The image's user: a number or, failing that, a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    Number(i64),
    Name(String),
}

/// An image without a user runs as root.
pub fn of_image(image: &ImageRecord) -> ImageUser {
    match image.uid {
        Some(uid) => ImageUser::Number(uid),
        None if image.user_name.is_empty() => ImageUser::Number(0),
        None => ImageUser::Name(image.user_name.clone()),
    }
}

pub fn check_non_root(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
) -> Result<(), SetupError> {
    let effective = EffectiveSecurity::of(pod, container);
    if effective.run_as_non_root != Some(true) {
        return Ok(());
    }
    let place = format!("(pod: {:?}, container: {})", pod_text(pod), container.name);
    match (effective.run_as_user, image_user) {
        (Some(0), _) => refuse!("container's runAsUser breaks non-root policy {place}"),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Name(name)) => refuse!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify \
             user is non-root {place}"
        ),
        (None, ImageUser::Number(0)) => {
            refuse!("container has runAsNonRoot and image will run as root {place}")
        }
        (None, ImageUser::Number(uid)) if !(1..=i64::from(i32::MAX)).contains(uid) => refuse!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be \
             1-({max})): must be between 0 and {max}, inclusive {place}",
            max = i32::MAX
        ),
        (None, ImageUser::Number(_)) => Ok(()),
    }
}
