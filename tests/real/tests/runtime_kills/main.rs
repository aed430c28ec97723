//! The embedded runtime dies: its server, its supervisors, the whole machine.
//!
//! Rule: whichever process dies at whatever time, nothing leaks, no container is run twice, no exit
//! code is invented, and none is lost unless no process was left that could have learned it. The
//! truth is read from files that the containers write and from the kernel; the runtime's responses
//! are compared with it.

mod calls;
mod cut;
mod full_disk;
mod image_work;
mod kill_plan;
mod kills;
mod one_server;
mod pods;
mod reboot;
mod server;
mod slot;
mod traces;
