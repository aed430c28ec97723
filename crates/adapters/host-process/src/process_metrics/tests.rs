//! This test process, and directories in place of /proc.

use super::*;
use ports::metrics::text;

fn rendered(source: &ProcessMetrics) -> Vec<(String, f64)> {
    let text = text(source.families());
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(pair).collect()
}

#[test]
fn the_metrics_of_this_process_are_plausible() {
    let rendered = rendered(&ProcessMetrics::default());
    let of = |name: &str| rendered.iter().find(|(rendered, _)| rendered == name).unwrap().1;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - of("process_start_time_seconds");
    assert!((-2.0..3600.0).contains(&age), "{age}");
    assert!(of("process_resident_memory_bytes") > 65536.0, "{rendered:?}");
    assert!(
        of("process_virtual_memory_bytes") > of("process_resident_memory_bytes"),
        "{rendered:?}"
    );
    assert!(of("process_open_fds") >= 3.0 && of("process_max_fds") >= 3.0, "{rendered:?}");
    assert!(of("process_cpu_seconds_total") < 3600.0, "{rendered:?}");
}

#[test]
fn brackets_in_the_program_name_do_not_shift_fields_and_unreadable_values_are_omitted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("self")).unwrap();
    let numbers: Vec<String> = (0..40).map(|number| (number * 100).to_string()).collect();
    let stat = format!("7 (a) b (c)) S {}\n", numbers.join(" "));
    std::fs::write(dir.path().join("self/stat"), stat).unwrap();
    let source = ProcessMetrics { processes: dir.path().to_owned() };
    let rendered = rendered(&source);
    // `S` is the field before number 0.
    assert!(
        rendered.contains(&("process_virtual_memory_bytes".to_owned(), 1900.0)),
        "{rendered:?}"
    );
    assert!(!rendered.iter().any(|(name, _)| name == "process_start_time_seconds"), "{rendered:?}");
    assert!(!rendered.iter().any(|(name, _)| name == "process_open_fds"), "{rendered:?}");
    std::fs::remove_file(dir.path().join("self/stat")).unwrap();
    assert!(source.families().is_empty());
}
