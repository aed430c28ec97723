//! A cloud in a file: valid, changed, malformed, too large, and on a dead network share.

use super::*;

const HEAD: &str = "apiVersion: keelson/v1\nkind: MachineList\n";

fn node(name: &str) -> CloudNodeName {
    CloudNodeName { name: name.into(), provider_id: String::new() }
}

/// Replaces the file by a rename, as a careful writer does.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{HEAD}{text}")).expect("write");
    std::fs::rename(&new, path).expect("rename");
}

#[tokio::test]
async fn changes_are_read_and_absence_counts_only_in_a_complete_file() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("machines.yaml");
    let cloud = FileCloud::new(&path);
    let error = cloud.instance(&node("a")).await.expect_err("no file");
    assert!(error.to_string().contains("machines.yaml: cannot be read"), "{error}");

    put(&path, "machines: [{name: a}]\n");
    assert!(cloud.instance(&node("a")).await.expect("there").is_some());
    let error = cloud.instance(&node("b")).await.expect_err("not certain");
    assert!(error.cause.contains("complete: true"), "{error}");

    put(&path, "machines: [{name: b}]\ncomplete: true\n");
    assert_eq!(cloud.instance(&node("a")).await, Ok(None));
    assert_eq!(cloud.instances().await.expect("list").len(), 1);

    put(&path, "machines: {}\n");
    assert!(cloud.instances().await.is_err(), "a broken file is no empty list");
}

#[tokio::test]
async fn an_unchanged_file_is_not_read_again() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("machines.yaml");
    put(&path, "machines: []\n");
    let cloud = FileCloud::new(&path);
    let first = cloud.list().await.expect("list");
    let second = cloud.list().await.expect("list");
    assert!(Arc::ptr_eq(&first, &second));
}

#[tokio::test]
async fn a_dir_and_an_oversized_file_are_refused() {
    let dir = tempfile::tempdir().expect("folder");
    let error = FileCloud::new(dir.path()).instances().await.expect_err("a folder");
    assert!(error.cause.contains("no regular file"), "{error}");
    let path = dir.path().join("large");
    std::fs::write(&path, vec![b' '; MAX_BYTES + 1]).expect("write");
    let error = FileCloud::new(&path).instances().await.expect_err("too large");
    assert!(error.cause.contains("bytes"), "{error}");
}

/// Opening a FIFO without a writer hangs as reading from a dead share does.
#[test]
fn a_hanging_file_share_blocks_one_thread_and_no_other_caller() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("machines.yaml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a pipe");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let cloud = FileCloud::new(&path);
        let (first, second) = tokio::join!(cloud.instances(), cloud.instances());
        for error in [first.expect_err("it hangs"), second.expect_err("it hangs")] {
            assert!(error.cause.contains("within 5s"), "{error}");
        }
        let began = Instant::now();
        for _ in 0..20 {
            assert!(cloud.instances().await.is_err());
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        let read = tokio::time::timeout(Duration::from_secs(5), tokio::fs::read("/dev/null"));
        assert!(read.await.is_ok_and(|read| read.is_ok()), "others can read");
        // The share is back: the read that hung ends, and the next one finds the current content.
        let writer = std::fs::OpenOptions::new().write(true).open(&path).expect("a writer");
        put(&path, "machines: [{name: a}]\n");
        drop(writer);
        let mut tries = 0;
        while cloud.instances().await.is_err() {
            tries += 1;
            assert!(tries < 100, "it stays an error");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    runtime.shutdown_background();
}
