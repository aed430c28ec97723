//! Real files, and obstacles to a rotation.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use ports::pod_host::HostError;

use super::*;

struct Bed {
    folder: tempfile::TempDir,
    host: HostFolders,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir_all(path.join("logs/pod/main")).unwrap();
        let host = HostFolders::new(&path.join("root"), &path.join("logs"), &path.join("links"));
        Self { folder, host }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("logs/pod/main").join(name)
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
async fn sizes_are_told_of_plain_files_below_the_folder_of_logs_only() {
    let bed = Bed::new();
    std::fs::write(bed.path("0.log"), "12345").unwrap();
    symlink("/etc/passwd", bed.path("link.log")).unwrap();
    let text = |name: &str| bed.path(name).to_str().unwrap().to_owned();
    let logs = [
        text("0.log"),
        text("none.log"),
        text("link.log"),
        text(""),
        text("../main/0.log"),
        "/etc/passwd".to_owned(),
        String::new(),
    ];
    let sizes = bed.host.sizes(&logs).await.unwrap();
    assert_eq!(sizes, [Some(5), None, None, None, None, None, None]);
    let nowhere = HostFolders::new(Path::new("/r"), &bed.path("none"), Path::new("/l"));
    assert_eq!(nowhere.sizes(&logs).await.unwrap(), [None; 7]);
}

#[tokio::test]
async fn a_log_is_renamed_but_never_over_another() {
    let bed = Bed::new();
    std::fs::write(bed.path("0.log"), "new").unwrap();
    bed.host.rename(&bed.log(), "0.log", "0.log.1").await.unwrap();
    assert_eq!(bed.host.names(&bed.log()).await.unwrap(), ["0.log.1"]);
    std::fs::write(bed.path("0.log"), "newer").unwrap();
    let refused = bed.host.rename(&bed.log(), "0.log.1", "0.log").await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(std::fs::read(bed.path("0.log")).unwrap(), b"newer");
    for bad in ["../x", "", "a/b"] {
        assert!(bed.host.rename(&bed.log(), "0.log", bad).await.is_err(), "{bad}");
        assert!(bed.host.remove(&bed.log(), bad).await.is_err(), "{bad}");
        assert!(bed.host.pack(&bed.log(), bad).await.is_err(), "{bad}");
    }
    assert!(bed.host.names("/etc/0.log").await.is_err());
    bed.host.remove(&bed.log(), "0.log.1").await.unwrap();
    bed.host.remove(&bed.log(), "0.log.1").await.unwrap();
    assert_eq!(bed.names(), ["0.log"]);
}

#[tokio::test]
async fn a_packed_log_holds_what_the_plain_one_held_and_takes_its_place() {
    let bed = Bed::new();
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(bed.path("0.log.1"), &content).unwrap();
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(bed.path("0.log.1"), mode).unwrap();
    bed.host.pack(&bed.log(), "0.log.1").await.unwrap();
    assert_eq!(bed.names(), ["0.log.1.gz"]);
    assert_eq!(unpacked(&bed.path("0.log.1.gz")), content);
    let mode = std::fs::metadata(bed.path("0.log.1.gz")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[tokio::test]
async fn packing_that_fails_leaves_the_plain_log_and_nothing_half_done() {
    let bed = Bed::new();
    std::fs::write(bed.path("0.log.1"), "kept").unwrap();
    std::fs::write(bed.path("0.log.1.gz"), "in the way").unwrap();
    assert!(bed.host.pack(&bed.log(), "0.log.1").await.is_err());
    assert_eq!(bed.names(), ["0.log.1", "0.log.1.gz"]);
    std::fs::remove_file(bed.path("0.log.1.gz")).unwrap();
    symlink("/etc/passwd", bed.path("0.log.2")).unwrap();
    let refused = bed.host.pack(&bed.log(), "0.log.2").await;
    assert!(refused.is_err(), "{refused:?}");
    let places = Places {
        root: PathBuf::new(),
        pod_logs: bed.folder.path().join("logs"),
        links: PathBuf::new(),
    };
    let late = places.pack_log(&bed.log(), "0.log.1", Instant::now());
    assert_eq!(late.unwrap_err().errno(), Some(Errno::TIMEDOUT));
    assert_eq!(bed.names(), ["0.log.1", "0.log.2"]);
    assert!(matches!(
        bed.host.pack(&bed.log(), "none").await,
        Err(HostError::Lasting(why)) if why.contains("none")
    ));
}
