//! Which paths a file of a volume may have.
//!
//! Rule: relative, without `..`, and with a first component that cannot be one of the volume's own
//! names, which begin with two dots. Limits are the kernel's.
//!
//! upstream: pkg/volume/util/atomic_writer.go

use crate::PayloadError;

#[cfg(test)]
mod tests;

const MAX_PATH_BYTES: usize = 4096;
const MAX_NAME_BYTES: usize = 255;

pub fn check_path(path: &str) -> Result<(), PayloadError> {
    let refuse = |why: String| Err(PayloadError(format!("invalid path: {why}")));
    if path.is_empty() {
        return refuse(format!("must not be empty: {path:?}"));
    }
    if path.starts_with('/') {
        return refuse(format!("must be relative path: {path}"));
    }
    if path.len() > MAX_PATH_BYTES {
        return refuse(format!("must be less than or equal to {MAX_PATH_BYTES} characters"));
    }
    if path.contains('\0') {
        return refuse("must not contain a zero byte".to_owned());
    }
    for part in path.split('/') {
        if part == ".." {
            return refuse(format!("must not contain '..': {path}"));
        }
        if part.len() > MAX_NAME_BYTES {
            return refuse(format!(
                "filenames must be less than or equal to {MAX_NAME_BYTES} characters"
            ));
        }
    }
    if path.starts_with("..") {
        return refuse(format!("must not start with '..': {path}"));
    }
    Ok(())
}
