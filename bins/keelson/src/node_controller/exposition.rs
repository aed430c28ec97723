//! Metrics as text, in the form that Prometheus reads (version 0.0.4).
//!
//! Rule: families in the order of their names, samples as they came; names are not changed. Pure.

use node_controller::{MetricFamily, MetricKind};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families as text.
pub(super) fn text(mut families: Vec<MetricFamily>) -> String {
    families.sort_by_key(|family| family.name);
    let mut text = String::new();
    for family in &families {
        // A metric without a sample says nothing, and upstream leaves it out.
        if family.samples.is_empty() {
            continue;
        }
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        text.push_str(&format!("# HELP {} {}\n", family.name, escaped(family.help, false)));
        text.push_str(&format!("# TYPE {} {kind}\n", family.name));
        for sample in &family.samples {
            text.push_str(family.name);
            text.push_str(sample.suffix);
            for (number, (name, value)) in sample.labels.iter().enumerate() {
                text.push(if number == 0 { '{' } else { ',' });
                text.push_str(&format!("{name}=\"{}\"", escaped(value, true)));
            }
            if !sample.labels.is_empty() {
                text.push('}');
            }
            text.push_str(&format!(" {}\n", number(sample.value)));
        }
    }
    text
}

fn escaped(text: &str, quotes: bool) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => result.push_str("\\\\"),
            '\n' => result.push_str("\\n"),
            '"' if quotes => result.push_str("\\\""),
            other => result.push(other),
        }
    }
    result
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_controller::Sample;

    #[test]
    fn families_are_sorted_and_values_escaped() {
        let sample = |suffix, labels: Vec<(&'static str, &str)>, value| Sample {
            suffix,
            labels: labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
            value,
        };
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
}
