//! The watch against a real directory: what appears, goes, is replaced or is no socket.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::*;

async fn look(dir: &mut PluginDir) -> PluginDirScan {
    let look = tokio::time::timeout(Duration::from_secs(5), dir.next()).await;
    look.expect("something changed").expect("the directory can be read")
}

/// Looks until the sockets have these paths below the directory.
async fn until(dir: &mut PluginDir, root: &Path, wanted: &[&str]) -> PluginDirScan {
    loop {
        let scan = look(dir).await;
        let found: Vec<&str> =
            scan.sockets.keys().map(|it| &it[root.to_str().expect("UTF-8").len() + 1..]).collect();
        if found == wanted {
            return scan;
        }
    }
}

fn bind(path: &Path) {
    drop(UnixListener::bind(path).expect("a socket file"));
}

#[tokio::test]
async fn sockets_are_found_at_the_start_later_and_in_new_directories() {
    let temporary = tempfile::tempdir().expect("a directory");
    let root = temporary.path().join("plugins_registry");
    let mut dir = PluginDir::new(&root);
    assert_eq!(look(&mut dir).await, PluginDirScan::default(), "it is created empty");
    bind(&root.join("a.sock"));
    until(&mut dir, &root, &["a.sock"]).await;
    fs::create_dir_all(root.join("one/two")).expect("directories");
    bind(&root.join("one/two/b.sock"));
    until(&mut dir, &root, &["a.sock", "one/two/b.sock"]).await;
    fs::remove_file(root.join("a.sock")).expect("removed");
    until(&mut dir, &root, &["one/two/b.sock"]).await;
    fs::rename(root.join("one"), temporary.path().join("elsewhere")).expect("moved");
    until(&mut dir, &root, &[]).await;
    let mut second = PluginDir::new(&root);
    bind(&root.join("c.sock"));
    until(&mut second, &root, &["c.sock"]).await;
}

#[tokio::test]
async fn what_is_no_socket_is_named_and_dot_names_are_not_there() {
    let temporary = tempfile::tempdir().expect("a directory");
    let root = temporary.path();
    bind(&root.join(".hidden.sock"));
    fs::create_dir(root.join(".staging")).expect("a directory");
    bind(&root.join(".staging/x.sock"));
    bind(&root.join("real.sock"));
    fs::write(root.join("file.sock"), "text").expect("a file");
    std::os::unix::fs::symlink(root.join("real.sock"), root.join("link.sock")).expect("a link");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe.sock"),
        FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    let scan = look(&mut PluginDir::new(root)).await;
    let name = |path: &String| Path::new(path).file_name().map(ToOwned::to_owned);
    assert_eq!(scan.sockets.keys().map(name).collect::<Vec<_>>(), [Some("real.sock".into())]);
    let ignored: Vec<_> = scan.ignored.iter().map(|(path, why)| (name(path), &**why)).collect();
    let link = "a symlink, which is not followed: the plugin must create its socket here";
    assert_eq!(
        ignored,
        [
            (Some("file.sock".into()), "not a socket"),
            (Some("link.sock".into()), link),
            (Some("pipe.sock".into()), "a named pipe and not a socket"),
        ]
    );
}

#[tokio::test]
async fn a_socket_that_was_made_again_is_another_one_and_a_change_of_its_mode_is_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let temporary = tempfile::tempdir().expect("a directory");
    let path = temporary.path().join("a.sock");
    bind(&path);
    let first = look(&mut PluginDir::new(temporary.path())).await;
    std::thread::sleep(Duration::from_millis(20));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("its mode");
    let same = look(&mut PluginDir::new(temporary.path())).await;
    assert_eq!(first, same);
    fs::remove_file(&path).expect("removed");
    bind(&path);
    let second = look(&mut PluginDir::new(temporary.path())).await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn at_rest_it_waits_and_a_dropped_wait_loses_nothing() {
    let temporary = tempfile::tempdir().expect("a directory");
    let mut dir = PluginDir::new(temporary.path());
    look(&mut dir).await;
    let quiet = tokio::time::timeout(Duration::from_millis(300), dir.next()).await;
    assert!(quiet.is_err(), "nothing changed: {quiet:?}");
    for number in 0..50 {
        bind(&temporary.path().join(format!("{number:02}.sock")));
        // Dropped at any time.
        let _ = tokio::time::timeout(Duration::from_millis(1), dir.next()).await;
    }
    bind(&temporary.path().join("last.sock"));
    while look(&mut dir).await.sockets.len() < 51 {}
}

#[tokio::test]
async fn a_directory_with_too_many_names_is_an_error_and_is_read_again() {
    let temporary = tempfile::tempdir().expect("a directory");
    for number in 0..=MAX_NAMES {
        fs::write(temporary.path().join(number.to_string()), "").expect("a file");
    }
    let mut dir = PluginDir::new(temporary.path());
    let error = dir.next().await.expect_err("too many");
    assert!(error.contains("more than 4096 names"), "{error}");
    fs::remove_file(temporary.path().join("0")).expect("removed");
    look(&mut dir).await;
}
