//! Parses the node's resolver file.
//!
//! Rule: name servers accumulate, the last search line wins, a later option replaces an earlier one
//! of the same name. The order of options is that of their first mention (the reference's is
//! random).
//!
//! upstream: pkg/kubelet/network/dns/dns.go

use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvConf {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

pub fn parse(content: &[u8]) -> Result<ResolvConf, SetupError> {
    let mut conf = ResolvConf::default();
    let mut is_server_missing = false;
    for line in String::from_utf8_lossy(content).split('\n') {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next() {
                Some(server) => conf.servers.push(server.to_owned()),
                None => is_server_missing = true,
            },
            Some("search") => {
                // A domain with and without the dot at its end is the same one.
                let domains = words.filter(|domain| *domain != ".");
                conf.searches = domains
                    .map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned())
                    .collect();
            }
            Some("options") => words.for_each(|option| put_option(&mut conf.options, option)),
            _ => {}
        }
    }
    if is_server_missing {
        refuse!(
            "Encountered error while parsing resolv conf file. Error: nameserver list is empty "
        );
    }
    Ok(conf)
}

/// Puts an option in, in place of an earlier one of the same name.
pub(crate) fn put_option(options: &mut Vec<String>, option: &str) {
    let name_of = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    let name = name_of(option);
    match options.iter_mut().find(|present| name_of(present) == name) {
        Some(present) => option.clone_into(present),
        None => options.push(option.to_owned()),
    }
}
