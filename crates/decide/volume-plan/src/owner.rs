//! The owner of a token's file.
//!
//! Rule: the user that all containers run as; none where they differ or one does not say.
//!
//! upstream: pkg/volume/util/util.go (FsUserFrom)

use pod_model::pod::Pod;

#[cfg(test)]
mod tests;

pub fn single_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.security_context.as_deref().and_then(|context| context.run_as_user);
    let mut single = None;
    for (_, _, container) in pod.spec.all_containers() {
        let own = container.security_context.as_deref().and_then(|context| context.run_as_user);
        let user = own.or(of_pod)?;
        if single.is_some_and(|known| known != user) {
            return None;
        }
        single = Some(user);
    }
    single.and_then(|user| u32::try_from(user).ok()).filter(|user| *user != u32::MAX)
}
