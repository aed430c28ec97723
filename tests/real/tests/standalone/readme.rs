//! The README's first command as a new user types it: `./dev run`, on a machine that has neither
//! containerd nor runc nor a network. It runs in a bed, where no other program uses port 8080.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn the_first_command_of_the_readme_works() -> Result<()> {
    let readme = std::fs::read_to_string(Path::new(PROJECT).join("README.md"))?;
    let first = readme.split("```sh\n").nth(1).and_then(|block| block.split_whitespace().next());
    ensure!(first == Some("./dev"), "README's first command is {first:?}");
    // What the command would build first; a bed has no network for it.
    programs::build("keelson", "keelson")?;
    BedTest::new().deadline(Duration::from_mins(3)).run(|bed| {
        let output = Command::new("./dev")
            .arg("run")
            .current_dir(PROJECT)
            .env("TMPDIR", bed.dir())
            .stdin(Stdio::null())
            .output()
            .context("./dev run")?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let all = format!("{}\n{stdout}\n{stderr}", output.status);
        ensure!(output.status.success(), "{all}");
        for words in ["http://127.0.0.1:8080/ says: ", "keelson exec web", "keelson logs web"] {
            ensure!(stderr.contains(words), "no {words:?} in {all}");
        }
        // What the pod says to `exec`, on its own.
        ensure!(stdout.contains("Running") && stdout.contains("\nhello from web"), "{all}");
        let left: Vec<_> = std::fs::read_dir(bed.dir())?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("tmp."))
            .collect();
        ensure!(left.is_empty(), "{left:?} stays behind: {all}");
        Ok(())
    })
}
