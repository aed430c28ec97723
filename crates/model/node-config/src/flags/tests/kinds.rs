//! Every kind of value: what is accepted, the result, what is rejected, how repeated uses combine.

use serde_json::{Value, json};

use super::{edit, errors, errors_of, read};

/// `--flag=text` for each text, and the JSON of the result; `None` for a text that is rejected.
fn table(flag: &str, rows: &[(&str, Option<Value>)]) {
    for (text, expected) in rows {
        let line = read(&[&format!("--{flag}={text}")]);
        match expected {
            Some(value) => {
                assert_eq!(errors(&line), Vec::<String>::new(), "--{flag}={text}");
                assert_eq!(line.edits[0].value, *value, "--{flag}={text}");
            }
            None => {
                assert_eq!(errors(&line).len(), 1, "--{flag}={text}");
                assert_eq!(line.edits, [], "--{flag}={text}");
            }
        }
    }
}

#[test]
fn truth_values() {
    for text in ["1", "t", "T", "TRUE", "true", "True"] {
        table("enable-server", &[(text, Some(json!(true)))]);
    }
    for text in ["0", "f", "F", "FALSE", "false", "False"] {
        table("enable-server", &[(text, Some(json!(false)))]);
    }
    for text in ["", "yes", "no", "on", "tRUE", " true", "2"] {
        table("enable-server", &[(text, None)]);
    }
}

#[test]
fn whole_numbers() {
    table(
        "max-pods",
        &[
            ("110", Some(json!(110))),
            ("+5", Some(json!(5))),
            ("-5", Some(json!(-5))),
            ("0", Some(json!(0))),
            ("-0", Some(json!(0))),
            ("00", Some(json!(0))),
            ("0x10", Some(json!(16))),
            ("0XfF", Some(json!(255))),
            ("-0x10", Some(json!(-16))),
            ("010", Some(json!(8))),
            ("0o17", Some(json!(15))),
            ("0b101", Some(json!(5))),
            ("1_000", Some(json!(1000))),
            ("0_7", Some(json!(7))),
            ("0x_1F", Some(json!(31))),
            ("2147483647", Some(json!(2_147_483_647))),
            ("-2147483648", Some(json!(-2_147_483_648_i64))),
            ("2147483648", None),
            ("-2147483649", None),
            ("99999999999999999999", None),
            ("", None),
            ("+", None),
            ("--1", None),
            ("08", None),
            ("0x", None),
            ("0b2", None),
            ("0_", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1.5", None),
            ("1e3", None),
            (" 1", None),
            ("٣", None),
        ],
    );
    table(
        "pod-max-pids",
        &[
            ("9223372036854775807", Some(json!(i64::MAX))),
            ("-9223372036854775808", Some(json!(i64::MIN))),
            ("9223372036854775808", None),
        ],
    );
    let cadvisor = read(&["--application_metrics_count_limit=0x20"]);
    assert_eq!(cadvisor.node.cadvisor.application_metrics_count_limit, 32);
}

#[test]
fn levels() {
    table(
        "v",
        &[
            ("0", Some(json!(0))),
            ("007", Some(json!(7))),
            ("2147483647", Some(json!(2_147_483_647))),
            ("2147483648", None),
            ("-1", None),
            ("+1", None),
            ("0x1", None),
            ("1_0", None),
            ("", None),
        ],
    );
}

#[test]
fn durations() {
    table(
        "sync-frequency",
        &[
            ("1m", Some(json!("1m0s"))),
            ("1h2m3.5s", Some(json!("1h2m3.5s"))),
            ("0", Some(json!("0s"))),
            ("-5s", Some(json!("-5s"))),
            ("5", None),
            ("", None),
            ("1d", None),
        ],
    );
}

#[test]
fn lists_of_words() {
    table(
        "cluster-dns",
        &[
            ("", Some(json!([]))),
            ("a", Some(json!(["a"]))),
            ("a,b", Some(json!(["a", "b"]))),
            ("a, b", Some(json!(["a", " b"]))),
            (",", Some(json!(["", ""]))),
            ("a,", Some(json!(["a", ""]))),
            ("\"a,b\",c", Some(json!(["a,b", "c"]))),
            ("\"a\"\"b\"", Some(json!(["a\"b"]))),
            ("\"a\nb\",c", Some(json!(["a\nb", "c"]))),
            ("\"a\r\nb\"", Some(json!(["a\nb"]))),
            ("\"\"", Some(json!([""]))),
            ("a\nb", Some(json!(["a"]))),
            ("\n\na\r\n", Some(json!(["a"]))),
            ("a\r", Some(json!(["a"]))),
            ("\"a\"\nb", Some(json!(["a"]))),
            ("\n", None),
            ("a\"b", None),
            ("\"a", None),
            ("\"a\"b", None),
            (" \"a\"", None),
        ],
    );
    assert_eq!(edit(&["--cluster-dns=a,b", "--cluster-dns=c"]), json!(["a", "b", "c"]));
    assert_eq!(edit(&["--cluster-dns=a", "--cluster-dns="]), json!(["a"]));
}

#[test]
fn pairs() {
    table(
        "system-reserved",
        &[
            ("", Some(json!({}))),
            ("cpu=1,memory=2Gi", Some(json!({"cpu": "1", "memory": "2Gi"}))),
            (" cpu = 1 ,,", Some(json!({"cpu": "1"}))),
            ("cpu=1,cpu=2", Some(json!({"cpu": "2"}))),
            ("cpu=", Some(json!({"cpu": ""}))),
            ("=1", Some(json!({"": "1"}))),
            ("a=b=c", Some(json!({"a": "b=c"}))),
            ("cpu", None),
            ("cpu=1,memory", None),
            (" ", None),
        ],
    );
    let both = edit(&["--kube-reserved=cpu=1,pid=9", "--kube-reserved=cpu=2"]);
    assert_eq!(both, json!({"cpu": "2", "pid": "9"}));
    table(
        "cpu-manager-policy-options",
        &[
            ("full-pcpus-only=true", Some(json!({"full-pcpus-only": "true"}))),
            ("a=1,b=2", Some(json!({"a": "1,b=2"}))),
            ("", None),
            ("a", None),
        ],
    );
    let both = edit(&["--cpu-manager-policy-options=a=1", "--cpu-manager-policy-options=b=2"]);
    assert_eq!(both, json!({"a": "1", "b": "2"}));
    table(
        "eviction-hard",
        &[
            ("", Some(json!({}))),
            ("memory.available<1Gi", Some(json!({"memory.available": "1Gi"}))),
            ("a<1, b < 2%", Some(json!({"a": "1", "b": "2%"}))),
            ("memory.available=1Gi", None),
        ],
    );
}

#[test]
fn labels() {
    let line = read(&["--node-labels=a=1, b ,,c=x=y", "--node-labels=a=2"]);
    assert_eq!(errors(&line), Vec::<String>::new());
    let labels: Vec<(&str, &str)> =
        line.node.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("a", "2"), ("b", ""), ("c", "x=y")]);
}

#[test]
fn gates() {
    table(
        "feature-gates",
        &[
            ("", Some(json!({}))),
            ("A=true,B=f", Some(json!({"A": true, "B": false}))),
            (" A = 1 ", Some(json!({"A": true}))),
            ("A=true,A=false", Some(json!({"A": false}))),
            ("A", None),
            ("A=maybe", None),
            ("A=", None),
        ],
    );
    let both = edit(&["--feature-gates=A=true,B=true", "--feature-gates=A=false"]);
    assert_eq!(both, json!({"A": false, "B": true}));
}

#[test]
fn headers() {
    table(
        "manifest-url-header",
        &[
            ("", Some(json!({}))),
            ("a:1,b:2,a:3", Some(json!({"a": ["1", "3"], "b": ["2"]}))),
            (" a : 1:2 ", Some(json!({"a": ["1:2"]}))),
            ("a", None),
        ],
    );
    let both = edit(&["--manifest-url-header=a:1", "--manifest-url-header=a:0"]);
    assert_eq!(both, json!({"a": ["1", "0"]}));
}

#[test]
fn addresses() {
    table(
        "address",
        &[
            ("10.0.0.1", Some(json!("10.0.0.1"))),
            ("010.0.0.1", Some(json!("010.0.0.1"))),
            ("::", Some(json!("::"))),
            ("fe80::1%eth0", None),
            ("10.0.0", None),
            ("host", None),
            ("1.2.3.4:80", None),
        ],
    );
    // An empty address changes nothing, so there is no edit.
    let line = read(&["--address="]);
    assert_eq!((errors(&line).len(), line.edits.len(), line.given.len()), (0, 0, 1));
    assert_eq!(edit(&["--address=1.1.1.1", "--address="]), json!("1.1.1.1"));
    assert_eq!(edit(&["--address=1.1.1.1", "--address=2.2.2.2"]), json!("2.2.2.2"));
    assert!(errors_of(&["--address=", "--address=1.1.1.1"]).contains("after an empty one"));
}

#[test]
fn taints() {
    table(
        "register-with-taints",
        &[
            ("", Some(json!([]))),
            (
                "a=b:NoSchedule,c:NoExecute",
                Some(json!([
                    {"key": "a", "value": "b", "effect": "NoSchedule"},
                    {"key": "c", "effect": "NoExecute"}
                ])),
            ),
            ("a=:PreferNoSchedule", Some(json!([{"key": "a", "effect": "PreferNoSchedule"}]))),
            (
                "a:NoSchedule,a:NoExecute",
                Some(json!([
                    {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}
                ])),
            ),
            ("a:NoSchedule-,b-", Some(json!([]))),
            ("a:NoSchedule,a=x:NoSchedule", None),
            ("a", None),
            ("a=b", None),
            ("a:", None),
            ("a:Sometimes", None),
            ("a:noschedule", None),
            ("a=b=c:NoSchedule", None),
            ("a:b:NoSchedule", None),
            (":NoSchedule", None),
            ("a=b c:NoSchedule", None),
            ("a:NoSchedule,", None),
            ("a b:NoSchedule", None),
        ],
    );
    let last = edit(&["--register-with-taints=a:NoExecute", "--register-with-taints=b:NoExecute"]);
    assert_eq!(last, json!([{"key": "b", "effect": "NoExecute"}]));
}

#[test]
fn memory_reservations() {
    table(
        "reserved-memory",
        &[
            (
                "0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi",
                Some(json!([
                    {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
                    {"numaNode": 1, "limits": {"memory": "2Gi"}}
                ])),
            ),
            ("+1:memory=1", Some(json!([{"numaNode": 1, "limits": {"memory": "1"}}]))),
            ("-1:memory=1", Some(json!([{"numaNode": -1, "limits": {"memory": "1"}}]))),
            ("0:memory=1024Mi", Some(json!([{"numaNode": 0, "limits": {"memory": "1Gi"}}]))),
            ("0", None),
            ("0:", None),
            ("0:memory", None),
            ("0:memory=1=2", None),
            ("0:memory=", None),
            ("0:memory=much", None),
            ("0:cpu=1", None),
            ("x:memory=1", None),
            ("0x1:memory=1", None),
            (":memory=1", None),
            ("0:memory=1:2", None),
            ("0:memory=1;", None),
        ],
    );
    let both = edit(&["--reserved-memory=0:memory=1", "--reserved-memory=1:memory=2"]);
    assert_eq!(both.as_array().map(Vec::len), Some(2));
    assert_eq!(read(&["--reserved-memory="]).edits, []);
    assert!(errors_of(&["--reserved-memory=", "--reserved-memory=0:memory=1"]).contains("empty"));
}

#[test]
fn quantities() {
    table(
        "log-text-info-buffer-size",
        &[
            ("512", Some(json!("512"))),
            ("2048", Some(json!("2048"))),
            ("2Ki", Some(json!("2Ki"))),
            ("1024Ki", Some(json!("1Mi"))),
            ("", None),
            ("many", None),
        ],
    );
}

#[test]
fn module_levels() {
    table(
        "vmodule",
        &[
            ("", Some(json!([]))),
            (
                "a=1,b*=2,",
                Some(json!([
                    {"filePattern": "a", "verbosity": 1}, {"filePattern": "b*", "verbosity": 2}
                ])),
            ),
            ("a", None),
            ("a=", None),
            ("=1", None),
            ("a=1=2", None),
            ("a=-1", None),
            ("a=2147483648", None),
        ],
    );
    let both = edit(&["--vmodule=a=1", "--vmodule=a=2"]);
    assert_eq!(both.as_array().map(Vec::len), Some(2));
}
