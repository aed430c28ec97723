//! The node's certificates and keys, in upstream's pki directory.
//!
//! Rule: names, links and modes are upstream's, so that either kubelet continues with what the other
//! left. A certificate is put to use only with the key that it is for, and by one rename. Keys are
//! readable by their owner only and appear in no message. Decides nothing about when or for what a
//! certificate is requested.
//!
//! upstream: client-go util/certificate/certificate_store.go

mod certificate_dir;
mod parse;
mod signing_request;

pub use certificate_dir::CertificateDir;
pub use parse::certificate_facts;
