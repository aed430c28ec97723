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

/// Made by `goldens/units` of the Kubernetes parts: what the reference writes as a value, and as the
/// bound of a bucket.
#[test]
fn numbers_are_written_as_the_reference_writes_them() {
    let golden = include_str!("golden.txt");
    let mut compared = 0;
    for line in golden.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [bits, value, bound] = fields[..] else { panic!("{line:?}") };
        let number = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        assert_eq!((&*super::number(number), &*super::number(number)), (value, bound), "{bits}");
        compared += 1;
    }
    assert_eq!(compared, 1660);
}

#[test]
fn counts_sums_and_bounds_of_a_histogram_have_the_form_of_numbers() {
    let mut histogram = Histogram::new(&[1e-5, 0.005, 1_048_576.0, 10_485_760.0]);
    for _ in 0..1_000_000 {
        histogram.observe(2_000_000.0);
    }
    let family = MetricFamily {
        name: "bytes",
        help: "Sizes.",
        kind: MetricKind::Histogram,
        samples: histogram.samples(&[]),
    };
    let expected = "# HELP bytes Sizes.\n# TYPE bytes histogram\nbytes_bucket{le=\"1e-05\"} 0\n\
                    bytes_bucket{le=\"0.005\"} 0\nbytes_bucket{le=\"1.048576e+06\"} 0\n\
                    bytes_bucket{le=\"1.048576e+07\"} 1e+06\nbytes_bucket{le=\"+Inf\"} 1e+06\n\
                    bytes_sum 2e+12\nbytes_count 1e+06\n";
    assert_eq!(text(vec![family]), expected);
}
