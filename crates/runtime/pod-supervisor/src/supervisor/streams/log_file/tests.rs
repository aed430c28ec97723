//! What a pod can create in place of its log.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn spec(dir: &Path, name: &str) -> StreamsSpec {
    StreamsSpec {
        log_path: dir.join(name).display().to_string(),
        log_dir: dir.display().to_string(),
        ..StreamsSpec::default()
    }
}

fn log_path(spec: &StreamsSpec) -> LogPath {
    LogPath::of(spec).expect("a path").expect("a log")
}

#[test]
fn a_path_is_split_at_the_dir_that_the_client_named() {
    for (log_path, log_dir, expected) in [
        ("/var/log/pods/x/c/0.log", "/var/log/pods/x", Some(("/var/log/pods/x", "c/0.log"))),
        ("/var/log/pods/x/c/0.log", "/var/log/pods/x/", Some(("/var/log/pods/x/", "c/0.log"))),
        ("/var/log//pods/x/c/0.log", "/var/log/pods/x", Some(("/var/log/pods/x", "c/0.log"))),
        ("/var/log/pods/x/c/0.log", "", Some(("/var/log/pods/x/c", "0.log"))),
        ("/elsewhere/0.log", "/var/log/pods/x", None),
        ("/var/log/pods/x", "/var/log/pods/x", None),
        ("0.log", "", None),
        ("/", "", None),
    ] {
        let (path, dir) = (log_path.to_owned(), log_dir.to_owned());
        let spec = StreamsSpec { log_path: path, log_dir: dir, ..StreamsSpec::default() };
        let split = LogPath::of(&spec).map(|path| path.expect("a log"));
        let split = split.ok().map(|LogPath { dir, name }| {
            (dir.into_string().expect("text"), name.into_string().expect("text"))
        });
        let expected = expected.map(|(dir, name)| (dir.to_owned(), name.to_owned()));
        assert_eq!(split, expected, "{log_path} {log_dir}");
    }
    assert!(LogPath::of(&StreamsSpec::default()).expect("none").is_none());
}

/// A log is opened when its container is created and again after a rotation. Both times a pod that
/// may write to the directory controls what is there.
#[test]
fn a_device_pipe_or_link_in_place_of_a_log_is_not_opened() {
    let fixture = tempfile::tempdir().expect("a dir");
    let victim = fixture.path().join("victim");
    fs::create_dir(&victim).expect("made");
    fs::write(victim.join("0.log"), "kept").expect("written");
    // Symlinks of the administrator are followed.
    fs::create_dir(fixture.path().join("real")).expect("made");
    symlink("real", fixture.path().join("logs")).expect("linked");
    let dir = fixture.path().join("logs");
    fs::create_dir(dir.join("c")).expect("made");
    let log = log_path(&spec(&dir, "c/0.log"));
    let mut open = ContainerLogFile::open(Some(log_path(&spec(&dir, "c/0.log")))).expect("opened");
    open.write(b"one\n");
    open.reopen().expect("there already");
    open.write(b"two\n");
    let path = dir.join("c/0.log");
    assert_eq!(fs::read_to_string(&path).expect("a log"), "one\ntwo\n");
    let kind = |kind, device| {
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &path, kind, mode, device)
    };
    type CreateEntry<'a> = Box<dyn Fn() -> io::Result<()> + 'a>;
    let mut tricks: Vec<(&str, Errno, CreateEntry<'_>)> = vec![
        ("a link", Errno::LOOP, Box::new(|| symlink(victim.join("0.log"), &path))),
        ("a link to nothing", Errno::LOOP, Box::new(|| symlink(victim.join("new"), &path))),
        ("a hard link", Errno::MLINK, Box::new(|| fs::hard_link(victim.join("0.log"), &path))),
        ("a pipe", Errno::NXIO, Box::new(|| Ok(kind(FileType::Fifo, 0)?))),
    ];
    if rustix::process::geteuid().is_root() {
        let full = rustix::fs::makedev(1, 7);
        let device = move || Ok(kind(FileType::CharacterDevice, full)?);
        tricks.push(("a device", Errno::NXIO, Box::new(device)));
    }
    for (what, errno, create) in &tricks {
        fs::rename(&path, dir.join("c/0.log.rotated")).expect("renamed");
        create().expect("made");
        assert_eq!(open.reopen(), Err(*errno), "{what}, when it was rotated");
        assert_eq!(log.open().map(drop), Err(*errno), "{what}, at the start");
        fs::remove_file(&path).expect("removed");
        fs::rename(dir.join("c/0.log.rotated"), &path).expect("renamed");
    }
    // The open file is still written.
    open.write(b"three\n");
    assert_eq!(fs::read_to_string(&path).expect("a log"), "one\ntwo\nthree\n");
    // The directory between.
    fs::rename(dir.join("c"), dir.join("aside")).expect("renamed");
    symlink(&victim, dir.join("c")).expect("linked");
    assert_eq!(open.reopen(), Err(Errno::LOOP));
    // From an older server's request only the last component is protected.
    let older = StreamsSpec { log_dir: String::new(), ..spec(&dir, "c/0.log") };
    fs::remove_file(victim.join("0.log")).expect("removed");
    symlink("other", victim.join("0.log")).expect("linked");
    assert_eq!(log_path(&older).open().map(drop), Err(Errno::LOOP));
    let names = fs::read_dir(&victim).expect("listed").count();
    assert_eq!(names, 1, "made in the victim's dir");
}
