//! The client against a scripted peer on the loopback: what it says, and what it makes of answers
//! that are late, cut, endless, wrong or too large.

mod peer;
mod requests;
mod rotation;
mod watches;
