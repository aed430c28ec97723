//! The text compared byte by byte, and histograms.

use super::*;

fn sample(suffix: &'static str, labels: Vec<(&'static str, &str)>, value: f64) -> Sample {
    let labels = labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    Sample { suffix, labels, value }
}

#[test]
fn families_are_sorted_and_values_escaped() {
    let family = |name, kind, samples| MetricFamily { name, help: "A\nhelp.", kind, samples };
    let zone = vec![("zone", "a\"b\\c\nd:\0:e"), ("other", "")];
    let families = vec![
        family("z_gauge", MetricKind::Gauge, vec![sample("", zone, 0.1)]),
        family(
            "a_histogram",
            MetricKind::Histogram,
            vec![
                sample("_bucket", vec![("le", "+Inf")], 3.0),
                sample("_sum", vec![], f64::INFINITY),
                sample("_count", vec![], 3.0),
            ],
        ),
        family("empty", MetricKind::Counter, vec![]),
    ];
    let expected = "# HELP a_histogram A\\nhelp.\n# TYPE a_histogram histogram\n\
                    a_histogram_bucket{le=\"+Inf\"} 3\na_histogram_sum +Inf\n\
                    a_histogram_count 3\n# HELP z_gauge A\\nhelp.\n# TYPE z_gauge gauge\n\
                    z_gauge{zone=\"a\\\"b\\\\c\\nd:\0:e\",other=\"\"} 0.1\n";
    assert_eq!(text(families), expected);
}

#[test]
fn a_bucket_counts_all_that_is_at_most_its_bound() {
    let mut histogram = Histogram::new(&[1.0, 2.5]);
    for value in [0.5, 1.0, 2.0, 9.0] {
        histogram.observe(value);
    }
    let labels = [("size", "small".to_owned())];
    let lines: Vec<(String, f64)> = histogram
        .samples(&labels)
        .into_iter()
        .map(|sample| {
            let labels: Vec<String> =
                sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (format!("{}{{{}}}", sample.suffix, labels.join(",")), sample.value)
        })
        .collect();
    let expected = [
        ("_bucket{size=small,le=1}", 2.0),
        ("_bucket{size=small,le=2.5}", 3.0),
        ("_bucket{size=small,le=+Inf}", 4.0),
        ("_sum{size=small}", 12.5),
        ("_count{size=small}", 4.0),
    ];
    assert_eq!(lines, expected.map(|(line, value)| (line.to_owned(), value)));
}
