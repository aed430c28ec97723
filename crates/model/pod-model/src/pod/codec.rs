//! How the values of the pod model are read from a tree and written back as JSON.
//!
//! The rule it keeps: each object names its fields once, in `object!`; reading, writing and the
//! count of heap bytes all follow from that one list, so they cannot drift apart. Reading accepts
//! what the decoder of Kubernetes accepts: null means unset, an empty string in a plain field means
//! the same as no field, a number is not a string. The source of the tree, and the handling of
//! findings, belong to the implementation of [`DecodeNode`].

use serde::ser::SerializeMap;

/// The value at a node of a tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NodeShape<'place> {
    Null,
    Bool(bool),
    Whole(i128),
    Fraction(f64),
    Text(&'place str),
    List,
    Object,
}

/// A node of a tree, with methods to report errors at it.
pub trait DecodeNode {
    fn shape(&self) -> NodeShape<'_>;

    /// Visits the items of a list, in order.
    fn each_item(&self, visit: &mut dyn FnMut(&dyn DecodeNode));

    /// Visits the entries of an object.
    fn each_entry(&self, visit: &mut dyn FnMut(&str, &dyn DecodeNode));

    /// Reports that the value is not what was expected.
    fn refuse(&self, expected: &str);

    /// Reports an unknown field; `known` are the known ones.
    fn unknown(&self, known: &[&str]);
}

/// A value that can be decoded from a tree and encoded.
pub trait FieldCodec: Sized + Default + serde::Serialize {
    /// Decodes the value here, which is not null. `None` means that an error was reported.
    fn read(node: &dyn DecodeNode) -> Option<Self>;

    /// Whether the value is unset, so that it is not written.
    fn is_unset(&self) -> bool;

    /// How many bytes it holds outside itself.
    fn heap_bytes(&self) -> usize;
}

/// The fields of an object, apart from the object itself, so that one object can take in another.
pub trait ObjectFields {
    const NAMES: &'static [&'static str];

    /// Reads one entry; false when there is no such field.
    fn read_entry(&mut self, name: &str, node: &dyn DecodeNode) -> bool;

    fn write_entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;

    fn fields_heap_bytes(&self) -> usize;
}

/// Reads a field. Null and rejected values leave it as it is.
pub fn read_field<T: FieldCodec>(slot: &mut T, node: &dyn DecodeNode) {
    if node.shape() != NodeShape::Null
        && let Some(value) = T::read(node)
    {
        *slot = value;
    }
}

/// Reads an element of a list or a map, where null is an empty value.
pub fn read_element<T: FieldCodec>(node: &dyn DecodeNode) -> Option<T> {
    if node.shape() == NodeShape::Null { Some(T::default()) } else { T::read(node) }
}

/// Reads an object by its fields.
pub fn read_object<T: ObjectFields + Default>(node: &dyn DecodeNode) -> Option<T> {
    if node.shape() != NodeShape::Object {
        node.refuse("an object");
        return None;
    }
    let mut object = T::default();
    node.each_entry(&mut |name, child| {
        if !object.read_entry(name, child) {
            child.unknown(T::NAMES);
        }
    });
    Some(object)
}

/// Declares objects: `"jsonName" field: Kind;`, and `, always` for a field that is written even
/// when it is empty, as fields without `omitempty` are.
macro_rules! object {
    ($( $(#[$doc:meta])* pub struct $name:ident { $(
        $(#[$field_doc:meta])* $json:literal $field:ident : $kind:ty $(, $mark:ident)? ;
    )* } )+) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name { $( $(#[$field_doc])* pub $field: $kind, )* }

        impl $crate::pod::codec::ObjectFields for $name {
            const NAMES: &'static [&'static str] = &[$($json),*];

            fn read_entry(&mut self, name: &str, node: &dyn $crate::pod::codec::DecodeNode) -> bool {
                match name {
                    $( $json => $crate::pod::codec::read_field(&mut self.$field, node), )*
                    _ => return false,
                }
                true
            }

            fn write_entries<M: serde::ser::SerializeMap>(
                &self,
                map: &mut M,
            ) -> Result<(), M::Error> {
                $(
                    let always = false $(|| stringify!($mark) == "always")?;
                    if always || !$crate::pod::codec::FieldCodec::is_unset(&self.$field) {
                        map.serialize_entry($json, &self.$field)?;
                    }
                )*
                let _ = map;
                Ok(())
            }

            fn fields_heap_bytes(&self) -> usize {
                0 $( + $crate::pod::codec::FieldCodec::heap_bytes(&self.$field) )*
            }
        }

        $crate::pod::codec::object_codec!($name);
    )+ };
}

/// The form of an object whose fields are declared.
macro_rules! object_codec {
    ($name:ident) => {
        impl $crate::pod::codec::FieldCodec for $name {
            fn read(node: &dyn $crate::pod::codec::DecodeNode) -> Option<Self> {
                $crate::pod::codec::read_object(node)
            }

            fn is_unset(&self) -> bool {
                *self == Self::default()
            }

            fn heap_bytes(&self) -> usize {
                $crate::pod::codec::ObjectFields::fields_heap_bytes(self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $crate::pod::codec::ObjectFields::write_entries(self, &mut map)?;
                serde::ser::SerializeMap::end(map)
            }
        }
    };
}

/// Declares a string enum: a closed list of values, and room for any other, since only validation
/// may reject an unknown one. The empty string is unset.
macro_rules! string_enum {
    ($( $(#[$doc:meta])* pub enum $name:ident { $(
        $(#[$word_doc:meta])* $word:ident $(= $text:literal)?
    ),+ $(,)? } )+) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$word_doc])* $word, )+
            /// Any other value; empty when unset.
            Other(Box<str>),
        }

        impl $name {
            /// The known values.
            pub const KNOWN: &'static [&'static str] =
                &[$( $crate::pod::codec::word_text!($word $(= $text)?) ),+];

            pub fn from_text(text: &str) -> Self {
                $( if text == $crate::pod::codec::word_text!($word $(= $text)?) {
                    return Self::$word;
                } )+
                Self::Other(Box::from(text))
            }

            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$word => $crate::pod::codec::word_text!($word $(= $text)?), )+
                    Self::Other(text) => text,
                }
            }

            /// Whether this is a known value.
            pub fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }

            /// Whether it is unset.
            pub fn is_empty(&self) -> bool {
                matches!(self, Self::Other(text) if text.is_empty())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(Box::default())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl $crate::pod::codec::FieldCodec for $name {
            fn read(node: &dyn $crate::pod::codec::DecodeNode) -> Option<Self> {
                let $crate::pod::codec::NodeShape::Text(text) = node.shape() else {
                    node.refuse("a string");
                    return None;
                };
                Some(Self::from_text(text))
            }

            fn is_unset(&self) -> bool {
                self.is_empty()
            }

            fn heap_bytes(&self) -> usize {
                match self {
                    Self::Other(text) => text.len(),
                    _ => 0,
                }
            }
        }
    )+ };
}

macro_rules! word_text {
    ($word:ident) => {
        stringify!($word)
    };
    ($word:ident = $text:literal) => {
        $text
    };
}

pub(crate) use {object, object_codec, string_enum, word_text};
