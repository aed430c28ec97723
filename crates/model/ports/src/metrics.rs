//! Metrics: their types, their text format, and the trait of their sources.
//!
//! Rule: families are written in the order of their names, samples as they came, in the text format
//! of Prometheus (version 0.0.4). Names and labels are not changed; a family without a sample is
//! left out, as upstream does. Counts nothing itself.

#[cfg(test)]
mod tests;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// One line of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What follows the family's name: empty, or `_bucket`, `_sum`, `_count` of a histogram.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// One metric with all its lines, under upstream's name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: MetricKind,
    pub samples: Vec<Sample>,
}

/// A source of metrics.
pub trait MetricSource: Send + Sync {
    /// The current values. Never blocks.
    fn families(&self) -> Vec<MetricFamily>;
}

/// All families as text.
pub fn text(mut families: Vec<MetricFamily>) -> String {
    families.sort_by_key(|family| family.name);
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
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

/// A number as the reference writes it, in values and in `le` labels: the fewest digits that give it
/// back, with an exponent below 0.0001 and from a million on.
///
/// upstream: prometheus/common expfmt/text_create.go (writeFloat)
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent @ (..-4 | 6..)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

/// A cumulative histogram: how many values were at most each bound, how many in all, and their sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above them all; not yet summed up.
    counts: Box<[u64]>,
    sum: f64,
}

impl Histogram {
    /// `bounds` must be ascending.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        let place = self.bounds.iter().position(|bound| value <= *bound);
        if let Some(count) = self.counts.get_mut(place.unwrap_or(self.bounds.len())) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Adds the observations of another histogram with the same bounds.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// The lines of a family, each with these labels.
    pub fn samples(&self, labels: &[(&'static str, String)]) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.counts.len() + 2);
        let mut all: u64 = 0;
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(&self.counts) {
            all += count;
            let mut labels = labels.to_vec();
            labels.push(("le", number(bound)));
            samples.push(Sample { suffix: "_bucket", labels, value: as_float(all) });
        }
        let labels = labels.to_vec();
        samples.push(Sample { suffix: "_sum", labels: labels.clone(), value: self.sum });
        samples.push(Sample { suffix: "_count", labels, value: as_float(all) });
        samples
    }
}

/// A count in the text format; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn as_float(count: u64) -> f64 {
    count as f64
}
