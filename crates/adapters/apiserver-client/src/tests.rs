//! The client against a scripted peer on the loopback: what it sends, and how it handles responses
//! that are late, cut off, endless, invalid or too large.

mod objects;
mod peer;
mod proxies;
mod requests;
mod rotation;
mod watches;
