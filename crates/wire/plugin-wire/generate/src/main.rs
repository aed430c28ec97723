//! Generates the code that `plugin-wire` has checked in, and checks whether it is up to date.
//!
//! Rule: the definitions in `../proto` are the only source of the generated code; nothing in
//! `../src/generated` is edited by hand. Does not run in ordinary builds: this is a workspace of
//! its own, so that no other build compiles a protobuf compiler.
//!
//! From the project's root, `write` makes the files and `check` fails where they differ:
//!
//! ```text
//! cargo run --target-dir target --manifest-path crates/wire/plugin-wire/generate/Cargo.toml -- check
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

/// Of each definition: its file, and the file that is generated from it.
const DEFINITIONS: &[(&str, &str)] = &[
    ("pluginregistration-v1.proto", "pluginregistration.rs"),
    ("csi-v1.proto", "csi.v1.rs"),
    ("deviceplugin-v1beta1.proto", "v1beta1.rs"),
    ("podresources-v1.proto", "v1.rs"),
    ("podresources-v1alpha1.proto", "v1alpha1.rs"),
];

fn main() -> Result<ExitCode> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let definitions = crate_dir.join("proto");
    let generated = crate_dir.join("src/generated");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write"] => generate(&definitions, &generated)?,
        ["check"] => return check(&definitions, &generated),
        _ => bail!("usage: plugin-wire-generate write | check"),
    }
    Ok(ExitCode::SUCCESS)
}

fn generate(definitions: &Path, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, _) in DEFINITIONS {
        let mut compiler = protox::Compiler::new([definitions])?;
        compiler.include_source_info(false).include_imports(true).open_file(name)?;
        tonic_prost_build::configure()
            .build_client(true)
            .build_server(true)
            // A fake or a partial plugin answers Unimplemented to what it does not know.
            .generate_default_stubs(true)
            // One order of map entries, so that equal messages have equal bytes.
            .btree_map(".")
            .emit_rerun_if_changed(false)
            .out_dir(dir)
            .compile_fds(compiler.file_descriptor_set())
            .with_context(|| format!("cannot generate the code of {name}"))?;
    }
    Ok(())
}

fn check(definitions: &Path, checked_in: &Path) -> Result<ExitCode> {
    let fresh = std::env::temp_dir().join(format!("plugin-wire-generate-{}", std::process::id()));
    let outcome = generate(definitions, &fresh).and_then(|()| differences(&fresh, checked_in));
    let _ = fs::remove_dir_all(&fresh);
    let different = outcome?;
    if different.is_empty() {
        println!("the checked-in code is what the definitions generate");
        return Ok(ExitCode::SUCCESS);
    }
    for name in different {
        eprintln!("{} differs from what is generated; run `write`", name.display());
    }
    Ok(ExitCode::FAILURE)
}

/// Names of the files that are in only one of the directories or whose bytes differ.
fn differences(fresh: &Path, checked_in: &Path) -> Result<Vec<PathBuf>> {
    let mut names: Vec<PathBuf> = DEFINITIONS.iter().map(|(_, name)| name.into()).collect();
    for dir in [fresh, checked_in] {
        let entries =
            fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for entry in entries {
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
