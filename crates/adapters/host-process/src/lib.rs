//! The agent as a process of this machine: lock files, systemd, its limits.
