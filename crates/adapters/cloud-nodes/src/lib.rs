//! Two small cloud providers for the node controller: a file of machines, and an external program.
//!
//! Rule: "there is no such machine" is answered only on clear evidence, since a node may be deleted
//! on it: a file must be whole (it says so after all its machines), a program must answer so
//! explicitly. Everything else is an error that changes nothing. Both have deadlines and size
//! limits. The formats are in docs/cloud-providers.md. Decides nothing, writes nothing.

mod file_cloud;
mod machine_list;
mod program_cloud;

pub use file_cloud::FileCloud;
pub use program_cloud::ProgramCloud;
