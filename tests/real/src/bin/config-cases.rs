//! `cargo xtask conformance config [WORD]`: the table of configuration cases, given to the
//! reference kubelet. Both must accept or both refuse, except for the differences that the table
//! lists.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use node_testkit::parts;
use real_tests::config_cases::compare_with_reference;

fn main() -> Result<ExitCode> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let kubelet = parts::program("kubelet", "kubelet")?;
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/model/node-config/cases");
    let compared = compare_with_reference(&kubelet, &table, &filter)?;
    let wrong: Vec<_> = compared.iter().filter(|case| !case.is_as_listed()).collect();
    for case in &wrong {
        println!("differs: {}: {:?}", case.name, case.verdict);
    }
    println!("{} cases, {} differ from the table", compared.len(), wrong.len());
    let good = !compared.is_empty() && wrong.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
