//! This test process, and directories in place of /proc.

use super::*;
use ports::metrics::text;

fn told(source: &ProcessMetrics) -> Vec<(String, f64)> {
    let text = text(source.families());
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(pair).collect()
}

#[test]
fn this_process_is_told_as_it_is() {
    let told = told(&ProcessMetrics::default());
    let of = |name: &str| told.iter().find(|(told, _)| told == name).unwrap().1;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - of("process_start_time_seconds");
    assert!((-2.0..3600.0).contains(&age), "{age}");
    assert!(of("process_resident_memory_bytes") > 65536.0, "{told:?}");
    assert!(of("process_virtual_memory_bytes") > of("process_resident_memory_bytes"), "{told:?}");
    assert!(of("process_open_fds") >= 3.0 && of("process_max_fds") >= 3.0, "{told:?}");
    assert!(of("process_cpu_seconds_total") < 3600.0, "{told:?}");
}

#[test]
fn a_name_with_brackets_moves_nothing_and_what_cannot_be_read_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("self")).unwrap();
    let numbers: Vec<String> = (0..40).map(|number| (number * 100).to_string()).collect();
    let stat = format!("7 (a) b (c)) S {}\n", numbers.join(" "));
    std::fs::write(folder.path().join("self/stat"), stat).unwrap();
    let source = ProcessMetrics { processes: folder.path().to_owned() };
    let told = told(&source);
    // `S` is the field before number 0.
    assert!(told.contains(&("process_virtual_memory_bytes".to_owned(), 1900.0)), "{told:?}");
    assert!(!told.iter().any(|(name, _)| name == "process_start_time_seconds"), "{told:?}");
    assert!(!told.iter().any(|(name, _)| name == "process_open_fds"), "{told:?}");
    std::fs::remove_file(folder.path().join("self/stat")).unwrap();
    assert!(source.families().is_empty());
}
