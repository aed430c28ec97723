//! Real mounts in a directory of the test's, and what a container could do to them.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ports::pod_host::{
    HostError, HostVolume, SubPath, VolumeDriver as _, VolumeFile, VolumeOwnership,
};

use super::*;

/// An argument that test programs accept and that is otherwise unused: marks the process of a step.
const PROCESS_ROLE: &str = "--include-ignored";

/// A root for one test; mounts below it are removed with it, however the test ends.
struct VolumesFixture {
    dir: tempfile::TempDir,
    driver: HostVolumes,
}

impl VolumesFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let driver = HostVolumes::new(&dir.path().join("root"), None);
        Self { dir, driver }
    }

    /// Steps on other file systems run in a process: this test program, with the name of one test.
    fn with_process() -> Self {
        let mut fixture = Self::new();
        let arguments = ["tests::the_process_for_one_step", "--exact", "--nocapture", PROCESS_ROLE];
        let program = StepProgram {
            program: std::env::current_exe().unwrap(),
            arguments: arguments.iter().map(Into::into).collect(),
        };
        fixture.driver = HostVolumes::new(&fixture.path("root"), Some(program));
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pod(&self, name: &str) -> PathBuf {
        self.path("root/pods/u").join(name)
    }

    async fn empty(&self, name: &str, group: Option<i64>) -> Result<PathBuf, HostError> {
        let volume = HostVolume::EmptyDirectory { name: name.to_owned() };
        let ownership = VolumeOwnership { group, ..VolumeOwnership::default() };
        self.driver.set_up("u", &volume, &ownership).await
    }

    async fn memory(&self, name: &str, size: Option<u64>) -> Result<PathBuf, HostError> {
        let volume =
            HostVolume::MemoryDirectory { name: name.to_owned(), size, huge_page_size: None };
        self.driver.set_up("u", &volume, &VolumeOwnership::default()).await
    }

    async fn host_path(&self, path: &Path, kind: &str) -> Result<PathBuf, String> {
        let volume = HostVolume::HostPath {
            name: "h".to_owned(),
            path: path.to_str().unwrap().to_owned(),
            kind: kind.to_owned(),
        };
        let made = self.driver.set_up("u", &volume, &VolumeOwnership::default()).await;
        made.map_err(|error| error.to_string())
    }

    async fn pin(&self, volume_path: &Path, sub_path: &str) -> Result<PathBuf, HostError> {
        let request = SubPath {
            volume: "v".to_owned(),
            volume_path: volume_path.to_owned(),
            sub_path: sub_path.to_owned(),
            container: "c".to_owned(),
            mount_index: 3,
        };
        self.driver.pin_sub_path("u", &request).await
    }

    fn mounts(&self) -> usize {
        host_paths::mounts_beneath(self.dir.path()).unwrap().len()
    }
}

impl Drop for VolumesFixture {
    fn drop(&mut self) {
        for point in host_paths::mounts_beneath(self.dir.path()).unwrap() {
            let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
            let _gone = rustix::mount::unmount(&point, flags);
        }
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// In a process that another test starts for one step (see `VolumesFixture::with_process`), this is that
/// process; in an ordinary run it shows that the absence of a request is an error.
#[test]
fn the_process_for_one_step() {
    if std::env::args().any(|argument| argument == PROCESS_ROLE) {
        answer_step(std::io::stdin(), std::io::stdout()).unwrap();
    } else {
        let mut answer = Vec::new();
        answer_step(std::io::empty(), &mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("not a volume step"), "{answer}");
    }
}

#[tokio::test]
async fn an_empty_directory_is_open_to_all_and_stays_as_containers_left_it() {
    let fixture = VolumesFixture::new();
    let path = fixture.empty("data", None).await.unwrap();
    assert_eq!(path, fixture.pod("volumes/kubernetes.io~empty-dir/data"));
    assert_eq!(mode(&path), 0o777);
    assert!(fixture.pod("plugins/kubernetes.io~empty-dir/data/ready").is_file());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(path.join("x"), "").unwrap();
    fixture.empty("data", Some(7)).await.unwrap();
    assert_eq!((mode(&path), std::fs::metadata(&path).unwrap().gid()), (0o700, 0));
    fixture.driver.tear_down("u").await.unwrap();
    assert!(!path.exists() && !fixture.pod("plugins/kubernetes.io~empty-dir").exists());
    fixture.driver.tear_down("u").await.unwrap();
    fixture.driver.tear_down("never-was").await.unwrap();
}

#[tokio::test]
async fn a_group_owns_the_volume_and_what_is_made_in_it() {
    let fixture = VolumesFixture::new();
    let path = fixture.pod("volumes/kubernetes.io~empty-dir/data");
    // Left by a call that was interrupted.
    std::fs::create_dir_all(path.join("sub")).unwrap();
    std::fs::write(path.join("sub/file"), "").unwrap();
    symlink("/etc/passwd", path.join("link")).unwrap();
    let passwd = (std::fs::metadata("/etc/passwd").unwrap().gid(), mode(Path::new("/etc/passwd")));
    fixture.empty("data", Some(4321)).await.unwrap();
    assert_eq!((mode(&path), std::fs::metadata(&path).unwrap().gid()), (0o2777, 4321));
    assert_eq!(std::fs::metadata(path.join("sub/file")).unwrap().gid(), 4321);
    assert_eq!(mode(&path.join("sub/file")) & 0o660, 0o660);
    assert_eq!(std::fs::symlink_metadata(path.join("link")).unwrap().gid(), 4321);
    let after = (std::fs::metadata("/etc/passwd").unwrap().gid(), mode(Path::new("/etc/passwd")));
    assert_eq!(after, passwd);
    assert!(fixture.empty("other", Some(-5)).await.is_err());
}

#[tokio::test]
async fn memory_has_a_size_and_is_mounted_once() {
    let fixture = VolumesFixture::new();
    let path = fixture.memory("m", Some(1 << 20)).await.unwrap();
    fixture.memory("m", Some(1 << 20)).await.unwrap();
    assert_eq!(fixture.mounts(), 1);
    assert_eq!(mode(&path), 0o1777);
    let found = rustix::fs::statfs(&path).unwrap();
    assert_eq!(found.f_blocks * u64::try_from(found.f_bsize).unwrap(), 1 << 20);
    let full = std::fs::write(path.join("big"), vec![0; 2 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let options = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = options.lines().find(|line| line.contains("kubernetes.io~empty-dir/m ")).unwrap();
    assert!(line.contains(" - tmpfs tmpfs "), "{line}");
    // After a reboot the mark is there and the mount is not.
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    fixture.memory("m", None).await.unwrap();
    assert_eq!(fixture.mounts(), 1);
    fixture.driver.tear_down("u").await.unwrap();
    assert_eq!(fixture.mounts(), 0);
    assert!(!path.exists());
}

#[tokio::test]
async fn huge_page_volumes_are_mounted_or_refused_with_a_reason() {
    let fixture = VolumesFixture::new();
    let volume = |size: &str| HostVolume::MemoryDirectory {
        name: "huge".to_owned(),
        size: None,
        huge_page_size: Some(size.to_owned()),
    };
    let none = VolumeOwnership::default();
    for bad in ["", "2Xi", "Mi", "0"] {
        let refused = fixture.driver.set_up("u", &volume(bad), &none).await;
        assert!(matches!(refused, Err(HostError::Permanent(_))), "{bad}: {refused:?}");
    }
    if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        let refused = fixture.driver.set_up("u", &volume("2Mi"), &none).await;
        assert!(refused.is_err());
        return;
    }
    fixture.driver.set_up("u", &volume("2Mi"), &none).await.unwrap();
    fixture.driver.set_up("u", &volume("2Mi"), &none).await.unwrap();
    assert_eq!(fixture.mounts(), 1);
    let differs = fixture.driver.set_up("u", &volume("1Gi"), &none).await.unwrap_err().to_string();
    assert!(differs.contains("pagesize '2097152' and requested medium size '1073741824' differ"));
    fixture.driver.tear_down("u").await.unwrap();
    assert_eq!(fixture.mounts(), 0);
}

#[tokio::test]
async fn host_paths_are_checked_with_upstreams_words() {
    for fixture in [VolumesFixture::new(), VolumesFixture::with_process()] {
        let (file, dir, gone) = (fixture.path("file"), fixture.path("folder"), fixture.path("a/b"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&dir).unwrap();
        let socket = fixture.path("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let null = PathBuf::from("/dev/null");
        // Created, never opened: the device need not exist.
        let block = fixture.path("block");
        let (mode_of_it, loop_0) =
            (rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::makedev(7, 0));
        let kind = rustix::fs::FileType::BlockDevice;
        rustix::fs::mknodat(rustix::fs::CWD, &block, kind, mode_of_it, loop_0).unwrap();
        let rows: [(&PathBuf, &str, &str); 22] = [
            (&gone, "", ""),
            (&file, "File", ""),
            (&dir, "File", "a file"),
            (&gone, "File", "a file"),
            (&file, "Directory", "a directory"),
            (&dir, "Directory", ""),
            (&gone, "Directory", "a directory"),
            (&socket, "Socket", ""),
            (&file, "Socket", "a socket file"),
            (&gone, "Socket", "a socket file"),
            (&null, "CharDevice", ""),
            (&file, "CharDevice", "a character device"),
            (&block, "CharDevice", "a character device"),
            (&block, "BlockDevice", ""),
            (&null, "BlockDevice", "a block device"),
            (&gone, "BlockDevice", "a block device"),
            (&dir, "FileOrCreate", "a file"),
            (&file, "DirectoryOrCreate", "a directory"),
            (&file, "FileOrCreate", ""),
            (&dir, "DirectoryOrCreate", ""),
            (&null, "File", "a file"),
            (&null, "Socket", "a socket file"),
        ];
        for (path, kind, expected) in rows {
            let wanted = if expected.is_empty() {
                Ok(path.clone())
            } else {
                let path = path.display();
                Err(format!("hostPath type check failed: {path} is not {expected}"))
            };
            assert_eq!(fixture.host_path(path, kind).await, wanted, "{path:?} {kind}");
        }
        let refused = fixture.host_path(&file, "Folder").await.unwrap_err();
        assert_eq!(refused, "Folder is an invalid volume type");
        let refused = fixture.host_path(Path::new("/a/../b"), "").await.unwrap_err();
        assert_eq!(refused, "invalid HostPath `/a/../b`: must not contain '..'");
        assert!(fixture.host_path(&gone, "FileOrCreate").await.is_err());
        fixture.host_path(&gone, "DirectoryOrCreate").await.unwrap();
        let made = gone.join("file");
        fixture.host_path(&made, "FileOrCreate").await.unwrap();
        assert_eq!((mode(&gone), mode(&made)), (0o755, 0o644));
    }
}

#[tokio::test]
async fn a_sub_path_is_created_pinned_and_released() {
    for fixture in [VolumesFixture::new(), VolumesFixture::with_process()] {
        let volume = fixture.path("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::set_permissions(&volume, std::fs::Permissions::from_mode(0o2775)).unwrap();
        let pinned = fixture.pin(&volume, "a/./b/c").await.unwrap();
        assert_eq!(pinned, fixture.pod("volume-subpaths/v/c/3"));
        assert_eq!(mode(&volume.join("a")), 0o2775);
        assert_eq!(mode(&volume.join("a/b/c")), 0o2775);
        std::fs::write(volume.join("a/b/c/x"), "seen").unwrap();
        assert_eq!(std::fs::read_to_string(pinned.join("x")).unwrap(), "seen");
        // The pinned file stays the same.
        std::fs::rename(volume.join("a/b"), volume.join("a/moved")).unwrap();
        symlink("/etc", volume.join("a/b")).unwrap();
        assert!(pinned.join("x").exists());
        // Again, with another file under the name: the old mount is released first.
        std::fs::remove_file(volume.join("a/b")).unwrap();
        std::fs::create_dir_all(volume.join("a/b/c")).unwrap();
        fixture.pin(&volume, "a/b/c").await.unwrap();
        assert!(!pinned.join("x").exists());
        fixture.pin(&volume, "a/b/c").await.unwrap();
        assert_eq!(fixture.mounts(), 1);
        fixture.driver.release_sub_paths("u", "other").await.unwrap();
        assert_eq!(fixture.mounts(), 1);
        fixture.driver.release_sub_paths("u", "c").await.unwrap();
        fixture.driver.release_sub_paths("u", "c").await.unwrap();
        assert_eq!(fixture.mounts(), 0);
        assert!(!fixture.pod("volume-subpaths").exists());
        assert!(volume.join("a/moved/c/x").exists());
    }
}

#[tokio::test]
async fn files_sockets_and_pipes_can_be_sub_paths() {
    let fixture = VolumesFixture::new();
    let volume = fixture.path("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("file"), "content").unwrap();
    let pipe = volume.join("pipe");
    let rights = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rights, 0).unwrap();
    let pinned = fixture.pin(&volume, "file").await.unwrap();
    assert_eq!(std::fs::read_to_string(&pinned).unwrap(), "content");
    let pinned = fixture.pin(&volume, "pipe").await.unwrap();
    assert!(std::fs::symlink_metadata(&pinned).unwrap().file_type().is_fifo());
    fixture.pin(&volume, "new").await.unwrap();
    assert_eq!(fixture.mounts(), 1);
    fixture.driver.tear_down("u").await.unwrap();
    assert_eq!(std::fs::read_to_string(volume.join("file")).unwrap(), "content");
}

#[tokio::test]
async fn a_sub_path_never_leaves_its_volume() {
    let fixture = VolumesFixture::new();
    let volume = fixture.path("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::create_dir(fixture.path("outside")).unwrap();
    std::fs::create_dir(volume.join("real")).unwrap();
    symlink("real", volume.join("inside")).unwrap();
    symlink("../outside", volume.join("relative")).unwrap();
    symlink(fixture.path("outside"), volume.join("absolute")).unwrap();
    symlink("/proc/1/root", volume.join("magic")).unwrap();
    symlink("round", volume.join("round")).unwrap();
    symlink("../outside/new", volume.join("dangling")).unwrap();
    symlink(volume.join("real"), volume.join("back")).unwrap();
    let pinned = fixture.pin(&volume, "back").await.unwrap();
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&pinned), inode(&volume.join("real")), "absolute, but within");
    fixture.driver.release_sub_paths("u", "c").await.unwrap();
    fixture.pin(&volume, "inside").await.unwrap();
    fixture.pin(&volume, "inside/new").await.unwrap();
    assert!(volume.join("real/new").is_dir());
    fixture.driver.release_sub_paths("u", "c").await.unwrap();
    let bad =
        ["relative", "absolute", "magic/etc", "round", "dangling", "relative/new", "dangling/x"];
    for bad in bad {
        assert!(fixture.pin(&volume, bad).await.is_err(), "{bad}");
    }
    assert!(std::fs::read_dir(fixture.path("outside")).unwrap().next().is_none());
    assert_eq!(fixture.mounts(), 0);
    let error_text = |answer: Result<PathBuf, HostError>| answer.unwrap_err().to_string();
    assert_eq!(
        error_text(fixture.pin(&volume, "/etc").await),
        "error SubPath `/etc` must not be an absolute path"
    );
    assert_eq!(
        error_text(fixture.pin(&volume, "a/../..").await),
        "unable to provision SubPath `a/../..`: must not contain '..'"
    );
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The race of CVE-2021-25741: a container swaps a directory and a symlink to the host all the
/// time.
#[test]
fn a_swapped_in_symlink_cannot_escape_the_volume() {
    let fixture = VolumesFixture::new();
    let volume = fixture.path("volume");
    std::fs::create_dir_all(volume.join("a")).unwrap();
    std::fs::create_dir_all(fixture.path("host/x")).unwrap();
    std::fs::write(fixture.path("host/x/secret"), "").unwrap();
    symlink(fixture.path("host"), volume.join("b")).unwrap();
    std::fs::create_dir(volume.join("a/x")).unwrap();
    let stop = AtomicBool::new(false);
    let (one, other) = (volume.join("a"), volume.join("b"));
    let (mut pinned, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let dir = rustix::fs::CWD;
                rustix::fs::renameat_with(dir, &one, dir, &other, flags).unwrap();
            }
        });
        // Stops the swapping however this ends.
        let _stopping = Stopping(&stop);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..300 {
                match fixture.pin(&volume, "a/x").await {
                    Ok(path) => {
                        pinned += 1;
                        assert!(!path.join("secret").exists(), "the host was reached");
                    }
                    Err(_) => refused += 1,
                }
                fixture.driver.release_sub_paths("u", "c").await.unwrap();
            }
        });
    });
    assert!(pinned > 0 && refused > 0, "{pinned} pinned, {refused} refused: no race was run");
}

#[tokio::test]
async fn removal_does_not_cross_mounts_made_by_a_container() {
    let fixture = VolumesFixture::new();
    let path = fixture.empty("data", None).await.unwrap();
    std::fs::create_dir_all(path.join("deep/point")).unwrap();
    std::fs::create_dir(fixture.path("precious")).unwrap();
    std::fs::write(fixture.path("precious/data"), "").unwrap();
    rustix::mount::mount_bind(fixture.path("precious"), path.join("deep/point")).unwrap();
    rustix::mount::mount_bind(fixture.path("precious"), path.join("deep/point")).unwrap();
    // Held open: cannot be unmounted now.
    let held = std::fs::File::open(path.join("deep/point/data")).unwrap();
    let refused = fixture.driver.tear_down("u").await;
    assert!(matches!(refused, Err(HostError::Transient(_))), "{refused:?}");
    assert!(fixture.path("precious/data").exists() && path.exists());
    drop(held);
    fixture.driver.tear_down("u").await.unwrap();
    assert!(fixture.path("precious/data").exists() && !path.exists());
    assert_eq!(fixture.mounts(), 0);
}

#[tokio::test]
async fn other_drivers_volumes_are_left_alone() {
    let fixture = VolumesFixture::new();
    fixture.empty("data", None).await.unwrap();
    let other = fixture.pod("volumes/kubernetes.io~csi/pv/mount");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("x"), "").unwrap();
    fixture.driver.tear_down("u").await.unwrap();
    assert!(other.join("x").exists());
}

#[tokio::test]
async fn a_hanging_step_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let program =
        StepProgram { program: PathBuf::from("/bin/sleep"), arguments: vec!["600".into()] };
    let driver = HostVolumes::new(dir.path(), Some(program)).with_limit(Duration::from_millis(200));
    let volume = HostVolume::HostPath {
        name: "h".to_owned(),
        path: "/somewhere".to_owned(),
        kind: "Directory".to_owned(),
    };
    let late = driver.set_up("u", &volume, &VolumeOwnership::default()).await;
    let Err(HostError::Transient(reason)) = late else { panic!("{late:?}") };
    assert!(reason.starts_with("/somewhere: not done after 200ms"), "{reason}");
    let program = StepProgram { program: PathBuf::from("/bin/true"), arguments: Vec::new() };
    let silent = HostVolumes::new(dir.path(), Some(program));
    let lost = silent.set_up("u", &volume, &VolumeOwnership::default()).await;
    assert!(matches!(lost, Err(HostError::Transient(_))), "{lost:?}");
}

#[tokio::test]
async fn names_cannot_leave_the_pod_dir() {
    let fixture = VolumesFixture::new();
    for bad in ["", "..", "a/b"] {
        assert!(fixture.empty(bad, None).await.is_err(), "{bad}");
        let volume = HostVolume::EmptyDirectory { name: "x".to_owned() };
        let refused = fixture.driver.set_up(bad, &volume, &VolumeOwnership::default()).await;
        assert!(matches!(refused, Err(HostError::Permanent(_))), "{bad}");
        assert!(fixture.driver.tear_down(bad).await.is_err(), "{bad}");
        assert!(fixture.driver.release_sub_paths("u", bad).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_file_of_a_volume_is_read_and_nothing_beyond_it() {
    let fixture = VolumesFixture::new();
    let volume = fixture.empty("v", None).await.unwrap();
    std::fs::write(fixture.path("secret"), "of the host").unwrap();
    std::fs::create_dir(volume.join("below")).unwrap();
    std::fs::write(volume.join("below/file"), "1234").unwrap();
    symlink("below/file", volume.join("link")).unwrap();
    symlink(fixture.path("secret"), volume.join("out")).unwrap();
    symlink("../../../../../secret", volume.join("up")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        volume.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let read = async |path: &str, most: usize| {
        let file = VolumeFile { volume_path: volume.clone(), path: path.to_owned(), most };
        fixture.driver.read_file(&file).await
    };
    for path in ["below/file", "/below/file", "link"] {
        assert_eq!(read(path, 4).await, Ok(b"1234".to_vec()), "{path}");
    }
    for path in ["out", "up", "fifo", "below", "none", "../v/link"] {
        let refused = read(path, 4).await.expect_err(path).to_string();
        assert!(refused.contains("volumes/kubernetes.io~empty-dir/v"), "{refused}");
    }
    let refused = read("below/file", 3).await.unwrap_err().to_string();
    assert!(refused.contains("too long"), "{refused}");
}
