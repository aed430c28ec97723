//! Lets gRPC servers accept clients that send a socket's path as authority.
//!
//! Clients that dial a unix socket put its path, or nothing, into `:authority`; the HTTP/2 library
//! rejects such requests before any code of ours sees them. A [`AuthorityFilter`] reads what a client sends,
//! frame by frame, and if a request's authority is no host it rewrites the request's headers with
//! `localhost`. Everything else passes unchanged. [`AuthorityFilterStream`] is the same around a stream.
//!
//! It does not validate anything else: that is the server's task. Only if the filter itself cannot
//! go on (a header block that does not decode) does it end the stream.

mod filter;
mod hpack;
mod stream;

pub use filter::{AuthorityFilter, FilterError};
pub use stream::AuthorityFilterStream;
