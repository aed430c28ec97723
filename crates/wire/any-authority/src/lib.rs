//! Lets gRPC servers take clients that send a socket's path as authority.
//!
//! Clients that dial a unix socket put its path, or nothing, into `:authority`; the HTTP/2 library
//! refuses such requests before any code of ours sees them. A [`Filter`] reads what a client sends,
//! frame by frame, and where a request's authority is no host it writes the request's headers anew
//! with `localhost`. Everything else passes unchanged. [`AnyAuthority`] is the same around a stream.
//!
//! It does not judge anything else: what is wrong with a connection is the server's to find. Only
//! where the filter itself cannot go on (a header block that does not decode) does it end the
//! stream.

mod filter;
mod hpack;
mod stream;

pub use filter::{Filter, FilterError};
pub use stream::AnyAuthority;
