//! Pods from a seed: rows of the table of verdicts, alone, mixed, and damaged.
//!
//! The rule it keeps: the same seed gives the same pods; there is no other source of randomness.

use serde_json::{Value, json};

const VERDICTS: &str =
    include_str!("../../../../crates/model/pod-manifest/src/validation/tests/verdicts.txt");
/// The maximum number of rows in a mixed pod, and of its damaged values.
const MOST_ROWS: usize = 5;
const MOST_DAMAGE: usize = 3;

pub struct Generator {
    state: u64,
    rows: Vec<(&'static str, bool)>,
    /// The values that damage inserts: odd ones, and every value of every row, so that each field
    /// gets what is valid elsewhere.
    values: Vec<Value>,
}

impl Generator {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let rows = VERDICTS
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .filter_map(|line| line.split_once(" =>"))
            // A request names its namespace; one that the pod contradicts is no matter of the pod.
            .filter(|(row, _)| !row.contains("metadata.namespace="))
            .map(|(row, fields)| (row, fields.trim().is_empty()))
            .collect();
        let mut generator = Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            rows,
            values: odd_values(),
        };
        for index in 0..generator.rows.len() {
            collect_values(&generator.row(index)["spec"], &mut generator.values);
        }
        generator
    }

    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The pod of one row.
    #[must_use]
    pub fn row(&self, index: usize) -> Value {
        let mut pod = plain_pod();
        if let Some((row, _)) = self.rows.get(index) {
            set_all(&mut pod, row);
        }
        pod
    }

    /// A pod of several rows. Half of them take only valid rows, so that defaults are compared as
    /// often as errors.
    pub fn mixed(&mut self) -> Value {
        let mut pod = plain_pod();
        let sound = self.below(2) == 0;
        let candidates: Vec<&str> =
            self.rows.iter().filter(|(_, taken)| *taken || !sound).map(|(row, _)| *row).collect();
        for _ in 0..=self.below(MOST_ROWS) {
            let row = candidates[self.below(candidates.len())];
            set_all(&mut pod, row);
        }
        for _ in 0..self.below(MOST_DAMAGE + 1) {
            self.damage(&mut pod);
        }
        pod
    }

    /// Inserts an odd value somewhere in the specification.
    fn damage(&mut self, pod: &mut Value) {
        let mut place = &mut pod["spec"];
        loop {
            let size = match &*place {
                Value::Array(items) => items.len(),
                Value::Object(entries) => entries.len(),
                _ => 0,
            };
            if size == 0 || self.below(4) == 0 {
                break;
            }
            let chosen = self.below(size);
            place = match place {
                Value::Array(items) => &mut items[chosen],
                Value::Object(entries) => {
                    let key = entries.keys().nth(chosen).cloned().unwrap_or_default();
                    &mut entries[&key]
                }
                _ => break,
            };
        }
        // Mostly something of the same kind, so that the pod can still be read.
        let kind = std::mem::discriminant(place);
        for _ in 0..20 {
            let chosen = self.below(self.values.len());
            if std::mem::discriminant(&self.values[chosen]) == kind || self.below(40) == 0 {
                *place = self.values[chosen].clone();
                return;
            }
        }
    }

    /// A pseudo-random number below the limit, by xorshift.
    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let limit = u64::try_from(limit.max(1)).unwrap_or(1);
        usize::try_from((self.state >> 11) % limit).unwrap_or(0)
    }
}

fn odd_values() -> Vec<Value> {
    vec![
        json!(""),
        json!("a-"),
        json!("-a"),
        json!("A.b"),
        json!("a_b"),
        json!("a/b"),
        json!("a//b"),
        json!("../a"),
        json!("1Gi"),
        json!("500m"),
        json!("1e3"),
        json!("0.0001"),
        json!("-1"),
        json!("x".repeat(63)),
        json!("x".repeat(64)),
        json!("x".repeat(254)),
        json!("ü"),
        json!(" "),
        json!(0),
        json!(-1),
        json!(1),
        json!(65536),
        json!(2_147_483_648_u64),
        json!(1.5),
        json!(true),
        json!(false),
        json!(null),
        json!([]),
        json!({}),
        json!(["a"]),
        json!({"a": "b"}),
        json!({"cpu": "1"}),
        json!({"name": "a"}),
    ]
}

/// Every scalar and every small object below a value.
fn collect_values(value: &Value, values: &mut Vec<Value>) {
    match value {
        Value::Object(entries) => entries.values().for_each(|each| collect_values(each, values)),
        Value::Array(items) => items.iter().for_each(|each| collect_values(each, values)),
        _ => {}
    }
    if !values.contains(value) && value.to_string().len() < 200 {
        values.push(value.clone());
    }
}

/// The pod that the rows build on.
fn plain_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain", "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "image": "busybox:1"}],
            "volumes": [
                {"name": "dir", "emptyDir": {}},
                {"name": "host", "hostPath": {"path": "/srv"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
            ],
        },
    })
}

fn set_all(pod: &mut Value, row: &str) {
    for assignment in row.split(" && ") {
        let Some((path, text)) = assignment.trim().split_once('=') else { continue };
        let Ok(value) = serde_json::from_str(text) else { continue };
        set(pod, path, value);
    }
}

/// Sets a field; does nothing if an earlier row left a value of another type in its path.
fn set(pod: &mut Value, path: &str, value: Value) {
    let mut place = pod;
    for step in path.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, rest)) => (name, rest.strip_suffix(']').and_then(|it| it.parse().ok())),
            None => (step, None::<usize>),
        };
        let Some(object) = place.as_object_mut() else { return };
        place = object.entry(name).or_insert(Value::Null);
        if let Some(index) = index {
            let Some(list) = place.as_array_mut() else { return };
            if list.len() == index {
                list.push(json!({"name": "added", "image": "added"}));
            }
            let Some(item) = list.get_mut(index) else { return };
            place = item;
        }
    }
    *place = value;
}
