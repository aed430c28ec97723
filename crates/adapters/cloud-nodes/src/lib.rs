//! Two small clouds for the node controller: a file of machines, and a program that knows them.
//!
//! Rule: "there is no such machine" is said only on clear evidence, since a node may be deleted on
//! it: a file must be whole (it says so behind all its machines), a program must say it in words.
//! All else is an error that changes nothing. Both have deadlines and size limits. The formats stand
//! in docs/cloud-providers.md. Decides nothing, writes nothing.

mod file_cloud;
mod machine_list;
mod program_cloud;

pub use file_cloud::FileCloud;
pub use program_cloud::ProgramCloud;
