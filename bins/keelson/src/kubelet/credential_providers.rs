//! The plugins of a `CredentialProviderConfig`, as the agent's decisions and the runner need them.
//!
//! Rule: conversion only; the plugins' existence was checked when the configuration was read.

use credential_programs::{Invocation, ProgramFolder};
use node_config::NodeConfig;
use node_config::credential_provider::CredentialProvider as Configured;
use node_policy::credential_providers::{AccountToken, CredentialProvider};
use std::path::Path;
use tracing::warn;

pub(super) fn providers(config: &NodeConfig) -> Vec<CredentialProvider> {
    config.credential_providers().providers.iter().map(provider).collect()
}

fn provider(said: &Configured) -> CredentialProvider {
    let account_token = match &said.token_attributes {
        None => AccountToken::Unused,
        Some(token) if token.require_service_account => AccountToken::Required,
        Some(_) => AccountToken::Optional,
    };
    if account_token != AccountToken::Unused {
        warn!(
            provider = said.name,
            required = account_token == AccountToken::Required,
            "Without an API server there are no tokens of service accounts for this credential \
             provider; it is asked for pods without an account only, and not at all if it \
             requires one"
        );
    }
    CredentialProvider {
        name: said.name.clone(),
        match_images: said.match_images.clone(),
        default_cache_duration: said.default_cache_duration,
        message_version: said.api_version.clone(),
        account_token,
    }
}

pub(super) fn programs(config: &NodeConfig) -> ProgramFolder {
    let folder = Path::new(&config.flags().image_credential_provider_bin_dir);
    let invocations = config.credential_providers().providers.iter().map(|provider| {
        let variables = provider.env.iter();
        let environment = variables.map(|each| (each.name.clone(), each.value.clone()));
        let invocation =
            Invocation { arguments: provider.args.clone(), environment: environment.collect() };
        (provider.name.clone(), invocation)
    });
    ProgramFolder::new(folder, invocations.collect())
}
