//! How a runtime's pull error is classified.

use super::*;

#[test]
fn cri_error_prefixes_count_at_the_beginning_only() {
    for (why, reason, message) in [
        ("401 Unauthorized", "ErrImagePull", "401 Unauthorized"),
        (
            "RegistryUnavailable: connection refused",
            "RegistryUnavailable",
            "image pull failed for i because the registry is unavailable: connection refused",
        ),
        (
            "SignatureValidationFailed: no key",
            "SignatureValidationFailed",
            "image pull failed for i because the signature validation failed: no key",
        ),
        ("x RegistryUnavailable", "ErrImagePull", "x RegistryUnavailable"),
    ] {
        assert_eq!(classify_pull_error("i", why), (reason, message.to_owned()), "{why}");
    }
}
