//! The embedded runtime dies: its server, its supervisors, the whole machine.
//!
//! Rule: whatever dies whenever, nothing leaks, no container is run twice, no exit code is invented,
//! and none is lost unless nobody was left who could have heard it. What is true is read from files
//! that the containers write and from the kernel; the runtime's answers are held against that.

mod blows;
mod calls;
mod cut;
mod full_disk;
mod kills;
mod one_server;
mod pods;
mod reboot;
mod server;
mod slot;
mod traces;
