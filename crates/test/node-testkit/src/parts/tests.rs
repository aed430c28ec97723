//! The table agrees with the Go modules; versions are read from require lines only; keys are
//! stable and sensitive.

use std::collections::BTreeSet;
use std::fs;

use super::pin::{find_requirement, short_hash};
use super::{TABLE, build, debian_packages, ensure, modules_dir, program};

const GO_MOD: &str = "\
// require example.org/commented v0.0.1
module keelson.test/x

require example.org/single v1.2.3

require (
	example.org/a v0.1.0
	example.org/a/sub v2.0.0 // indirect
)

replace example.org/replaced => example.org/other v9.9.9
";

#[test]
fn versions_come_from_require_lines_only() {
    let of = |module| find_requirement(GO_MOD, module);
    assert_eq!(of("example.org/single").as_deref(), Some("v1.2.3"));
    assert_eq!(of("example.org/a").as_deref(), Some("v0.1.0"));
    assert_eq!(of("example.org/a/sub").as_deref(), Some("v2.0.0"));
    assert_eq!(of("example.org/replaced"), None);
    assert_eq!(of("example.org/commented"), None);
}

#[test]
fn every_part_has_a_pinned_version_and_a_place_of_its_own() {
    let mut places = BTreeSet::new();
    for part in TABLE {
        let built = build::location(part).expect(part.name);
        assert!(built.version.starts_with('v'), "{}: {}", part.name, built.version);
        let dir = built.bin.parent().expect("a parent").to_owned();
        let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with(&format!("{}-{}-", part.name, built.version)), "{name}");
        assert!(places.insert(dir), "{} shares its folder", part.name);
    }
}

/// What the table builds is named in the module's programs.go, so that `go mod tidy` keeps it.
#[test]
fn every_package_is_named_in_its_modules_programs() {
    for part in TABLE {
        let path = modules_dir().expect("modules").join(part.dir).join("programs.go");
        let text = fs::read_to_string(&path).expect("programs.go");
        for (_, package) in part.programs {
            assert!(text.contains(&format!("\"{package}\"")), "{package} in {}", path.display());
        }
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let error = ensure(&["kubelets"]).expect_err("no such part").to_string();
    assert!(error.contains("kubelets") && error.contains("containerd"), "{error}");
    let error = program("containerd", "runc").expect_err("not in that part").to_string();
    assert!(error.contains("no program runc"), "{error}");
}

#[test]
fn packages_are_listed_once() {
    let packages = debian_packages(&["runc", "runc", "etcd"]).expect("known");
    assert_eq!(packages, ["gcc", "libc6-dev", "libseccomp-dev", "pkg-config"]);
}

#[test]
fn hash_changes_with_content_and_with_where_a_piece_ends() {
    let hash = |pieces: &[&str]| short_hash(pieces.iter().map(|piece| piece.as_bytes()));
    assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
    assert_ne!(hash(&["a", "b"]), hash(&["ab", ""]));
    assert_ne!(hash(&["a", "b"]), hash(&["a", "c"]));
    assert_eq!(hash(&["a"]).len(), 8);
}
