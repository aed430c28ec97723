//! Runs the table on the reference kubelet named in the environment.

use std::path::Path;

use super::{Compared, compare_with_reference};

#[test]
#[ignore = "by verb: needs root and the reference kubelet in KEELSON_REFERENCE_KUBELET"]
fn reference_kubelet_decides_as_the_table_says() {
    let kubelet = std::env::var("KEELSON_REFERENCE_KUBELET").expect("path of the kubelet");
    let filter = std::env::var("KEELSON_CASE_FILTER").unwrap_or_default();
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/model/node-config/cases");
    let compared = compare_with_reference(Path::new(&kubelet), &table, &filter).unwrap();
    for each in &compared {
        println!("{}: {:?}", each.name, each.verdict);
    }
    let wrong: Vec<&Compared> = compared.iter().filter(|each| !each.is_as_listed()).collect();
    assert!(wrong.is_empty(), "{} of {} cases differ: {wrong:#?}", wrong.len(), compared.len());
}
