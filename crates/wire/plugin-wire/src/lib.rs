//! The protocols between a node agent and its plugins: registration, CSI, devices, pod resources.
//!
//! Rule: the code under `generated/` is made from the files in `proto/` by the program in
//! `generate/` and checked in, so that an ordinary build needs no protobuf compiler. To see that
//! the two still agree, from the project's root:
//!
//! ```text
//! cargo run --target-dir target --manifest-path crates/wire/plugin-wire/generate/Cargo.toml -- check
//! ```
//!
//! Does not connect, wait or decide anything: `plugin-sockets` calls and serves.

/// Declares a module with generated code.
macro_rules! generated {
    ($(#[$doc:meta])* $module:ident, $file:literal) => {
        $(#[$doc])*
        pub mod $module {
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
            include!(concat!("generated/", $file));
        }
    };
}

generated!(
    /// `pluginregistration`, version 1: how a plugin in `plugins_registry` introduces itself.
    registration,
    "pluginregistration.rs"
);
generated!(
    /// CSI 1.x: what registration of a driver needs of its identity and node services.
    csi,
    "csi.v1.rs"
);
generated!(
    /// Device plugins: their service, and the agent's registration service.
    device_plugin,
    "v1beta1.rs"
);
generated!(
    /// The pod resources API.
    pod_resources,
    "v1.rs"
);
generated!(
    /// The pod resources API's first version.
    pod_resources_v1alpha1,
    "v1alpha1.rs"
);

/// The largest message that a client of this project accepts, in bytes: that of gRPC in Go, which
/// the reference has.
pub const MESSAGE_SIZE_LIMIT: usize = 4 * 1024 * 1024;
