//! Reading real temporary folders.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn flags(config: &str, config_dir: &str) -> FlagSettings {
    FlagSettings {
        config: config.to_owned(),
        config_dir: config_dir.to_owned(),
        ..FlagSettings::default()
    }
}

#[test]
fn nothing_named_nothing_read() {
    let found = read(&flags("", ""), Path::new("/"));
    assert_eq!(found.files, ConfigFiles::default());
    assert!(found.errors.is_empty());
}

#[test]
fn the_file_and_the_drop_ins_are_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kubelet.yaml"), "main").unwrap();
    fs::create_dir_all(folder.path().join("d/sub")).unwrap();
    for name in ["d/20.conf", "d/10.conf", "d/README", "d/sub/x.conf", "d/10.conf.bak"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    symlink("../kubelet.yaml", folder.path().join("d/30.conf")).unwrap();
    let found = read(&flags("./kubelet.yaml", "d"), folder.path());
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    let config = found.files.config.unwrap();
    assert_eq!(config.path, folder.path().join("kubelet.yaml").to_str().unwrap());
    assert_eq!(config.bytes, b"main");
    let contents: Vec<String> = found
        .files
        .drop_ins
        .iter()
        .map(|file| String::from_utf8(file.bytes.clone()).unwrap())
        .collect();
    assert_eq!(contents, ["d/10.conf", "d/20.conf", "main", "d/sub/x.conf"]);
    assert_eq!(found.skipped, ["10.conf.bak", "README"]);
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/10.conf"), "ten").unwrap();
    symlink("nowhere", folder.path().join("d/20.conf")).unwrap();
    symlink(".", folder.path().join("d/30.conf")).unwrap();
    let large = File::create(folder.path().join("large.yaml")).unwrap();
    large.set_len(u64::try_from(MAX_BYTES).unwrap() + 1).unwrap();
    let found = read(&flags("large.yaml", "d"), folder.path());
    assert_eq!(found.files.drop_ins.len(), 1);
    assert_eq!(found.errors.len(), 3, "{:?}", found.errors);
    assert!(found.errors[0].starts_with("--config: cannot read"), "{:?}", found.errors);
    assert!(found.errors[0].contains("more than"), "{:?}", found.errors);
    assert!(found.errors[1].contains("d/20.conf"), "{:?}", found.errors);
    assert!(found.errors[2].contains("it is a folder"), "{:?}", found.errors);

    let found = read(&flags("absent.yaml", "absent"), folder.path());
    assert!(found.errors[0].contains("absent.yaml"), "{:?}", found.errors);
    assert!(found.errors[1].starts_with("--config-dir: cannot list"), "{:?}", found.errors);
}

#[test]
fn a_device_without_end_is_refused() {
    let error = read_file(Path::new("/dev/zero")).unwrap_err();
    assert!(error.contains("more than"), "{error}");
}
