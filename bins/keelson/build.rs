//! Embeds the pod supervisor into the binary, if the build was given one.
//!
//! Rule: only `cargo xtask release` gives one (it builds it first, static and small); without it
//! nothing is embedded and the binary looks beside itself. Builds nothing on its own.

use std::path::PathBuf;
use std::{env, fs};

/// The path of the built supervisor.
const GIVEN: &str = "KEELSON_SUPERVISOR_PROGRAM";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(carries_supervisor)");
    println!("cargo::rerun-if-env-changed={GIVEN}");
    println!("cargo::rerun-if-changed=build.rs");
    let Some(program) = env::var_os(GIVEN).filter(|path| !path.is_empty()).map(PathBuf::from)
    else {
        return;
    };
    println!("cargo::rerun-if-changed={}", program.display());
    let dir = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    match fs::copy(&program, dir.join("keelson-pod")) {
        Ok(_) => println!("cargo::rustc-cfg=carries_supervisor"),
        Err(error) => {
            println!("cargo::error={GIVEN} names {}: {error}", program.display());
        }
    }
}
