//! The plugins of a `CredentialProviderConfig`, as the agent's decisions and the runner need them.
//!
//! Rule: conversion only; the plugins' existence was checked when the configuration was read.

use credential_programs::{Invocation, ProgramDir};
use node_config::NodeConfig;
use node_config::credential_provider::CredentialProvider as Configured;
use node_policy::credential_providers::{CredentialPlugin, ServiceAccountTokenUse};
use std::path::Path;
use tracing::warn;

pub(super) fn providers(config: &NodeConfig) -> Vec<CredentialPlugin> {
    config.credential_providers().providers.iter().map(provider).collect()
}

fn provider(configured: &Configured) -> CredentialPlugin {
    let service_account_token = match &configured.token_attributes {
        None => ServiceAccountTokenUse::Unused,
        Some(token) if token.require_service_account => ServiceAccountTokenUse::Required,
        Some(_) => ServiceAccountTokenUse::Optional,
    };
    if service_account_token != ServiceAccountTokenUse::Unused {
        warn!(
            provider = configured.name,
            required = service_account_token == ServiceAccountTokenUse::Required,
            "Without an API server there are no tokens of service accounts for this credential \
             provider; it is asked for pods without an account only, and not at all if it \
             requires one"
        );
    }
    CredentialPlugin {
        name: configured.name.clone(),
        match_images: configured.match_images.clone(),
        default_cache_duration: configured.default_cache_duration,
        message_version: configured.api_version.clone(),
        service_account_token,
    }
}

pub(super) fn programs(config: &NodeConfig) -> ProgramDir {
    let dir = Path::new(&config.flags().image_credential_provider_bin_dir);
    let invocations = config.credential_providers().providers.iter().map(|provider| {
        let variables = provider.env.iter();
        let environment = variables.map(|each| (each.name.clone(), each.value.clone()));
        let invocation =
            Invocation { arguments: provider.args.clone(), environment: environment.collect() };
        (provider.name.clone(), invocation)
    });
    ProgramDir::new(dir, invocations.collect())
}
