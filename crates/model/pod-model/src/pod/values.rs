//! The plain values of the pod model: texts, numbers, lists, sorted maps, ports by number or name,
//! points in time.
//!
//! The rule it keeps: each takes exactly the JSON that Kubernetes takes for its kind, and holds no
//! more memory than it needs. Knows no fields.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::codec::{DecodeNode, FieldCodec, NodeShape, read_element};
use crate::Quantity;

mod timestamp;

#[cfg(test)]
mod tests;

pub use timestamp::Timestamp;

/// A map as a sorted list of pairs: a tenth of a tree's memory at the sizes pods have.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedMap<V>(Vec<(Box<str>, V)>);

/// Labels, annotations, selectors, options.
pub type TextMap = SortedMap<Box<str>>;

impl<V> SortedMap<V> {
    pub fn get(&self, key: &str) -> Option<&V> {
        self.position(key).ok().and_then(|at| self.0.get(at)).map(|(_, value)| value)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// Puts a value in, in place of the one that was there.
    pub fn insert(&mut self, key: &str, value: V) {
        match self.position(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (Box::from(key), value)),
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<V> {
        self.position(key).ok().map(|at| self.0.remove(at).1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| &**key)
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(present, _)| (**present).cmp(key))
    }
}

impl<V> Default for SortedMap<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: AsRef<str>, V> FromIterator<(K, V)> for SortedMap<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut keyed = Self::default();
        for (key, value) in entries {
            keyed.insert(key.as_ref(), value);
        }
        keyed
    }
}

impl<V: Serialize> Serialize for SortedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<V: FieldCodec> FieldCodec for SortedMap<V> {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        if node.shape() != NodeShape::Object {
            node.refuse("an object");
            return None;
        }
        let mut keyed = Self::default();
        node.each_entry(&mut |key, child| {
            if let Some(value) = read_element(child) {
                keyed.insert(key, value);
            }
        });
        keyed.0.shrink_to_fit();
        Some(keyed)
    }

    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        let inner: usize = self.0.iter().map(|(key, value)| key.len() + value.heap_bytes()).sum();
        self.0.capacity() * size_of::<(Box<str>, V)>() + inner
    }
}

/// A port by its number or by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortReference {
    Number(i32),
    Name(Box<str>),
}

impl Default for PortReference {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl fmt::Display for PortReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Name(name) => out.write_str(name),
        }
    }
}

impl Serialize for PortReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i32(*number),
            Self::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl FieldCodec for PortReference {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        match node.shape() {
            NodeShape::Text(name) => Some(Self::Name(Box::from(name))),
            NodeShape::Whole(whole) if i32::try_from(whole).is_ok() => {
                i32::try_from(whole).ok().map(Self::Number)
            }
            _ => {
                node.refuse("a port number or a port name");
                None
            }
        }
    }

    fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Name(name) => name.len(),
        }
    }
}

impl FieldCodec for bool {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        if let NodeShape::Bool(value) = node.shape() {
            return Some(value);
        }
        node.refuse("true or false");
        None
    }

    fn is_unset(&self) -> bool {
        !self
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

macro_rules! whole_number {
    ($kind:ty, $expected:literal) => {
        impl FieldCodec for $kind {
            fn read(node: &dyn DecodeNode) -> Option<Self> {
                let read = match node.shape() {
                    NodeShape::Whole(whole) => Self::try_from(whole).ok(),
                    _ => None,
                };
                if read.is_none() {
                    node.refuse($expected);
                }
                read
            }

            fn is_unset(&self) -> bool {
                *self == 0
            }

            fn heap_bytes(&self) -> usize {
                0
            }
        }
    };
}

whole_number!(i32, "a whole number of 32 bits");
whole_number!(i64, "a whole number of 64 bits");

impl FieldCodec for Box<str> {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        if let NodeShape::Text(text) = node.shape() {
            return Some(Self::from(text));
        }
        node.refuse("a string");
        None
    }

    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl FieldCodec for Quantity {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        let read = match node.shape() {
            NodeShape::Text(text) => Self::parse(text.trim()).ok(),
            NodeShape::Whole(whole) => Self::parse(&whole.to_string()).ok(),
            NodeShape::Fraction(number) => Self::parse(&number.to_string()).ok(),
            _ => None,
        };
        if read.is_none() {
            node.refuse("a quantity, such as \"500m\", \"1.5Gi\" or 2");
        }
        read
    }

    fn is_unset(&self) -> bool {
        self.is_zero()
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A field behind a pointer: said or not, whatever its value.
impl<T: FieldCodec> FieldCodec for Option<T> {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        T::read(node).map(Some)
    }

    fn is_unset(&self) -> bool {
        self.is_none()
    }

    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, FieldCodec::heap_bytes)
    }
}

impl<T: FieldCodec> FieldCodec for Box<T> {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        T::read(node).map(Self::new)
    }

    fn is_unset(&self) -> bool {
        (**self).is_unset()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<T>() + (**self).heap_bytes()
    }
}

impl<T: FieldCodec> FieldCodec for Vec<T> {
    fn read(node: &dyn DecodeNode) -> Option<Self> {
        if node.shape() != NodeShape::List {
            node.refuse("a list");
            return None;
        }
        let mut items = Self::new();
        node.each_item(&mut |child| items.extend(read_element(child)));
        items.shrink_to_fit();
        Some(items)
    }

    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(FieldCodec::heap_bytes).sum::<usize>()
    }
}

/// A field that is known and that the node has no use for: anything may stand there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IgnoredField;

impl Serialize for IgnoredField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl FieldCodec for IgnoredField {
    fn read(_place: &dyn DecodeNode) -> Option<Self> {
        Some(Self)
    }

    fn is_unset(&self) -> bool {
        true
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}
