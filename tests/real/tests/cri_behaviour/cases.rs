//! The table of cases, by topic.

mod containers;
mod defined_volumes;
mod execs;
mod guards;
mod handler_trees;
mod handlers;
mod hostile;
mod image_cases;
mod isolation;
mod lists;
mod logs;
mod machine_files;
mod networks;
mod observing;
mod recursive_mounts;
mod sandboxes;
mod stream_data;
mod streamed_lists;
mod streams;
mod sysctls;
mod user_namespaces;

use crate::support::CriCase;

/// A case whose `name` is its function's.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[crate::support::CriCase] = &[
            $(crate::support::CriCase {
                name: stringify!($name),
                run: |cri| Box::pin($name(cri)),
            }),*
        ];
    };
}
pub(crate) use cases;

/// Cases of features that only the embedded runtime has.
pub(crate) fn of_handlers() -> impl Iterator<Item = &'static CriCase> {
    handlers::CASES.iter().chain(handler_trees::CASES)
}

/// Attacks that the embedded runtime must resist, whatever other runtimes do.
pub(crate) fn of_hostile() -> impl Iterator<Item = &'static CriCase> {
    hostile::CASES.iter().chain(guards::CASES)
}

pub(crate) fn all() -> impl Iterator<Item = &'static CriCase> {
    [
        sandboxes::CASES,
        containers::CASES,
        lists::CASES,
        streamed_lists::CASES,
        logs::CASES,
        execs::CASES,
        isolation::CASES,
        recursive_mounts::CASES,
        sysctls::CASES,
        networks::CASES,
        image_cases::CASES,
        defined_volumes::CASES,
        observing::CASES,
        streams::CASES,
        stream_data::CASES,
        user_namespaces::CASES,
        machine_files::CASES,
    ]
    .into_iter()
    .flatten()
}
