//! Rules about logging: the agent's own log, its traces, and the log files of pods.
//!
//! upstream: component-base/logs/api/v1, component-base/tracing/api/v1

use pod_model::LogSizeLimit;

use super::url::parse_url;
use super::{ValidationFindings, ValidationInput};
use crate::feature_gates::Gate;
use crate::kubelet_configuration::OutputRouting;

const MOST_VERBOSE: u32 = i32::MAX.cast_unsigned();
const EVERY_REQUEST: i32 = 1_000_000;

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    own_log(input, findings);
    module_verbosity(input, findings);
    let options = &input.settings.logging.options;
    routing(input, "logging.options.text", &options.text, findings);
    routing(input, "logging.options.json", &options.json, findings);
    traces(input, findings);
    pod_logs(input, findings);
}

fn own_log(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let logging = &input.settings.logging;
    findings.one_of("logging.format", &logging.format, &["text", "json"]);
    if logging.format == "json" && !input.gate(Gate::LoggingBetaOptions) {
        findings.refuse("logging.format", "json", "needs the feature gate LoggingBetaOptions");
    }
    if logging.flush_frequency.as_nanos() <= 0 {
        findings.refuse(
            "logging.flushFrequency",
            logging.flush_frequency,
            "must be more than zero",
        );
    }
    findings.within("logging.verbosity", logging.verbosity, 0..=MOST_VERBOSE);
}

fn module_verbosity(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let logging = &input.settings.logging;
    if !logging.vmodule.is_empty() && !matches!(logging.format.as_str(), "" | "text") {
        findings.refuse(
            "logging.vmodule",
            format!("{} entries", logging.vmodule.len()),
            "works only with logging.format \"text\"",
        );
    }
    for (index, module) in logging.vmodule.iter().enumerate() {
        let pattern = module.file_pattern.as_str();
        let path = format!("logging.vmodule[{index}].filePattern");
        if pattern.is_empty() {
            findings.refuse(path, "", "must not be empty");
        } else if pattern.contains(['=', ',']) {
            findings.refuse(path, pattern, "must not contain an equals sign or a comma");
        }
        let path = format!("logging.vmodule[{index}].verbosity");
        findings.within(&path, module.verbosity, 0..=MOST_VERBOSE);
    }
}

fn routing(
    input: &ValidationInput<'_>,
    field: &str,
    routing: &OutputRouting,
    findings: &mut ValidationFindings,
) {
    if input.gate(Gate::LoggingAlphaOptions) {
        return;
    }
    let dependencies = "needs the feature gate LoggingAlphaOptions";
    if routing.split_stream {
        findings.refuse(format!("{field}.splitStream"), true, dependencies);
    }
    if !routing.info_buffer_size.is_zero() {
        findings.refuse(format!("{field}.infoBufferSize"), routing.info_buffer_size, dependencies);
    }
}

fn traces(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const ENDPOINT: &str = "tracing.endpoint";
    let Some(tracing) = &input.settings.tracing else { return };
    if let Some(rate) = tracing.sampling_rate_per_million {
        findings.within("tracing.samplingRatePerMillion", rate, 0..=EVERY_REQUEST);
    }
    let Some(endpoint) = &tracing.endpoint else { return };
    let expected = "must be host:port, or an address with the scheme dns, unix or unix-abstract";
    // Without a scheme it is a name to look up.
    if !endpoint.contains("//") {
        if let Err(error) = parse_url(&format!("dns://{endpoint}")) {
            findings.refuse(ENDPOINT, endpoint, format!("{error}; {expected}"));
        }
        return;
    }
    match parse_url(endpoint) {
        Ok(address) if matches!(address.scheme.as_str(), "dns" | "unix" | "unix-abstract") => {}
        Ok(_) => findings.refuse(ENDPOINT, endpoint, expected),
        Err(error) => findings.refuse(ENDPOINT, endpoint, format!("{error}; {expected}")),
    }
}

fn pod_logs(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const DIR: &str = "podLogsDir";
    let settings = input.settings;
    let size = settings.container_log_max_size.as_str();
    if let Err(error) = LogSizeLimit::parse(size) {
        findings.refuse("containerLogMaxSize", size, error.to_string());
    }
    let dir = settings.pod_logs_dir.as_str();
    if !dir.starts_with('/') {
        findings.refuse(DIR, dir, "must be an absolute path");
    } else if !is_clean(dir) {
        findings.refuse(DIR, dir, "must be written without `.`, `..`, `//` and a last `/`");
    }
    // The path is a label of a metric.
    if !dir.is_ascii() {
        findings.refuse(DIR, dir, "must hold ASCII characters only");
    }
}

/// Whether an absolute path is lexically clean.
fn is_clean(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    path == "/" || parts.all(|part| !matches!(part, "" | "." | ".."))
}
