//! A copy-on-write value with shared ownership.
//!
//! The rule it keeps: a clone costs a reference count until a holder writes to it; the writer then
//! gets its own copy, so that no other holder sees the change.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::pod::codec::{DecodeNode, FieldCodec};

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Default)]
pub struct CopyOnWrite<T>(Arc<T>);

impl<T> CopyOnWrite<T> {
    /// Whether both share memory.
    pub fn shares_memory_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Deref for CopyOnWrite<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for CopyOnWrite<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<T> for CopyOnWrite<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<Item, T: FromIterator<Item>> FromIterator<Item> for CopyOnWrite<T> {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        Self::from(T::from_iter(items))
    }
}

impl<'a, T> IntoIterator for &'a CopyOnWrite<Vec<T>> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: PartialEq> PartialEq for CopyOnWrite<T> {
    fn eq(&self, other: &Self) -> bool {
        self.shares_memory_with(other) || *self.0 == *other.0
    }
}

impl<T: Serialize> Serialize for CopyOnWrite<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T: FieldCodec> FieldCodec for CopyOnWrite<T> {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        T::read(node).map(Self::from)
    }

    fn is_unset(&self) -> bool {
        self.0.is_unset()
    }

    /// Counted in full by each holder; beside the value there are two reference counts.
    fn heap_bytes(&self) -> usize {
        size_of::<T>() + 2 * size_of::<usize>() + self.0.heap_bytes()
    }
}
