//! Real files, and obstacles to a rotation.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use ports::pod_host::HostError;

use super::*;

struct LogFilesFixture {
    dir: tempfile::TempDir,
    host: HostPodDirs,
}

impl LogFilesFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        std::fs::create_dir_all(path.join("logs/pod/main")).unwrap();
        let host = HostPodDirs::new(&path.join("root"), &path.join("logs"), &path.join("links"));
        Self { dir, host }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("logs/pod/main").join(name)
    }

    fn log(&self) -> String {
        self.path("0.log").to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let file = File::open(path).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut content).unwrap();
    content
}

#[tokio::test]
async fn log_sizes_are_given_only_for_regular_files_below_the_log_dir() {
    let fixture = LogFilesFixture::new();
    std::fs::write(fixture.path("0.log"), "12345").unwrap();
    symlink("/etc/passwd", fixture.path("link.log")).unwrap();
    let text = |name: &str| fixture.path(name).to_str().unwrap().to_owned();
    let logs = [
        text("0.log"),
        text("none.log"),
        text("link.log"),
        text(""),
        text("../main/0.log"),
        "/etc/passwd".to_owned(),
        String::new(),
    ];
    let sizes = fixture.host.sizes(&logs).await.unwrap();
    assert_eq!(sizes, [Some(5), None, None, None, None, None, None]);
    let nowhere = HostPodDirs::new(Path::new("/r"), &fixture.path("none"), Path::new("/l"));
    assert_eq!(nowhere.sizes(&logs).await.unwrap(), [None; 7]);
}

#[tokio::test]
async fn a_log_is_never_renamed_over_an_existing_file() {
    let fixture = LogFilesFixture::new();
    std::fs::write(fixture.path("0.log"), "new").unwrap();
    fixture.host.rename(&fixture.log(), "0.log", "0.log.1").await.unwrap();
    assert_eq!(fixture.host.names(&fixture.log()).await.unwrap(), ["0.log.1"]);
    std::fs::write(fixture.path("0.log"), "newer").unwrap();
    let refused = fixture.host.rename(&fixture.log(), "0.log.1", "0.log").await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(std::fs::read(fixture.path("0.log")).unwrap(), b"newer");
    for bad in ["../x", "", "a/b"] {
        assert!(fixture.host.rename(&fixture.log(), "0.log", bad).await.is_err(), "{bad}");
        assert!(fixture.host.remove(&fixture.log(), bad).await.is_err(), "{bad}");
        assert!(fixture.host.pack(&fixture.log(), bad).await.is_err(), "{bad}");
    }
    assert!(fixture.host.names("/etc/0.log").await.is_err());
    fixture.host.remove(&fixture.log(), "0.log.1").await.unwrap();
    fixture.host.remove(&fixture.log(), "0.log.1").await.unwrap();
    assert_eq!(fixture.names(), ["0.log"]);
}

#[tokio::test]
async fn a_packed_log_holds_what_the_plain_one_held_and_takes_its_place() {
    let fixture = LogFilesFixture::new();
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(fixture.path("0.log.1"), &content).unwrap();
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(fixture.path("0.log.1"), mode).unwrap();
    fixture.host.pack(&fixture.log(), "0.log.1").await.unwrap();
    assert_eq!(fixture.names(), ["0.log.1.gz"]);
    assert_eq!(unpacked(&fixture.path("0.log.1.gz")), content);
    let mode = std::fs::metadata(fixture.path("0.log.1.gz")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[tokio::test]
async fn packing_that_fails_leaves_the_plain_log_and_nothing_half_done() {
    let fixture = LogFilesFixture::new();
    std::fs::write(fixture.path("0.log.1"), "kept").unwrap();
    std::fs::write(fixture.path("0.log.1.gz"), "in the way").unwrap();
    assert!(fixture.host.pack(&fixture.log(), "0.log.1").await.is_err());
    assert_eq!(fixture.names(), ["0.log.1", "0.log.1.gz"]);
    std::fs::remove_file(fixture.path("0.log.1.gz")).unwrap();
    symlink("/etc/passwd", fixture.path("0.log.2")).unwrap();
    let refused = fixture.host.pack(&fixture.log(), "0.log.2").await;
    assert!(refused.is_err(), "{refused:?}");
    let layout = HostLayout {
        root: PathBuf::new(),
        pod_logs: fixture.dir.path().join("logs"),
        links: PathBuf::new(),
    };
    let late = layout.pack_log(&fixture.log(), "0.log.1", Instant::now());
    assert_eq!(late.unwrap_err().errno(), Some(Errno::TIMEDOUT));
    assert_eq!(fixture.names(), ["0.log.1", "0.log.2"]);
    assert!(matches!(
        fixture.host.pack(&fixture.log(), "none").await,
        Err(HostError::Permanent(why)) if why.contains("none")
    ));
}
