//! The runtime alone on a socket: `serve DIR` listens at `DIR/cri.sock`, without the rest of the
//! binary. For experiments; the binary's verb `cri` is the real one.

use std::path::PathBuf;
use std::process::ExitCode;

use container_runtime::{Runtime, RuntimeSettings};

fn main() -> ExitCode {
    if let Some(code) = pod_supervisor::supervisor::run_if_called() {
        return code;
    }
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("expected a directory");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            let mut settings = RuntimeSettings::new(dir.join("root"), dir.join("state"));
            if let Ok(text) = std::fs::read(dir.join("config.json")) {
                settings = settings
                    .with_file("config.json", &text)
                    .map_err(|failure| failure.to_string())?;
            }
            let runtime = Runtime::open(settings).await.map_err(|failure| failure.to_string())?;
            let end = async {
                let _ = tokio::signal::ctrl_c().await;
            };
            runtime
                .serve(&dir.join("cri.sock"), tokio::sync::watch::Sender::new(0), end)
                .await
                .map_err(|failure| failure.to_string())
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
