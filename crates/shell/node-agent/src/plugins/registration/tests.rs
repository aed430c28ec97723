//! The owner on scripted plugins: one that hangs delays no other, all are registered again after the
//! task or the agent was started again, and what the plugins get.

use super::*;
use crate::plugins::handler::HandlerFuture;
use ports::plugins::{PluginCallError, PluginFuture, SocketIdentity};
use ports::{ApiTime, PortFuture};
use std::collections::BTreeSet;
use tokio::sync::{mpsc, watch};

/// A directory whose scans the test sends.
struct ScriptedDir(mpsc::UnboundedReceiver<Result<PluginDirScan, String>>);

impl PluginDirWatch for ScriptedDir {
    fn dir(&self) -> String {
        "/registry".to_owned()
    }

    fn next(&mut self) -> PortFuture<'_, Result<PluginDirScan, String>> {
        Box::pin(async {
            match self.0.recv().await {
                Some(scan) => scan,
                None => std::future::pending().await,
            }
        })
    }
}

/// Plugins by the names of their sockets: `/slow` hangs, `/odd` has an unknown type, `/bad` is not
/// valid, `/deaf` does not take its confirmation.
#[derive(Default)]
struct ScriptedPlugins {
    notified: Mutex<Vec<(String, Result<(), String>)>>,
}

impl PluginRegistration for ScriptedPlugins {
    fn introduction<'a>(&'a self, socket: &'a str) -> PluginFuture<'a, PluginDescription> {
        Box::pin(async move {
            if socket == "/slow" {
                std::future::pending::<()>().await;
            }
            let plugin_type = if socket == "/odd" { "OddPlugin" } else { "TestPlugin" };
            Ok(PluginDescription {
                plugin_type: plugin_type.to_owned(),
                name: socket[1..].to_owned(),
                endpoint: socket.to_owned(),
                versions: vec!["1".to_owned()],
            })
        })
    }

    fn notify<'a>(&'a self, socket: &'a str, result: Result<(), &'a str>) -> PluginFuture<'a, ()> {
        let notified = (socket.to_owned(), result.map_err(str::to_owned));
        self.notified.lock().expect("not poisoned").push(notified);
        let socket = socket.to_owned();
        let is_deaf = socket == "/deaf";
        let call = "NotifyRegistrationStatus";
        let error = PluginCallError::TimedOut { call, socket, seconds: 5 };
        Box::pin(std::future::ready(if is_deaf { Err(error) } else { Ok(()) }))
    }
}

/// Holds what is registered.
#[derive(Default)]
struct TestHandler {
    held: Mutex<BTreeMap<String, PluginDescription>>,
    changes: watch::Sender<()>,
}

impl TestHandler {
    fn names(&self) -> BTreeSet<String> {
        self.held.lock().expect("not poisoned").values().map(|it| it.name.clone()).collect()
    }

    async fn until(&self, names: &[&str]) {
        let wanted: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let mut changes = self.changes.subscribe();
        let reached = async {
            while self.names() != wanted {
                changes.changed().await.expect("the handler is there");
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(5), reached).await;
        assert!(reached.is_ok(), "expected {wanted:?}, found {:?}", self.names());
    }
}

impl PluginHandler for TestHandler {
    fn plugin_type(&self) -> &'static str {
        "TestPlugin"
    }

    fn validate(&self, socket: &str, _: &PluginDescription) -> Result<(), String> {
        if socket == "/bad" { Err("not this one".to_owned()) } else { Ok(()) }
    }

    fn register<'a>(&'a self, socket: &'a str, plugin: &'a PluginDescription) -> HandlerFuture<'a> {
        self.held.lock().expect("not poisoned").insert(socket.to_owned(), plugin.clone());
        self.changes.send_replace(());
        Box::pin(std::future::ready(Ok(())))
    }

    fn deregister<'a>(&'a self, socket: &'a str, _: &'a PluginDescription) -> HandlerFuture<'a> {
        self.held.lock().expect("not poisoned").remove(socket);
        self.changes.send_replace(());
        Box::pin(std::future::ready(Ok(())))
    }

    fn held(&self) -> Vec<(String, PluginDescription)> {
        let held = self.held.lock().expect("not poisoned");
        held.iter().map(|(socket, plugin)| (socket.clone(), plugin.clone())).collect()
    }
}

struct Bench {
    scans: mpsc::UnboundedSender<Result<PluginDirScan, String>>,
    plugins: Arc<ScriptedPlugins>,
    handler: Arc<TestHandler>,
    registrations: Arc<PluginRegistrations>,
}

impl Bench {
    fn new() -> Self {
        let (scans, receiver) = mpsc::unbounded_channel();
        let (plugins, handler) =
            (Arc::new(ScriptedPlugins::default()), Arc::new(TestHandler::default()));
        let registrations = PluginRegistrations::new(
            Box::new(ScriptedDir(receiver)),
            plugins.clone(),
            vec![handler.clone()],
            AgentClock::starting_at(ApiTime::from_nanos(0)),
        );
        Self { scans, plugins, handler, registrations: Arc::new(registrations) }
    }

    fn scan(&self, sockets: &[(&str, u64)]) {
        let identity = |inode: &u64| SocketIdentity { inode: *inode, created: 0 };
        let sockets = sockets.iter().map(|(path, it)| ((*path).to_owned(), identity(it)));
        let scan = PluginDirScan { sockets: sockets.collect(), ..PluginDirScan::default() };
        self.scans.send(Ok(scan)).expect("the directory is watched");
    }

    fn state(&self, socket: &str) -> (String, String) {
        let view = self.registrations.view();
        let found = view.plugins.into_iter().find(|it| it.socket == socket);
        found.map(|it| (it.state, it.last_error)).unwrap_or_default()
    }

    async fn until_state(&self, socket: &str, state: &str) {
        let reached = async {
            while self.state(socket).0 != state {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(5), reached).await;
        assert!(reached.is_ok(), "{socket}: {:?}", self.state(socket));
    }
}

#[tokio::test(start_paused = true)]
async fn plugins_are_registered_and_deregistered_with_their_sockets() {
    let bench = Bench::new();
    let task = tokio::spawn(run(bench.registrations.clone()));
    bench.scan(&[("/a", 1), ("/slow", 2), ("/b", 3)]);
    bench.handler.until(&["a", "b"]).await;
    bench.until_state("/a", "registered").await;
    assert_eq!(bench.state("/slow").0, "introducing");
    let view = bench.registrations.view();
    assert_eq!((view.dir.as_str(), view.plugins.len()), ("/registry", 3));
    bench.scan(&[("/a", 4), ("/b", 3)]);
    // The new socket at /a is registered after the old one was deregistered.
    let confirmed = || {
        let notified = bench.plugins.notified.lock().expect("not poisoned");
        notified.iter().filter(|(socket, _)| socket == "/a").count()
    };
    while confirmed() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bench.handler.until(&["a", "b"]).await;
    bench.scan(&[]);
    bench.handler.until(&[]).await;
    bench.until_state("/b", "").await;
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn rejected_plugins_get_the_reason_and_operators_see_it() {
    let bench = Bench::new();
    let task = tokio::spawn(run(bench.registrations.clone()));
    bench.scan(&[("/bad", 1), ("/odd", 2), ("/deaf", 3), ("/good", 4)]);
    for socket in ["/bad", "/odd", "/deaf"] {
        bench.until_state(socket, "waiting").await;
    }
    bench.handler.until(&["good"]).await;
    let bad = "RegisterPlugin error -- plugin validation failed with err: not this one";
    let odd = "RegisterPlugin error -- no handler registered for plugin type: OddPlugin at socket \
               /odd; this node has TestPlugin";
    let deaf = "NotifyRegistrationStatus at /deaf: no answer within 5 s";
    for (socket, error) in [("/bad", bad), ("/odd", odd), ("/deaf", deaf)] {
        assert_eq!(bench.state(socket).1, error);
    }
    let notified = bench.plugins.notified.lock().expect("not poisoned").clone();
    for (socket, result) in [("/bad", Err(bad)), ("/odd", Err(odd)), ("/good", Ok(()))] {
        let expected = (socket.to_owned(), result.map_err(str::to_owned));
        assert!(notified.contains(&expected), "{expected:?} in {notified:?}");
    }
    let waiting = bench.registrations.view().plugins;
    assert!(waiting.iter().filter(|it| it.state == "waiting").all(|it| it.next_try > 0));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_cannot_be_read_changes_nothing_and_is_reported() {
    let bench = Bench::new();
    let task = tokio::spawn(run(bench.registrations.clone()));
    bench.scan(&[("/a", 1)]);
    bench.handler.until(&["a"]).await;
    bench.scans.send(Err("it is gone".to_owned())).expect("watched");
    while bench.registrations.view().dir_error.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bench.handler.names().len(), 1);
    bench.scan(&[("/a", 1)]);
    while !bench.registrations.view().dir_error.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_starts_again_deregisters_what_has_gone_meanwhile() {
    let bench = Bench::new();
    let task = tokio::spawn(run(bench.registrations.clone()));
    bench.scan(&[("/a", 1), ("/b", 2)]);
    bench.handler.until(&["a", "b"]).await;
    task.abort();
    assert!(task.await.is_err());
    let task = tokio::spawn(run(bench.registrations.clone()));
    bench.scan(&[("/b", 2), ("/c", 3)]);
    bench.handler.until(&["b", "c"]).await;
    bench.until_state("/b", "registered").await;
    task.abort();
}
