//! The registration socket and the checkpoint in a real directory.

use std::fs;
use std::os::unix::net::UnixListener;
use std::sync::Mutex;

use plugin_wire::device_plugin::registration_client::RegistrationClient;

use super::*;

#[derive(Default)]
struct Recorded(Mutex<Vec<DeviceRegistrationRequest>>);

impl DeviceRegistrar for Recorded {
    fn register(&self, request: DeviceRegistrationRequest) -> PortFuture<'_, Result<(), String>> {
        let refused = request.resource == "refused";
        self.0.lock().expect("not poisoned").push(request);
        let result = if refused { Err("not this one".to_owned()) } else { Ok(()) };
        Box::pin(std::future::ready(result))
    }
}

fn request(resource: &str) -> wire::RegisterRequest {
    wire::RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: "gpu.sock".to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    }
}

async fn register(socket: &Path, resource: &str) -> Result<(), Status> {
    let channel = crate::call::connect(socket.to_str().expect("UTF-8")).await.expect("connected");
    RegistrationClient::new(channel).register(request(resource)).await.map(drop)
}

#[tokio::test]
async fn the_socket_is_made_anew_and_earlier_sockets_go() {
    let temporary = tempfile::tempdir().expect("a directory");
    let path = temporary.path().join("device-plugins");
    fs::create_dir(&path).expect("a directory");
    for name in ["kubelet.sock", "old-plugin.sock"] {
        drop(UnixListener::bind(path.join(name)).expect("a socket file"));
    }
    fs::write(path.join(CHECKPOINT), "{}").expect("a file");
    fs::write(path.join("notes.sock"), "no socket").expect("a file");
    let dir = Arc::new(DeviceRegistryDir::new(&path));
    let recorded = Arc::new(Recorded::default());
    let (served, registrar) = (dir.clone(), recorded.clone());
    let serving = tokio::spawn(async move { served.serve(registrar).await });
    let socket = path.join("kubelet.sock");
    // Until it is the new one, nothing listens and the call connects again.
    register(&socket, "example.com/gpu").await.expect("registered");
    let refused = register(&socket, "refused").await.expect_err("refused");
    assert_eq!(refused.message(), "not this one");
    assert_eq!(recorded.0.lock().expect("fine").len(), 2);
    let mut names: Vec<_> = fs::read_dir(&path)
        .expect("a listing")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    assert_eq!(names, ["kubelet.sock", CHECKPOINT, "notes.sock"]);

    // A plugin's own socket survives when the agent's was removed and is made again.
    drop(UnixListener::bind(path.join("new-plugin.sock")).expect("a socket file"));
    fs::remove_file(&socket).expect("removed");
    let ended = tokio::time::timeout(Duration::from_secs(5), serving).await.expect("noticed");
    assert!(ended.expect("no panic").contains("was removed"));
    let (served, registrar) = (dir.clone(), recorded.clone());
    let serving = tokio::spawn(async move { served.serve(registrar).await });
    register(&socket, "example.com/gpu").await.expect("registered");
    assert!(path.join("new-plugin.sock").exists());
    serving.abort();
}

#[tokio::test]
async fn the_checkpoint_is_read_as_it_was_written() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = DeviceRegistryDir::new(&temporary.path().join("device-plugins"));
    assert_eq!(dir.read_checkpoint().await, Ok(None));
    dir.write_checkpoint(b"one".to_vec()).await.expect("written");
    dir.write_checkpoint(b"two".to_vec()).await.expect("written");
    assert_eq!(dir.read_checkpoint().await, Ok(Some(b"two".to_vec())));
    let path = temporary.path().join("device-plugins").join(CHECKPOINT);
    fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink("/etc/passwd", &path).expect("a link");
    let error = dir.read_checkpoint().await.expect_err("not followed");
    assert!(error.contains(CHECKPOINT), "{error}");
}
