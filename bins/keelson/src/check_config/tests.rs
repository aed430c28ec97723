//! What a check prints, in its three forms.

use super::*;
use std::fs;

fn options(arguments: &[&str]) -> Result<(ConfigFormat, Vec<String>), String> {
    own_options(arguments.iter().map(OsString::from).collect())
}

#[test]
fn the_output_option_is_taken_out_and_the_rest_left_alone() {
    for given in [
        &["-o", "json", "--v=2"][..],
        &["-ojson", "--v=2"],
        &["-o=json", "--v=2"],
        &["--v=2", "--output", "json"],
        &["--output=json", "--v=2"],
    ] {
        assert_eq!(options(given), Ok((ConfigFormat::Json, vec!["--v=2".to_owned()])), "{given:?}");
    }
    assert_eq!(options(&[]), Ok((ConfigFormat::Yaml, vec![])));
    assert!(options(&["-o", "xml"]).unwrap_err().contains("xml"));
    assert!(options(&["-o"]).is_err());
}

fn report(configuration: &str, arguments: &[&str]) -> report::ConfigReport {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("k.yaml"), configuration).unwrap();
    let mut all = vec!["--config=k.yaml".to_owned()];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    examine(flags::parse(&all), dir.path())
}

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    authentication: {webhook: {enabled: false}}\n\
                    authorization: {mode: AlwaysAllow}\n";

#[test]
fn a_good_configuration_shows_values_and_origins() {
    let report = report(
        &format!("{HEAD}maxPods: 55\nstaticPodURLHeader:\n  Authorization: [s3cr3t]\n"),
        &["--root-dir=/srv/kubelet", "--read-only-port=0"],
    );
    assert!(report.usable(), "{:?}", report.findings());
    let yaml = report.render(ConfigFormat::Yaml);
    assert!(yaml.contains("\nmaxPods: 55\n"), "{yaml}");
    assert!(!yaml.contains("s3cr3t"), "{yaml}");
    let table = report.render(ConfigFormat::Table);
    let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("maxPods ").contains("k.yaml:5"), "{table}");
    assert!(line("readOnlyPort ").ends_with("--read-only-port"), "{table}");
    assert!(line("--root-dir ").contains("/srv/kubelet"), "{table}");
    assert!(!table.contains("s3cr3t"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&report.render(ConfigFormat::Json)).unwrap();
    assert_eq!(json["usable"], true);
    assert_eq!(json["configuration"]["maxPods"], 55);
    assert!(!json.to_string().contains("s3cr3t"), "{json}");
    let deprecated = report.findings();
    assert!(deprecated.iter().any(|line| line.contains("read-only-port")), "{deprecated:?}");
}

#[test]
fn a_bad_one_lists_every_error() {
    let report = report(&format!("{HEAD}maxPods: -5\nhealthzPort: 70000\n"), &["--v=x"]);
    assert!(!report.usable());
    let errors: Vec<String> =
        report.findings().into_iter().filter(|line| line.starts_with("error: ")).collect();
    for part in ["maxPods", "healthzPort", "--v"] {
        assert!(errors.iter().any(|line| line.contains(part)), "{part} in {errors:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.render(ConfigFormat::Json)).unwrap();
    assert_eq!(json["usable"], false);
    assert_eq!(json["errors"].as_array().unwrap().len(), errors.len());
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let report = examine(flags::parse(&["--config=absent.yaml".to_owned()]), Path::new("/"));
    assert!(!report.usable());
    assert!(report.findings()[0].starts_with("error: --config: cannot read /absent.yaml"));
}

#[test]
fn no_form_shows_what_a_url_hides() {
    for arguments in [&[][..], &["--manifest-url=https://me:s3cr3t@h/p?token=s3cr3t#s3cr3t"]] {
        let url = "https://me:s3cr3t@host/pods?token=s3cr3t";
        let body = format!("{HEAD}staticPodURL: {url}\nstaticPodUrlHeader: {{A: [s3cr3t]}}\n");
        let report = report(&body, arguments);
        assert!(report.usable(), "{:?}", report.findings());
        let mut shown = report.findings().join("\n");
        for output in [ConfigFormat::Yaml, ConfigFormat::Json, ConfigFormat::Table] {
            let text = report.render(output);
            assert!(text.contains("?<masked>"), "{text}");
            shown.push_str(&text);
        }
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }
}

#[test]
fn findings_are_listed_by_line() {
    let body = format!("{HEAD}healthzPort: 70000\nmaxPods: -5\nimageGCHighThresholdPercent: 900\n");
    let findings = report(&body, &[]).findings();
    let errors: Vec<&String> = findings.iter().filter(|line| line.starts_with("error")).collect();
    let has = |index: usize, part: &str| errors[index].contains(part);
    assert!(
        has(0, ":5: healthzPort") && has(1, ":6: maxPods") && has(2, ":7: imageGC"),
        "{errors:#?}"
    );
}
