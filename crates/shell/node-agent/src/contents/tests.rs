//! Uses of objects that begin and end, and states that change, on paused time.

use super::*;
use ports::{ContentData, ContentKind};
use runtime_fake::FakeContents;

const NAME: &str = "Secret shop/a";

fn name() -> ContentName {
    ContentName { kind: ContentKind::Secret, namespace: "shop".into(), name: "a".into() }
}

fn store(strategy: ContentChangeStrategy) -> (FakeContents, PodContentStore) {
    let contents = FakeContents::default();
    let store = PodContentStore::new(Arc::new(contents.clone()), strategy);
    (contents, store)
}

/// The value of the key `k`, or the error.
fn shown(state: &Result<Arc<ContentObject>, ContentError>) -> String {
    match state {
        Ok(object) => {
            let value = object.data.0.get("k").cloned().unwrap_or_default();
            String::from_utf8(value).unwrap()
        }
        Err(error) => error.to_string(),
    }
}

async fn next(held: &HeldContent, wakes: &Notify) -> String {
    wakes.notified().await;
    shown(&held.state().1.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_object_is_watched_once_and_its_memory_is_given_back() {
    let (contents, store) = store(ContentChangeStrategy::Watch);
    contents.put(NAME, "k", "1");
    let (one, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = store.follow(name(), &one);
    assert_eq!(next(&first, &one).await, "1");
    let second = store.follow(name(), &other);
    assert_eq!(shown(&second.state().1.unwrap()), "1");
    assert_eq!(contents.watches(NAME), 1);
    contents.put(NAME, "k", "2");
    assert_eq!((next(&first, &one).await, next(&second, &other).await), ("2".into(), "2".into()));
    contents.remove(NAME);
    assert_eq!(next(&first, &one).await, "not found");
    contents.put(NAME, "k", "3");
    assert_eq!(next(&first, &one).await, "3");
    drop(first);
    tokio::task::yield_now().await;
    assert_eq!((contents.watches(NAME), store.len()), (1, 1));
    let held = store.hold(name());
    drop(second);
    tokio::task::yield_now().await;
    assert_eq!((contents.watches(NAME), store.len()), (0, 1));
    drop(held);
    assert_eq!(store.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_not_watched_any_more() {
    let (contents, store) = store(ContentChangeStrategy::Watch);
    let data = ContentData([("k".to_owned(), b"1".to_vec())].into());
    contents.put_object(NAME, ContentObject { immutable: true, data, ..ContentObject::default() });
    let wakes = Arc::new(Notify::new());
    let held = store.follow(name(), &wakes);
    assert_eq!(next(&held, &wakes).await, "1");
    tokio::task::yield_now().await;
    let again = store.follow(name(), &wakes);
    assert_eq!(shown(&again.state().1.unwrap()), "1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(contents.watches(NAME), 0);
    assert_eq!(shown(&store.read(&name()).await), "1");
    assert!(contents.reads().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_never_replaces_a_known_state() {
    let (contents, store) = store(ContentChangeStrategy::Watch);
    let away = ContentError::Failed("away".into());
    contents.refuse(NAME, away.clone());
    let wakes = Arc::new(Notify::new());
    let held = store.follow(name(), &wakes);
    assert_eq!(next(&held, &wakes).await, "away");
    contents.put(NAME, "k", "1");
    assert_eq!(next(&held, &wakes).await, "1");
    contents.refuse(NAME, away);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(shown(&held.state().1.unwrap()), "1");
}

#[tokio::test(start_paused = true)]
async fn a_403_counts_only_after_the_authorizers_lag() {
    let (contents, store) = store(ContentChangeStrategy::Watch);
    contents.refuse(NAME, ContentError::Forbidden("no".into()));
    let wakes = Arc::new(Notify::new());
    let held = store.follow(name(), &wakes);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(held.state().1.is_none());
    let began = Instant::now();
    let read = tokio::spawn({
        let store = store.clone();
        async move { store.read(&name()).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    contents.put(NAME, "k", "1");
    assert_eq!(shown(&read.await.unwrap()), "1");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    contents.refuse(NAME, ContentError::Forbidden("no".into()));
    drop(held);
    let held = store.follow(name(), &wakes);
    while held.state().1.is_none() {
        wakes.notified().await;
    }
    assert_eq!(shown(&held.state().1.unwrap()), "no");
    assert!(began.elapsed() > FORBIDDEN_LAG);
}

#[tokio::test(start_paused = true)]
async fn a_container_starts_with_the_last_known_data_while_the_api_server_is_away() {
    for strategy in
        [ContentChangeStrategy::Watch, ContentChangeStrategy::Cache, ContentChangeStrategy::Get]
    {
        let (contents, store) = store(strategy);
        contents.put(NAME, "k", "1");
        assert_eq!(shown(&store.read(&name()).await), "1");
        // Nothing is kept of an object that no pod holds.
        contents.hang(NAME);
        let read = tokio::time::timeout(Duration::from_secs(60), store.read(&name())).await;
        assert!(read.is_err() && store.len() == 0);
        let _held = store.hold(name());
        contents.put(NAME, "k", "2");
        assert_eq!(shown(&store.read(&name()).await), "2");
        contents.hang(NAME);
        assert_eq!(shown(&store.read(&name()).await), "2");
        contents.refuse(NAME, ContentError::Failed("away".into()));
        assert_eq!(shown(&store.read(&name()).await), "2");
        contents.remove(NAME);
        assert_eq!(shown(&store.read(&name()).await), "not found");
    }
}

#[tokio::test(start_paused = true)]
async fn without_watches_objects_are_read_each_minute() {
    for strategy in [ContentChangeStrategy::Cache, ContentChangeStrategy::Get] {
        let (contents, store) = store(strategy);
        contents.put(NAME, "k", "1");
        let wakes = Arc::new(Notify::new());
        let held = store.follow(name(), &wakes);
        assert_eq!(next(&held, &wakes).await, "1");
        let began = Instant::now();
        contents.put(NAME, "k", "2");
        assert_eq!(next(&held, &wakes).await, "2");
        assert!(began.elapsed() > Duration::from_secs(50), "{:?}", began.elapsed());
        assert_eq!((contents.watches(NAME), contents.reads().len()), (0, 2));
        // Get asks again for a container that starts.
        contents.put(NAME, "k", "3");
        let is_new = strategy == ContentChangeStrategy::Get;
        assert_eq!(shown(&store.read(&name()).await), if is_new { "3" } else { "2" });
    }
}
