//! Real pods: a supervisor, containers from the host's static busybox, the kernel. Needs root.
//!
//! Rule: each test has its own pod, cgroup and directory, removes them, and has a deadline. A test
//! that this host cannot run prints which feature is missing.

#[path = "pods/exec_trees.rs"]
mod exec_trees;
#[path = "pods/filesystem.rs"]
mod filesystem;
#[path = "pods/bed.rs"]
mod fixture;
#[path = "pods/handlers.rs"]
mod handlers;
#[path = "pods/hooks.rs"]
mod hooks;
#[path = "pods/hostile.rs"]
mod hostile;
#[path = "pods/kills.rs"]
mod kills;
#[path = "pods/machine_files.rs"]
mod machine_files;
#[path = "pods/memory.rs"]
mod memory;
#[path = "pods/namespaces.rs"]
mod namespaces;
#[path = "pods/processes.rs"]
mod processes;
#[path = "pods/security.rs"]
mod security;
#[path = "pods/streams.rs"]
mod streams;
#[path = "pods/watched.rs"]
mod watched;
