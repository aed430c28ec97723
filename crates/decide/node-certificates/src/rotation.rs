//! When a certificate is renewed.
//!
//! Rule: pure. At a random point between 70 % and 90 % of its life, so that nodes that joined
//! together do not renew together; at once if there is none, or none for the subject that is wanted
//! now. A certificate from a clock that disagrees is judged by the same times.
//!
//! upstream: client-go util/certificate/certificate_manager.go

use std::time::Duration;

use ports::{ApiTime, CertificateFacts, CertificateTemplate};

#[cfg(test)]
mod tests;

/// Upstream's delays after an attempt that failed.
const ATTEMPT_PAUSES: [u64; 5] = [2, 4, 8, 16, 32];
/// Between reads of a request that is pending, while it is young.
const FIRST_POLL_SECONDS: u64 = 1;
const LONGEST_POLL: Duration = Duration::from_secs(15);

/// What to do about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStep {
    /// Ask for a certificate with the template.
    Request,
    /// Look again at this time.
    WaitUntil(ApiTime),
    /// Wait for another template.
    WaitForTemplate,
}

/// The next step. `template` is None while it is not known for what a certificate should be;
/// `thousandths` is a random number below 1 000, the same for as long as the certificate is.
pub fn next_step(
    current: Option<&CertificateFacts>,
    template: Option<&CertificateTemplate>,
    now: ApiTime,
    thousandths: u16,
) -> CertificateStep {
    let Some(template) = template else { return CertificateStep::WaitForTemplate };
    match current.filter(|current| satisfies(current, template)) {
        None => CertificateStep::Request,
        Some(current) => match deadline(current, thousandths) {
            deadline if deadline <= now => CertificateStep::Request,
            deadline => CertificateStep::WaitUntil(deadline),
        },
    }
}

/// Whether a certificate is for everything that the template names; it may be for more.
pub fn satisfies(current: &CertificateFacts, template: &CertificateTemplate) -> bool {
    let subject = &current.subject;
    subject.common_name == template.common_name
        && template.organizations.iter().all(|name| subject.organizations.contains(name))
        && template.dns_names.iter().all(|name| subject.dns_names.contains(name))
        && template.ip_addresses.iter().all(|ip| subject.ip_addresses.contains(ip))
}

/// 70 % of the life, and up to 20 % more.
fn deadline(current: &CertificateFacts, thousandths: u16) -> ApiTime {
    let (from, to) = (current.not_before.nanos(), current.not_after.nanos());
    let life = i128::from(to) - i128::from(from);
    let after = life * (7_000 + 2 * i128::from(thousandths.min(999))) / 10_000;
    let at = i128::from(from) + after;
    ApiTime::from_nanos(i64::try_from(at).unwrap_or(i64::MAX))
}

/// The pause after the given number of failed attempts in a row.
pub fn attempt_pause(failed: usize) -> Duration {
    let [.., longest] = ATTEMPT_PAUSES;
    let at = failed.saturating_sub(1);
    Duration::from_secs(ATTEMPT_PAUSES.get(at).copied().unwrap_or(longest))
}

/// The pause after the given number of reads of a pending request.
pub fn poll_pause(reads: u32) -> Duration {
    let doubled = FIRST_POLL_SECONDS << (reads / 5).min(8);
    Duration::from_secs(doubled).min(LONGEST_POLL)
}
