//! Reading real temporary directories.

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
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kubelet.yaml"), "main").unwrap();
    fs::create_dir_all(dir.path().join("d/sub")).unwrap();
    for name in ["d/20.conf", "d/10.conf", "d/README", "d/sub/x.conf", "d/10.conf.bak"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    symlink("../kubelet.yaml", dir.path().join("d/30.conf")).unwrap();
    let found = read(&flags("./kubelet.yaml", "d"), dir.path());
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    let config = found.files.config.unwrap();
    assert_eq!(config.path, dir.path().join("kubelet.yaml").to_str().unwrap());
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
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/10.conf"), "ten").unwrap();
    symlink("nowhere", dir.path().join("d/20.conf")).unwrap();
    symlink(".", dir.path().join("d/30.conf")).unwrap();
    let large = File::create(dir.path().join("large.yaml")).unwrap();
    large.set_len(u64::try_from(MAX_BYTES).unwrap() + 1).unwrap();
    let found = read(&flags("large.yaml", "d"), dir.path());
    assert_eq!(found.files.drop_ins.len(), 1);
    assert_eq!(found.errors.len(), 3, "{:?}", found.errors);
    assert!(found.errors[0].starts_with("--config: cannot read"), "{:?}", found.errors);
    assert!(found.errors[0].contains("more than"), "{:?}", found.errors);
    assert!(found.errors[1].contains("d/20.conf"), "{:?}", found.errors);
    assert!(found.errors[2].contains("it is a folder"), "{:?}", found.errors);

    let found = read(&flags("absent.yaml", "absent"), dir.path());
    assert!(found.errors[0].contains("absent.yaml"), "{:?}", found.errors);
    assert!(found.errors[1].starts_with("--config-dir: cannot list"), "{:?}", found.errors);
}

#[test]
fn a_device_without_end_is_refused() {
    let error = read_file(Path::new("/dev/zero")).unwrap_err();
    assert!(error.contains("more than"), "{error}");
}

fn provider_flags(config: &str, programs: &str) -> FlagSettings {
    FlagSettings {
        image_credential_provider_config: config.to_owned(),
        image_credential_provider_bin_dir: programs.to_owned(),
        ..FlagSettings::default()
    }
}

fn provider_names(found: &ReadFiles) -> Vec<&str> {
    let files = found.files.credential_providers.as_deref().unwrap_or_default();
    files.iter().map(|file| file.path.rsplit('/').next().unwrap()).collect()
}

#[test]
fn providers_are_one_file_or_some_files_of_a_dir() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("p/sub.yaml")).unwrap();
    fs::write(dir.path().join("p/sub.yaml/x.yaml"), "x").unwrap();
    for name in ["p/b.yaml", "p/a.yml", "p/c.json", "p/README", "one.conf"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    symlink("../one.conf", dir.path().join("p/d.yaml")).unwrap();
    let found = read(&provider_flags("p", ""), dir.path());
    assert_eq!(provider_names(&found), ["a.yml", "b.yaml", "c.json", "d.yaml"]);
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    // A file that is given by its own path may have any name.
    let found = read(&provider_flags("one.conf", ""), dir.path());
    assert_eq!(found.files.credential_providers.unwrap()[0].bytes, b"one.conf");
}

#[test]
fn providers_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("empty")).unwrap();
    fs::create_dir_all(dir.path().join("p")).unwrap();
    fs::write(dir.path().join("p/a.yaml"), "a").unwrap();
    symlink("nowhere", dir.path().join("p/b.yaml")).unwrap();
    symlink(".", dir.path().join("p/c.yaml")).unwrap();
    let large = File::create(dir.path().join("p/d.yaml")).unwrap();
    large.set_len(u64::try_from(MAX_BYTES).unwrap() + 1).unwrap();
    let found = read(&provider_flags("p", ""), dir.path());
    assert_eq!(provider_names(&found), ["a.yaml"]);
    assert_eq!(found.errors.len(), 3, "{:?}", found.errors);
    for (name, part) in [("absent", "cannot read"), ("empty", "no .json, .yaml or .yml file")] {
        let found = read(&provider_flags(name, ""), dir.path());
        assert_eq!(found.files.credential_providers, None);
        assert_eq!(found.errors.len(), 1, "{:?}", found.errors);
        assert!(found.errors[0].starts_with(PROVIDERS_FLAG), "{:?}", found.errors);
        assert!(found.errors[0].contains(part), "{:?}", found.errors);
    }
    let found = read(&provider_flags("/dev/zero", ""), dir.path());
    assert!(found.errors[0].contains("more than"), "{:?}", found.errors);
}

#[test]
fn providers_need_their_programs() {
    use node_config::credential_provider::{self, CredentialProvider};
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("bin/folder")).unwrap();
    for (name, mode) in [("good", 0o755), ("plain", 0o644)] {
        let path = dir.path().join("bin").join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut config = credential_provider::CredentialProviderConfig::default();
    for name in ["good", "plain", "folder", "absent"] {
        let provider =
            CredentialProvider { name: name.to_owned(), ..CredentialProvider::default() };
        config.providers.push(provider);
    }
    let missing = |programs: &str| {
        let flags = provider_flags("p.yaml", programs);
        missing_provider_programs(&flags, Some(&config), dir.path())
    };
    let errors_found = missing("bin");
    assert_eq!(errors_found.len(), 3, "{errors_found:?}");
    for (line, name) in errors_found.iter().zip(["bin/plain", "bin/folder", "bin/absent"]) {
        assert!(line.starts_with("--image-credential-provider-bin-dir: cannot run "), "{line}");
        assert!(line.contains(name), "{line}");
    }
    assert_eq!(missing("").len(), 0);
    assert_eq!(missing("nowhere").len(), 1);
}
