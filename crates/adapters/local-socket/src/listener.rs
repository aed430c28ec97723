//! A listening unix socket that takes the place of a dead one and never of a living one.
//!
//! Rule: a socket file that somebody answers on is left alone; one that nobody listens on is a dead
//! agent's and goes. What is no socket is never removed.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

/// Listens at `path`; only the owner may connect.
pub(crate) async fn listen(path: &Path) -> Result<UnixListener, String> {
    let told = |what: &str, error: &io::Error| format!("{what} {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(folder);
        made.map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(told("cannot look at", &error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(format!("{} is there and is no socket; it is left alone", path.display()));
        }
        Ok(_) => {
            if UnixStream::connect(path).await.is_ok() {
                return Err(format!("another agent answers on {}", path.display()));
            }
            fs::remove_file(path).map_err(|error| told("cannot remove the dead", &error))?;
        }
    }
    let listener = UnixListener::bind(path).map_err(|error| told("cannot listen on", &error))?;
    // Between the two lines another user may connect where the mask allows it; the credentials of
    // each connection are looked at in any case.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|error| told("cannot set the mode of", &error))?;
    Ok(listener)
}
