//! The task that follows one object.
//!
//! Rule: ends when its object is immutable, and is aborted when nothing follows it. It holds no
//! reference to the store while it waits.

use super::{
    ContentChangeStrategy, FIRST_FORBIDDEN_PAUSE, FORBIDDEN_LAG, StoreShared, read_through_lag,
};
use crate::back_off::ExponentialBackOff;
use ports::{ContentError, ContentName};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How often an object is read that is not watched: the reference's lifetime of what it has cached.
const PERIOD: Duration = Duration::from_secs(60);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn follow(shared: Weak<StoreShared>, name: ContentName) {
    let Some(store) = shared.upgrade() else { return };
    let strategy = store.strategy;
    drop(store);
    match strategy {
        ContentChangeStrategy::Watch => watch(shared, &name).await,
        ContentChangeStrategy::Cache | ContentChangeStrategy::Get => poll(shared, &name).await,
    }
}

async fn watch(shared: Weak<StoreShared>, name: &ContentName) {
    let began = Instant::now();
    let Some(store) = shared.upgrade() else { return };
    let mut watch = store.port.watch(name);
    drop(store);
    loop {
        let result = watch.next().await;
        let Some(store) = shared.upgrade() else { return };
        let may_pass =
            matches!(result, Err(ContentError::Forbidden(_))) && began.elapsed() < FORBIDDEN_LAG;
        if may_pass {
            continue;
        }
        let is_final = matches!(&result, Ok(object) if object.immutable);
        store.publish(name, result);
        if is_final {
            return;
        }
    }
}

async fn poll(shared: Weak<StoreShared>, name: &ContentName) {
    let mut back_off = ExponentialBackOff::new(FIRST_FORBIDDEN_PAUSE, PERIOD);
    loop {
        let Some(port) = shared.upgrade().map(|store| store.port.clone()) else { return };
        let read = tokio::time::timeout(READ_TIMEOUT, read_through_lag(&*port, name)).await;
        let result = read.unwrap_or_else(|_| {
            let why = format!("{name} could not be read within {READ_TIMEOUT:?}");
            Err(ContentError::Failed(why))
        });
        let is_final = matches!(&result, Ok(object) if object.immutable);
        let is_known = matches!(&result, Ok(_) | Err(ContentError::NotFound));
        let Some(store) = shared.upgrade() else { return };
        store.publish(name, result.map(Arc::unwrap_or_clone));
        drop(store);
        if is_final {
            return;
        }
        if is_known {
            back_off.reset();
            tokio::time::sleep(PERIOD).await;
        } else {
            tokio::time::sleep(back_off.pause()).await;
        }
    }
}
