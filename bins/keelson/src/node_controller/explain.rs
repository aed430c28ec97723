//! `keelson node-controller explain NODE`: why is this node tainted, when will its pods go, what
//! holds it back.
//!
//! Rule: queries the controller that runs on this machine over its socket; knows nothing itself.

use crate::terminal;
use clap::Parser;
use node_api::request_page;
use std::path::PathBuf;
use std::process::ExitCode;

/// Why a node is tainted, when its pods will go, what holds it back
#[derive(Debug, Parser)]
#[command(
    name = "keelson node-controller explain",
    after_help = "Example:\n  keelson node-controller explain worker-1\n\nIn a cluster, ask inside the pod of the instance that leads."
)]
struct Explain {
    /// Name of the node
    node: String,
    /// Socket of the controller, as its flag of the same name says
    #[arg(long, value_name = "PATH", default_value = "/run/keelson/node-controller.sock")]
    explain_socket: PathBuf,
}

pub(super) fn run(arguments: &[String]) -> ExitCode {
    let name = std::iter::once("keelson node-controller explain".to_owned());
    let command = match Explain::try_parse_from(name.chain(arguments.iter().cloned())) {
        Ok(command) => command,
        Err(error) => return crate::show_parse_error(&error),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    let path = format!("/explain/{}", command.node);
    match runtime.block_on(request_page(&command.explain_socket, &path)) {
        Ok((200, text)) => {
            terminal::print(&text);
            ExitCode::SUCCESS
        }
        Ok((status, text)) => failed(&format!("answer {status}: {}", text.trim())),
        Err(error) => failed(&format!("{error}; is the controller running on this machine?")),
    }
}

fn failed(cause: &str) -> ExitCode {
    terminal::print_error(&format!("error: {cause}"));
    ExitCode::FAILURE
}
