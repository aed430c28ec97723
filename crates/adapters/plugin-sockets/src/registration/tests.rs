//! Calls against scripted plugins: honest, late, silent, flooding, garbage.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plugin_wire::registration::registration_server::{Registration, RegistrationServer};
use plugin_wire::registration::{PluginInfo, RegistrationStatusResponse};
use ports::plugins::PluginCallError;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::*;

#[derive(Clone, Default)]
struct ScriptedPlugin {
    info: PluginInfo,
    delay: Duration,
    notified: Arc<Mutex<Vec<RegistrationStatus>>>,
}

#[tonic::async_trait]
impl Registration for ScriptedPlugin {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        tokio::time::sleep(self.delay).await;
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.notified.lock().expect("not poisoned").push(request.into_inner());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct SocketBed {
    _temporary: tempfile::TempDir,
    socket: PathBuf,
}

impl SocketBed {
    fn new() -> Self {
        let temporary = tempfile::tempdir().expect("a directory");
        let socket = temporary.path().join("plugin.sock");
        Self { _temporary: temporary, socket }
    }

    fn text(&self) -> &str {
        self.socket.to_str().expect("UTF-8")
    }
}

fn serve(socket: &Path, plugin: ScriptedPlugin) {
    let listener = UnixListener::bind(socket).expect("a socket");
    let routes = Routes::new(RegistrationServer::new(plugin));
    tokio::spawn(crate::serve::serve(listener, routes));
}

fn info() -> PluginInfo {
    PluginInfo {
        r#type: "CSIPlugin".to_owned(),
        name: "disks.example.com".to_owned(),
        endpoint: String::new(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

#[tokio::test]
async fn a_plugin_introduces_itself_and_learns_the_result() {
    let bed = SocketBed::new();
    let plugin = ScriptedPlugin { info: info(), ..ScriptedPlugin::default() };
    let notified = plugin.notified.clone();
    serve(&bed.socket, plugin);
    let found = RegistrationSockets.introduction(bed.text()).await.expect("its introduction");
    assert_eq!(
        found,
        PluginDescription {
            plugin_type: "CSIPlugin".to_owned(),
            name: "disks.example.com".to_owned(),
            endpoint: bed.text().to_owned(),
            versions: vec!["1.0.0".to_owned()],
        }
    );
    RegistrationSockets.notify(bed.text(), Ok(())).await.expect("notified");
    RegistrationSockets.notify(bed.text(), Err("no")).await.expect("notified");
    let status = |plugin_registered, error: &str| RegistrationStatus {
        plugin_registered,
        error: error.to_owned(),
    };
    assert_eq!(*notified.lock().expect("fine"), [status(true, ""), status(false, "no")]);
}

#[tokio::test]
async fn a_socket_that_listens_late_is_tried_again() {
    let bed = SocketBed::new();
    // The file is there, and nothing listens.
    drop(std::os::unix::net::UnixListener::bind(&bed.socket).expect("a socket file"));
    let socket = bed.socket.clone();
    let introduction = RegistrationSockets.introduction(bed.text());
    let late = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        std::fs::remove_file(&socket).expect("removed");
        serve(&socket, ScriptedPlugin { info: info(), ..ScriptedPlugin::default() });
    };
    let (found, ()) = tokio::join!(introduction, late);
    assert_eq!(found.expect("its introduction").name, "disks.example.com");
}

#[tokio::test]
async fn a_plugin_that_hangs_floods_or_talks_nonsense_is_an_error_in_time() {
    let began = std::time::Instant::now();
    let slow = SocketBed::new();
    serve(
        &slow.socket,
        ScriptedPlugin { delay: Duration::from_secs(60), ..ScriptedPlugin::default() },
    );
    let error = RegistrationSockets.introduction(slow.text()).await.expect_err("slow");
    assert!(
        matches!(error, PluginCallError::TimedOut { call: "GetInfo", seconds: 1, .. }),
        "{error}"
    );

    let silent = SocketBed::new();
    let listener = UnixListener::bind(&silent.socket).expect("a socket");
    let accepting = tokio::spawn(async move { listener.accept().await.map(|it| it.0) });
    let error = RegistrationSockets.introduction(silent.text()).await.expect_err("silent");
    assert!(matches!(error, PluginCallError::TimedOut { .. }), "{error}");
    drop(accepting);

    let flooding = SocketBed::new();
    let name = "x".repeat(100 << 20);
    let plugin = ScriptedPlugin { info: PluginInfo { name, ..info() }, ..Default::default() };
    serve(&flooding.socket, plugin);
    let error = RegistrationSockets.introduction(flooding.text()).await.expect_err("a flood");
    assert!(
        matches!(error, PluginCallError::Failed { .. } | PluginCallError::TimedOut { .. }),
        "{error}"
    );

    let long = SocketBed::new();
    let name = "x".repeat(MAX_TEXT_BYTES + 1);
    let plugin = ScriptedPlugin { info: PluginInfo { name, ..info() }, ..Default::default() };
    serve(&long.socket, plugin);
    let error = RegistrationSockets.introduction(long.text()).await.expect_err("a long name");
    assert!(matches!(error, PluginCallError::BadAnswer { .. }), "{error}");

    let garbage = SocketBed::new();
    let listener = UnixListener::bind(&garbage.socket).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = RegistrationSockets.introduction(garbage.text()).await.expect_err("nonsense");
    assert!(matches!(error, PluginCallError::Failed { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_path_that_cannot_be_a_socket_is_refused_at_once() {
    let began = std::time::Instant::now();
    let error = RegistrationSockets.introduction(&format!("/{}", "x".repeat(200))).await;
    assert!(matches!(error, Err(PluginCallError::Unreachable { .. })), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
}
