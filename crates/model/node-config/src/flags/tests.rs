//! The flag table against the pinned kubelet's own list; how command lines are parsed.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Combine, FlagKind, FlagSettings, FlagTarget, KUBERNETES_VERSION, KubeletCommandLine,
    VersionRequest, alias_of, all, parse, usage,
};

use crate::{ConfigFiles, LoadedNodeConfig, load};

mod kinds;

const GOLDEN: &str = include_str!("tests/kubelet-flags.golden");
/// Where the reference kubelet is pinned; its golden files are made from that version.
const PINS: &str = include_str!("../../../../../tests/real-parts/kubernetes/go.mod");

pub(super) fn read(args: &[&str]) -> KubeletCommandLine {
    parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
}

pub(super) fn errors(line: &KubeletCommandLine) -> Vec<String> {
    line.diagnostics.iter().filter(|one| one.is_error()).map(ToString::to_string).collect()
}

/// The only edit of a command line that must be valid.
pub(super) fn edit(args: &[&str]) -> Value {
    let line = read(args);
    assert_eq!(errors(&line), Vec::<String>::new(), "{args:?}");
    assert_eq!(line.edits.len(), 1, "{args:?}");
    line.edits[0].value.clone()
}

/// The only error of a command line that must be invalid.
pub(super) fn errors_of(args: &[&str]) -> String {
    let found = errors(&read(args));
    assert_eq!(found.len(), 1, "{args:?}: {found:?}");
    found[0].clone()
}

/// How the reference's type tells kinds apart that share one name in the help.
fn go_kind(kind: FlagKind, go_type: &str) -> bool {
    match kind {
        FlagKind::Pairs => go_type == "flag.MapStringString",
        FlagKind::OnePair => go_type == "flag.MapStringString unsplit",
        FlagKind::ThresholdPairs => go_type == "flag.LangleSeparatedMapStringString",
        FlagKind::LabelPairs => go_type == "flag.ConfigurationMap",
        _ => true,
    }
}

#[test]
fn the_flag_table_matches_the_pinned_kubelet() {
    assert!(GOLDEN.starts_with(&format!("# flags of k8s.io/kubernetes {KUBERNETES_VERSION}\n")));
    let theirs: Vec<Vec<&str>> = GOLDEN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.splitn(7, '|').collect())
        .collect();
    let names: Vec<&str> = theirs.iter().map(|row| row[0]).collect();
    assert_eq!(all().iter().map(|flag| flag.name).collect::<Vec<_>>(), names);
    for (ours, row) in all().iter().zip(&theirs) {
        let shorthand = ours.shorthand.map(String::from).unwrap_or_default();
        let deprecated = ours.deprecation.advice().is_some().to_string();
        let bare = ours.kind().bare_value().unwrap_or_default();
        let facts =
            [ours.name, &shorthand, ours.kind().type_name(), bare, &deprecated, ours.default];
        assert_eq!(facts[..], [row[0], row[1], row[2], row[4], row[5], row[6]], "{}", ours.name);
        assert!(go_kind(ours.kind(), row[3]), "{}: {}", ours.name, row[3]);
        assert!(!ours.help.is_empty(), "{}", ours.name);
    }
}

#[test]
fn the_golden_files_are_of_the_pinned_version() {
    assert!(PINS.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}\n")));
}

#[test]
fn configuration_flags_at_their_defaults_change_nothing() {
    let written: Vec<String> = all()
        .iter()
        // One pair per use has no way to write "none".
        .filter(|flag| !flag.path().is_empty() && flag.kind() != FlagKind::OnePair)
        .map(|flag| format!("--{}={}", flag.name, flag.default.trim_matches(['[', ']'])))
        .collect();
    let loaded = load(parse(&written), &ConfigFiles::default());
    let plain = load(parse(&[]), &ConfigFiles::default());
    assert_eq!(loaded.errors().collect::<Vec<_>>(), plain.errors().collect::<Vec<_>>());
    let settings =
        |loaded: &LoadedNodeConfig| loaded.config.as_ref().map(|config| config.settings().clone());
    assert!(settings(&plain).is_some(), "{:?}", plain.diagnostics);
    assert_eq!(settings(&loaded), settings(&plain));
}

#[test]
fn no_path_has_two_flags_and_every_path_finds_its_flag() {
    for flag in all() {
        if let FlagTarget::Config(path, _) = flag.target {
            assert_eq!(alias_of(path), Some(flag.name));
        }
    }
    assert_eq!(alias_of("maxPods"), Some("max-pods"));
    assert_eq!(alias_of("memorySwap.swapBehavior"), None);
    assert_eq!(alias_of(""), None);
}

#[test]
fn the_defaults_of_the_settings_are_the_defaults_of_the_table() {
    let written: Vec<String> = all()
        .iter()
        .filter(|flag| matches!(flag.target, FlagTarget::Node(_)))
        .map(|flag| format!("--{}={}", flag.name, flag.default))
        .collect();
    let line = parse(&written);
    assert!(!line.has_errors(), "{:?}", line.diagnostics);
    assert_eq!(line.given.len(), written.len());
    assert_eq!(line.node, FlagSettings::default());
}

#[test]
fn each_settings_flag_sets_a_field_of_its_own() {
    for flag in all().iter().filter(|flag| matches!(flag.target, FlagTarget::Node(_))) {
        let value = match flag.kind() {
            FlagKind::Bool => "true",
            FlagKind::Int32 | FlagKind::Int => "77",
            FlagKind::Duration => "77s",
            _ => "other=77",
        };
        let line = read(&[&format!("--{}={value}", flag.name)]);
        assert!(!line.has_errors(), "{:?}", line.diagnostics);
        assert_ne!(line.node, FlagSettings::default(), "{}", flag.name);
        // The first line that differs is the field's own, or a nested line of a field above it.
        let before = format!("{:#?}", FlagSettings::default());
        let after = format!("{:#?}", line.node);
        let place = before.lines().zip(after.lines()).position(|(one, other)| one != other);
        let Some(place) = place else {
            assert_eq!(flag.name, "storage-driver-password", "only a secret looks the same");
            continue;
        };
        let above = after.lines().take(place + 1);
        let field = above.filter(|line| !line.contains("nanoseconds")).last().unwrap_or_default();
        let expected = format!("{}:", flag.name.replace('-', "_"));
        assert!(field.trim_start().starts_with(&expected), "{}: {field}", flag.name);
    }
}

#[test]
fn values_are_found_where_the_reference_finds_them() {
    for args in [
        &["--max-pods=7"][..],
        &["--max-pods", "7"],
        &["--max_pods=7"],
        &["--max-pods=3", "--max-pods=7"],
    ] {
        assert_eq!(edit(args), json!(7), "{args:?}");
    }
    for args in [&["-v4"][..], &["-v=4"], &["-v", "4"], &["--v=4"], &["--v", "4"]] {
        assert_eq!(edit(args), json!(4), "{args:?}");
    }
    // A value may look like a flag, and the text after the first '=' belongs to the value.
    assert_eq!(edit(&["--cluster-domain", "--port"]), json!("--port"));
    assert_eq!(edit(&["--cluster-domain=a=b"]), json!("a=b"));
    assert_eq!(edit(&["--cluster-domain="]), json!(""));
    assert_eq!(edit(&["--oom-score-adj", "-5"]), json!(-5));
    // A boolean never takes the next argument.
    assert_eq!(edit(&["--enable-server=false"]), json!(false));
    assert_eq!(edit(&["--fail-swap-on"]), json!(true));
    assert_eq!(errors_of(&["--fail-swap-on", "false"]), "unknown command false");
}

#[test]
fn several_letters_share_a_dash() {
    let line = read(&["-hv4"]);
    assert!(line.help);
    assert_eq!(line.edits[0].value, json!(4));
    let line = read(&["-hv", "4"]);
    assert!(line.help);
    assert_eq!(line.edits[0].value, json!(4));
    assert!(read(&["-h"]).help && read(&["--help"]).help && read(&["-h=true"]).help);
    assert!(!read(&["--help", "--help=false"]).help);
    assert_eq!(
        errors_of(&["-vh"]),
        "--v: logging.verbosity: h: expected a whole number from 0 to 2147483647"
    );
    assert_eq!(errors_of(&["-h="]), "unknown shorthand flag: '=' in -=");
    assert_eq!(
        errors_of(&["-v="]),
        "--v: logging.verbosity: =: expected a whole number from 0 to 2147483647"
    );
    // Go's own test programs have such flags, and the reference passes over them.
    assert_eq!(errors(&read(&["-test.v=1"])), Vec::<String>::new());
}

#[test]
fn mistakes_are_reported_with_upstream_texts() {
    for (args, expected) in [
        (&["--nonsense"][..], "unknown flag: --nonsense"),
        (&["--nonsense=1"], "unknown flag: --nonsense"),
        (&["--nonsense", "1"], "unknown flag: --nonsense"),
        (&["--no_sense"], "unknown flag: --no_sense"),
        (&["--Port=1"], "unknown flag: --Port"),
        (&["-x"], "unknown shorthand flag: 'x' in -x"),
        (&["-xyz=3"], "unknown shorthand flag: 'x' in -xyz=3"),
        (&["-ü"], "unknown shorthand flag: 'ü' in -ü"),
        (&["---port=1"], "bad flag syntax: ---port=1"),
        (&["--=1"], "bad flag syntax: --=1"),
        (&["--port"], "flag needs an argument: --port"),
        (&["--max_pods"], "flag needs an argument: --max_pods"),
        (&["-v"], "flag needs an argument: 'v' in -v"),
        (&["run"], "unknown command run"),
        (&["-"], "unknown command -"),
        (&["one", "two"], "unknown command one"),
        (&["--", "--port=1"], "unknown command --port=1"),
    ] {
        assert_eq!(errors_of(args), expected, "{args:?}");
    }
    assert_eq!(errors(&read(&["--"])), Vec::<String>::new());
    assert_eq!(errors(&read(&[])), Vec::<String>::new());
}

#[test]
fn all_mistakes_are_found_at_once() {
    let line = read(&["--nonsense", "value", "--port=x", "stray", "--max-pods=5", "-q"]);
    assert_eq!(
        errors(&line),
        [
            "unknown flag: --nonsense",
            "--port: port: x: expected a whole number from -2147483648 to 2147483647",
            "unknown shorthand flag: 'q' in -q",
            "unknown command stray",
        ]
    );
    assert_eq!(line.edits.len(), 1);
}

#[test]
fn old_flags_warn_once_and_lasting_ones_do_not() {
    let line = read(&["--port=1", "--port=2", "--maximum-dead-containers=3", "--boot-id-file=x"]);
    let warnings: Vec<String> = line.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].starts_with("Flag --port has been deprecated, "), "{}", warnings[0]);
    assert!(warnings[1].starts_with("Flag --maximum-dead-containers has been deprecated, "));
    assert!(warnings[2].starts_with("Flag --boot-id-file has been deprecated, "));
    assert!(!line.has_errors());
    assert_eq!(read(&["-v2", "--root-dir=/x", "--provider-id=y"]).diagnostics, []);
    // A rejected value is an error, not also a warning.
    assert_eq!(read(&["--port=x"]).diagnostics.len(), 1);
}

#[test]
fn the_version_can_be_asked_for_and_set() {
    assert_eq!(read(&["--version"]).version, Some(VersionRequest::Plain));
    assert_eq!(read(&["--version=raw"]).version, Some(VersionRequest::Raw));
    assert_eq!(read(&["--version", "--version=false"]).version, None);
    let line = read(&["--version=v1.36.3-mine.1+abc"]);
    assert_eq!(line.version, None);
    assert_eq!(line.node.reported_version.as_deref(), Some("v1.36.3-mine.1+abc"));
    assert!(!read(&["--version=v1.36.3"]).has_errors());
    for bad in ["v1.36.4", "v1.36", "v1.36.3x", "v1.36.3-", "v1.36.3-01", "v1.36.3+", "maybe"] {
        assert!(errors_of(&[&format!("--version={bad}")]).starts_with("--version: "), "{bad}");
    }
}

#[test]
fn gates_and_module_levels_add_to_the_file_and_the_rest_replaces_it() {
    let line = read(&["--feature-gates=A=true", "--vmodule=a=1", "--cluster-dns=1.1.1.1"]);
    let ways: Vec<Combine> = line.edits.iter().map(|edit| edit.combine).collect();
    assert_eq!(ways, [Combine::AddKeys, Combine::Append, Combine::Replace]);
    assert_eq!(line.edits[0].path, "featureGates");
    assert_eq!(line.edits[0].flag, "feature-gates");
}

#[test]
fn secrets_are_not_shown() {
    let line = read(&[
        "--manifest-url-header=Authorization:Bearer hush",
        "--storage-driver-password=hush",
        "--manifest-url=https://me:hush@host/pods",
    ]);
    let shown: Vec<String> = line.given.iter().map(super::GivenFlag::shown).collect();
    let debug = format!("{:?} {:?} {:?}", line.given, line.edits[0], line.node);
    assert!(!shown.concat().contains("hush") && !debug.contains("hush"), "{shown:?} {debug}");
    assert!(!errors_of(&["--manifest-url-header=hush"]).contains("hush"));
    assert_eq!(line.node.cadvisor.storage_driver_password.0, "hush");
}

#[test]
fn seccomp_by_flag_or_by_file_is_enough() {
    let on = read(&["--seccomp-default"]).node;
    let off = read(&["--seccomp-default=false"]).node;
    assert!(on.seccomp_default_with(false) && on.seccomp_default_with(true));
    assert!(!off.seccomp_default_with(false) && off.seccomp_default_with(true));
}

#[test]
fn the_help_names_every_flag_and_keeps_to_the_width() {
    let text = usage(80);
    for flag in all() {
        assert!(text.contains(&format!("--{}", flag.name)), "{}", flag.name);
    }
    let too_long: Vec<&str> = text
        .lines()
        .filter(|line| line.chars().count() > 80 && line.trim().contains(' '))
        .filter(|line| !line.contains("--config config.yaml"))
        .collect();
    assert_eq!(too_long, Vec::<&str>::new());
    assert!(text.contains("\n  -v, --v LEVEL\n") && text.contains("\n  -h, --help\n"));
    assert!(usage(0).contains("(default 110) (DEPRECATED: in the file it is maxPods)"));
    assert!(usage(0).lines().count() < usage(60).lines().count());
}

fn word() -> impl Strategy<Value = String> {
    let names: Vec<&str> = all().iter().map(|flag| flag.name).collect();
    prop_oneof![
        3 => (proptest::sample::select(names.clone()), "[ -~]{0,12}")
            .prop_map(|(name, value)| format!("--{name}={value}")),
        1 => proptest::sample::select(names).prop_map(|name| format!("--{name}")),
        2 => any::<String>(),
        2 => "-{0,3}[a-z0-9=,:;<\"_.\\-]{0,12}",
    ]
}

proptest! {
    #[test]
    fn no_command_line_makes_it_panic(args in proptest::collection::vec(word(), 0..8)) {
        let line = parse(&args);
        for diagnostic in &line.diagnostics {
            prop_assert!(!diagnostic.to_string().contains('\n'));
        }
        prop_assert!(line.edits.len() <= line.given.len());
    }

    #[test]
    fn whole_numbers_come_back_in_every_notation(number in any::<i32>()) {
        let magnitude = number.unsigned_abs();
        let sign = if number < 0 { "-" } else { "" };
        for text in [
            format!("{number}"),
            format!("{sign}{magnitude:#x}"),
            format!("{sign}{magnitude:#o}"),
            format!("{sign}{magnitude:#b}"),
            format!("{sign}0{magnitude:o}"),
        ] {
            prop_assert_eq!(edit(&[&format!("--max-pods={text}")]), json!(number), "{}", text);
        }
    }
}
