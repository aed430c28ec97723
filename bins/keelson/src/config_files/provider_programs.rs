//! Whether the credential provider plugins that a configuration names exist.
//!
//! Rule: what the kubelet refuses at its start is refused: a plugin directory that does not exist,
//! and a plugin that is no file or not executable. Nothing is run.
//!
//! upstream: pkg/credentialprovider/plugin/plugin.go

use node_config::credential_provider::CredentialProviderConfig;
use node_config::flags::FlagSettings;
use rustix::fs::{Access, access};
use std::path::Path;

/// One line per missing file; relative paths begin at `working_directory`.
pub(crate) fn missing(
    flags: &FlagSettings,
    providers: Option<&CredentialProviderConfig>,
    working_directory: &Path,
) -> Vec<String> {
    const FLAG: &str = "--image-credential-provider-bin-dir";
    if flags.image_credential_provider_bin_dir.is_empty() {
        return Vec::new();
    }
    let dir = working_directory.join(&flags.image_credential_provider_bin_dir);
    if let Err(error) = dir.metadata() {
        return vec![format!("{FLAG}: cannot look into {}: {error}", dir.display())];
    }
    let named = providers.iter().flat_map(|config| &config.providers);
    named
        .filter_map(|provider| {
            let program = dir.join(&provider.name);
            let why = missing_program_error(&program)?;
            Some(format!("{FLAG}: cannot run {}: {why}", program.display()))
        })
        .collect()
}

fn missing_program_error(program: &Path) -> Option<String> {
    match program.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if metadata.is_dir() => {
            Some("it is a directory, expected a program".to_owned())
        }
        Ok(_) => access(program, Access::EXEC_OK).err().map(|error| error.to_string()),
    }
}
