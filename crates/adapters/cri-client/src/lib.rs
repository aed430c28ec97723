//! Calls a CRI v1 runtime over a unix socket, every call with a deadline.
