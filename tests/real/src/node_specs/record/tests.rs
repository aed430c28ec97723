//! Records and the page on small results.

use super::super::results::SpecResult;
use super::*;

fn results(of: &[(&str, &str, &str)]) -> Results {
    let specs = of.iter().map(|(name, state, reason)| {
        let ending =
            SpecResult { state: (*state).to_owned(), reason: (*reason).to_owned(), seconds: 2 };
        ((*name).to_owned(), ending)
    });
    Results(specs.collect())
}

#[test]
fn a_record_keeps_the_first_line_of_a_failure_and_is_read_back() {
    let results = results(&[("a  b", "failed", "\n first\tline \nsecond"), ("c", "passed", "")]);
    let record = RunRecord::of(&results, "2026-11-18 abc");
    assert_eq!(record.specs["a b"].failure, "first line");
    assert_eq!(record.text(), "# 2026-11-18 abc\nfailed\t2\ta b\tfirst line\npassed\t2\tc\t\n");
    assert_eq!(RunRecord::parse(&record.text()), record);
}

#[test]
fn the_page_puts_specs_that_differ_first_and_keeps_columns_of_other_runs() {
    let reference = RunRecord::of(&results(&[("a", "passed", ""), ("b", "passed", "")]), "x");
    let ours = RunRecord::of(&results(&[("a", "failed", "no | node")]), "y");
    let records = BTreeMap::from([("ours".to_owned(), ours), ("reference".to_owned(), reference)]);
    let page = page(&records);
    assert!(page.contains("| ours | 0 | 1 | 0 | 2 | y |"), "{page}");
    assert!(page.contains("| a | failed | passed | no \\| node |"), "{page}");
    assert!(page.contains("| b | not run | passed |  |"), "{page}");
}
