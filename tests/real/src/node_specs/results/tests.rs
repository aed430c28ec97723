//! The comparison on small results.

use super::*;

fn results(of: &[(&str, &str)]) -> Results {
    let ending =
        |state: &str| SpecResult { state: state.to_owned(), reason: String::new(), seconds: 1 };
    Results(of.iter().map(|(name, state)| ((*name).to_owned(), ending(state))).collect())
}

#[test]
fn specs_with_different_results_must_be_listed_and_no_others() {
    let reference = results(&[("a", "passed"), ("b", "failed"), ("c", "passed"), ("d", "passed")]);
    let ours = results(&[("a", "passed"), ("b", "failed"), ("c", "failed")]);
    let comparison = SpecComparison { reference: &reference, ours: &ours };
    assert_eq!(comparison.failed_alike().collect::<Vec<_>>(), ["b"]);
    assert_eq!(comparison.differences()["c"], ("passed", "failed"));
    assert_eq!(comparison.differences()["d"], ("passed", "not run"));
    assert_eq!(comparison.unexplained("").len(), 2);
    assert_eq!(comparison.unexplained("# why\nc\ta reason\nd\tanother\n").len(), 0);
    let wrong = comparison.unexplained("a\tno reason\nc\ta reason\nd\tanother\n");
    assert_eq!(wrong, ["listed, but ends alike: a"]);
}

#[test]
fn a_report_of_ginkgo_is_read() {
    let report = serde_json::json!([{ "SpecReports": [
        { "LeafNodeType": "It", "State": "passed", "ContainerHierarchyTexts": ["Pods", "in a bed"],
          "LeafNodeText": "sleep", "RunTime": 2_500_000_000_u64 },
        { "LeafNodeType": "It", "State": "timedout", "ContainerHierarchyTexts": [],
          "LeafNodeText": "hangs", "Failure": { "Message": "too late" } },
        { "LeafNodeType": "It", "State": "skipped", "LeafNodeText": "was not chosen" },
        { "LeafNodeType": "BeforeSuite", "State": "passed", "LeafNodeText": "" },
    ]}]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), report.to_string()).expect("written");
    let results = Results::from_report(file.path()).expect("a report");
    assert_eq!(results.0.len(), 2);
    assert_eq!(results.0["Pods in a bed sleep"].seconds, 2);
    assert_eq!(results.0["hangs"].state, "failed");
    assert_eq!(results.0["hangs"].reason, "too late");
}

#[test]
fn failed_specs_are_chosen_again_by_their_whole_text() {
    let kept = results(&[("[a] (b) c.d", "failed"), ("e", "passed"), ("f|g", "failed")]);
    assert_eq!(kept.focus_on_failed().as_deref(), Some(r"\[a\] \(b\) c\.d|f\|g"));
    assert_eq!(results(&[("e", "passed")]).focus_on_failed(), None);
    let newer = kept.updated_by(results(&[("f|g", "passed")]));
    assert_eq!((newer.count("passed"), newer.count("failed")), (2, 1));
}
