//! Replies compared byte by byte.

use super::*;

struct Fixed(&'static str, Result<(), &'static str>);

impl HealthCheck for Fixed {
    fn name(&self) -> &str {
        self.0
    }
    fn check(&self) -> Result<(), String> {
        self.1.map_err(str::to_owned)
    }
}

fn reply(path: &str, query: &str) -> (u16, String) {
    let checks: Vec<Arc<dyn HealthCheck>> =
        vec![Arc::new(Fixed("ping", Ok(()))), Arc::new(Fixed("syncloop", Err("stuck for 9m")))];
    let reply = answer(path, query, &checks, &HealthCheckCounts::default());
    (reply.status, reply.body)
}

fn healthy(path: &str, query: &str) -> (u16, String) {
    let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(Fixed("ping", Ok(())))];
    let reply = answer(path, query, &checks, &HealthCheckCounts::default());
    (reply.status, reply.body)
}

#[test]
fn a_healthy_node_answers_ok_and_lists_checks_when_verbose() {
    assert_eq!(healthy("/healthz", ""), (200, "ok".to_owned()));
    assert_eq!(healthy("/healthz/ping", ""), (200, "ok".to_owned()));
    let verbose = "[+]ping ok\nhealthz check passed\n".to_owned();
    assert_eq!(healthy("/healthz", "verbose"), (200, verbose.clone()));
    assert_eq!(healthy("/healthz", "verbose=true"), (200, verbose));
}

#[test]
fn a_failed_check_is_always_listed_but_its_reason_is_not() {
    let list = "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
    assert_eq!(reply("/healthz", ""), (500, list.to_owned()));
    assert_eq!(
        reply("/healthz/syncloop", ""),
        (500, "internal server error: stuck for 9m\n".to_owned())
    );
}

#[test]
fn checks_can_be_left_out_by_name() {
    assert_eq!(reply("/healthz", "exclude=syncloop"), (200, "ok".to_owned()));
    let list = "[+]ping excluded: ok\n[+]syncloop excluded: ok\nhealthz check passed\n";
    assert_eq!(
        reply("/healthz", "exclude=sync%6Coop&exclude=ping&verbose"),
        (200, list.to_owned())
    );
    let list = "[+]ping ok\n\
                warn: some health checks cannot be excluded: no matches for \"a b\",\"zz\"\n\
                healthz check passed\n";
    assert_eq!(healthy("/healthz", "exclude=zz&exclude=a+b&verbose"), (200, list.to_owned()));
}

#[test]
fn unknown_paths_are_not_found() {
    for path in ["/", "/livez", "/readyz", "/healthz/", "/healthz/log", "/healthzz"] {
        assert_eq!(healthy(path, ""), (404, "404 page not found\n".to_owned()), "{path}");
    }
}

#[test]
fn a_query_that_cannot_be_decoded_is_ignored() {
    for query in [
        "exclude=%",
        "exclude=%2",
        "exclude=%zz",
        "exclude=%+5",
        "exclude=%-1",
        "exclude=%%41",
        "exclude=%ff",
        "&&=",
        "verbos%65",
    ] {
        assert_eq!(healthy("/healthz", query).0, 200, "{query}");
    }
}

#[test]
fn names_and_values_are_decoded_as_the_reference_does() {
    for (text, plain) in [
        ("plain", Some("plain")),
        ("a+b%2Bc%20d", Some("a b+c d")),
        ("%C3%a9", Some("\u{e9}")),
        ("%+5", None),
        ("%5+", None),
        ("%%41", None),
        ("%4", None),
        ("%", None),
        ("%ff", None),
    ] {
        assert_eq!(decoded(text).as_deref(), plain, "{text}");
    }
}
