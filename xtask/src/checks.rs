//! The checks that run no test: formatting, clippy, the layer law, licences, house rules.

use anyhow::{Result, bail};

use crate::tally::CheckTally;
use crate::{goldens, house_rules, layers, licences, workspace};

/// With `record`, lowers the recorded counts of house rules and checks nothing.
pub(crate) fn command(record: bool) -> Result<()> {
    if record {
        return house_rules::record(&workspace::root());
    }
    let mut tally = CheckTally::default();
    run(&mut tally);
    if tally.failed() > 0 {
        bail!("{} of the checks failed", tally.failed());
    }
    Ok(())
}

/// Runs every check, the quick ones first, and goes on after a failure: all findings at once.
pub(crate) fn run(tally: &mut CheckTally) {
    tally.check("rustfmt", || workspace::run(&mut workspace::cargo(&["fmt", "--all", "--check"])));
    tally.check("layer law", || {
        let metadata = workspace::metadata()?;
        let mut found = layers::packages_outside_layers(&metadata);
        found.extend(layers::violations(&layers::graph_of(&metadata)));
        ensure_none(&found)
    });
    tally.check("licences, bans, sources", || {
        ensure_none(&licences::breaches(&workspace::metadata()?, &workspace::built_packages()?))
    });
    tally.check("stamps of golden files", || ensure_none(&goldens::breaches(&workspace::root())?));
    tally.check("house rules", || ensure_none(&house_rules::breaches(&workspace::root())?));
    tally.check("clippy", || {
        workspace::run(&mut workspace::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-Dwarnings",
        ]))
    });
}

fn ensure_none(found: &[String]) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    bail!("{} found:\n  {}", found.len(), found.join("\n  "))
}
