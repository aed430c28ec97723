//! Which certificates a node asks its cluster for, when, and what the answers mean.
//!
//! Rule: pure; the time and every random number come in as values. Subjects, signers, usages and
//! times are upstream's (client-go util/certificate, pkg/kubelet/certificate). Touches no key.

mod expiry;
mod request;
mod rotation;

pub use expiry::{ClientState, Verdict, server_answers, verdict};
pub use request::{
    CertificatePurpose, CsrAnswer, client_template, csr_name, csr_object, read_answer,
    serving_template,
};
pub use rotation::{CertificateStep, attempt_pause, next_step, poll_pause, satisfies};
