//! A listening unix socket that replaces a stale one and never a live one.
//!
//! Rule: a socket file on which a process answers is left alone; one without a listener was left by
//! a dead agent and is removed. A file that is no socket is never removed.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

/// Listens at `path`; only the owner may connect.
pub(crate) async fn listen(path: &Path) -> Result<UnixListener, String> {
    let describe = |what: &str, error: &io::Error| format!("{what} {}: {error}", path.display());
    if let Some(dir) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(dir);
        made.map_err(|error| format!("cannot create the directory {}: {error}", dir.display()))?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(describe("cannot look at", &error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(format!("{} is there and is no socket; it is left alone", path.display()));
        }
        Ok(_) => {
            if UnixStream::connect(path).await.is_ok() {
                return Err(format!("another agent answers on {}", path.display()));
            }
            fs::remove_file(path).map_err(|error| describe("cannot remove the dead", &error))?;
        }
    }
    let listener =
        UnixListener::bind(path).map_err(|error| describe("cannot listen on", &error))?;
    // Between the two calls another user may connect if the umask allows it; the credentials of
    // each connection are checked in any case.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|error| describe("cannot set the mode of", &error))?;
    Ok(listener)
}
