//! The CRI v1 messages and services: the interface between a runtime and its clients.
//!
//! Rule: the code under `generated/` is made from `proto/runtime-v1.proto` by the program in
//! `generate/` and checked in, so that an ordinary build needs no protobuf compiler. To see that
//! the two still agree, from the project's root:
//!
//! ```text
//! cargo run --target-dir target --manifest-path crates/wire/cri-wire/generate/Cargo.toml -- check
//! ```
//!
//! Does not connect, wait or decide anything: `cri-client` calls, a runtime serves.

mod in_process_stream;
mod redaction;

pub use in_process_stream::{AcceptsInProcessStream, InProcessStream, ServeStream};

/// Messages, clients (`runtime_service_client`, …) and servers (`runtime_service_server`, …).
pub mod v1 {
    #![allow(
        missing_debug_implementations,
        unreachable_pub,
        unused_qualifications,
        deprecated,
        clippy::all,
        clippy::pedantic,
        clippy::cognitive_complexity,
        clippy::too_many_lines,
        reason = "generated code"
    )]
    include!("generated/runtime.v1.rs");
}

/// The descriptors of package `runtime.v1`, for converting messages to JSON and back.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/runtime.v1.descriptors.bin");

/// The largest message that either side sends or accepts, in bytes.
// upstream: cri-client pkg/remote_runtime.go
pub const MESSAGE_SIZE_LIMIT: usize = 16 * 1024 * 1024;
