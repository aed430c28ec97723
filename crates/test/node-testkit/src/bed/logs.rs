//! Logs of beds: where they are kept after a failure, and their last lines.
//!
//! Rule: logs of a passed test are not kept; those of a failed test are, and their path is printed.
//! Nothing here writes logs: the processes in the bed do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The log file with the output of the bed's command.
pub(super) const OUTPUT: &str = "output.log";

/// `target/bed-logs/<test>`, in the executable's own target directory.
pub(super) fn dir_for(test: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().context("find this executable")?;
    Ok(dir_beside(&executable).join(test.replace("::", ".")))
}

fn dir_beside(executable: &Path) -> PathBuf {
    // target/<profile>/deps/<test> or target/<profile>/<program>
    let profile = executable
        .ancestors()
        .skip(1)
        .find(|dir| dir.file_name().is_some_and(|name| name != "deps"));
    let target = profile.and_then(Path::parent).unwrap_or(Path::new("."));
    target.join("bed-logs")
}

/// The last lines of a file, or why there are none.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all_lines: Vec<&str> = text.lines().collect();
            let start = all_lines.len().saturating_sub(lines);
            all_lines[start..].join("\n")
        }
        Err(error) => format!("({}: {error})", path.display()),
    }
}

/// Copies a bed's logs out of its directory, recursively; only regular files and directories.
pub(super) fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_logs(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("copy {} to {}", entry.path().display(), to.display()))?;
        }
    }
    Ok(())
}
