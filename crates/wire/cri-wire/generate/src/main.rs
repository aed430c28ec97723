//! Generates the code that `cri-wire` has checked in, and checks whether it is up to date.
//!
//! Rule: the definition in `../proto` is the only source of the generated code; nothing in
//! `../src/generated` is edited by hand. Does not run in ordinary builds: this is a workspace of
//! its own, so that no other build compiles a protobuf compiler.
//!
//! From the project's root:
//!
//! ```text
//! cargo run --target-dir target --manifest-path crates/wire/cri-wire/generate/Cargo.toml -- check
//! ```
//!
//! Verbs: `write` makes the generated files from the definition; `check` fails when they differ
//! from what `write` would make; `define FILE` makes the definition from another release's
//! `.proto`, keeping names, numbers and types and nothing else.

mod definition;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use prost::Message;
use prost_types::FileDescriptorSet;

const DEFINITION: &str = "runtime-v1.proto";
const DESCRIPTORS: &str = "runtime.v1.descriptors.bin";
const USAGE: &str = "usage: cri-wire-generate write | check | define FILE";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let definition = crate_dir.join("proto").join(DEFINITION);
    let generated = crate_dir.join("src/generated");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["define", file] => define(Path::new(file), &definition)?,
        ["write"] => generate(&definition, &generated)?,
        ["check"] => return check(&definition, &generated),
        _ => bail!(USAGE),
    }
    Ok(ExitCode::SUCCESS)
}

fn define(foreign: &Path, definition: &Path) -> Result<()> {
    let files = compile(foreign)?;
    let [file] = &files.file[..] else { bail!("{} imports other files", foreign.display()) };
    fs::write(definition, definition::print(file)?)
        .with_context(|| format!("cannot write {}", definition.display()))
}

/// Parses one `.proto` into descriptors that carry no comments and no positions.
fn compile(file: &Path) -> Result<FileDescriptorSet> {
    let dir = file.parent().unwrap_or(Path::new("."));
    let name = file.file_name().with_context(|| format!("{} names no file", file.display()))?;
    let mut compiler = protox::Compiler::new([dir])?;
    compiler.include_source_info(false).include_imports(true).open_file(name)?;
    Ok(compiler.file_descriptor_set())
}

fn generate(definition: &Path, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let descriptors = compile(definition)?;
    fs::write(dir.join(DESCRIPTORS), descriptors.encode_to_vec())
        .with_context(|| format!("cannot write {DESCRIPTORS}"))?;
    let mut messages = tonic_prost_build::Config::new();
    // Every message knows its full name, so that it is not written down beside its type.
    messages.enable_type_names();
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // A fake or a partial runtime answers Unimplemented to what it does not know.
        .generate_default_stubs(true)
        // One order of map entries, so that equal messages have equal bytes.
        .btree_map(".")
        // Holds credentials; its Debug is written by hand, without them.
        .skip_debug([".runtime.v1.AuthConfig"])
        .emit_rerun_if_changed(false)
        .out_dir(dir)
        .compile_fds_with_config(descriptors, messages)
        .context("cannot generate the Rust code")
}

fn check(definition: &Path, checked_in: &Path) -> Result<ExitCode> {
    let fresh = std::env::temp_dir().join(format!("cri-wire-generate-{}", std::process::id()));
    let outcome = generate(definition, &fresh).and_then(|()| differences(&fresh, checked_in));
    let _ = fs::remove_dir_all(&fresh);
    let different = outcome?;
    if different.is_empty() {
        println!("the checked-in code is what {DEFINITION} generates");
        return Ok(ExitCode::SUCCESS);
    }
    for name in different {
        eprintln!("{} differs from what is generated; run `write`", name.display());
    }
    Ok(ExitCode::FAILURE)
}

/// Names of the files that are in only one of the directories or whose bytes differ.
fn differences(fresh: &Path, checked_in: &Path) -> Result<Vec<PathBuf>> {
    let mut names: Vec<PathBuf> = Vec::new();
    for dir in [fresh, checked_in] {
        for entry in
            fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?
        {
            names.push(entry?.file_name().into());
        }
    }
    names.sort();
    names.dedup();
    names.retain(|name| {
        let read = |dir: &Path| fs::read(dir.join(name)).ok();
        read(fresh) != read(checked_in)
    });
    Ok(names)
}
