//! Parses YAML text to a tree: anchors, aliases, merge keys and duplicate keys, without recursion.
//!
//! The rule it keeps: a duplicate key replaces the earlier value, as the non-strict reader of
//! Kubernetes does, and is recorded as a finding; a merge key is applied in place. Aliases are
//! expanded against a budget of nodes, so a small file cannot become huge.

use std::borrow::Cow;
use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::path::{child_path, item_path};
use super::scalar::{self, ScalarTag};
use super::{Document, MAX_DEPTH, MAX_NODES, MAX_REPEATED_KEYS, Node, Number, Value};
use crate::diagnostic::{Diagnostic, Origin};

/// Bytes to text: UTF-8, or UTF-16 with a byte order mark; no control characters.
pub(super) fn decode_text(bytes: &[u8], origin: &Origin) -> Result<String, Diagnostic> {
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
        _ => {
            let rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            std::str::from_utf8(rest).map(str::to_owned).map_err(|error| error.valid_up_to())
        }
    };
    let text = text.map_err(|good| {
        let line = 1 + bytes.iter().take(good).filter(|byte| **byte == b'\n').count();
        Diagnostic::error("", "the file is not valid UTF-8").at(origin.at(count(line), 0))
    })?;
    match text.lines().enumerate().find(|(_, line)| line.chars().any(is_refused)) {
        Some((index, _)) => {
            Err(Diagnostic::error("", "control characters are not allowed in YAML")
                .at(origin.at(count(index + 1), 0)))
        }
        None => Ok(text),
    }
}

fn decode_utf16(bytes: &[u8], read: fn([u8; 2]) -> u16) -> Result<String, usize> {
    if !bytes.len().is_multiple_of(2) {
        return Err(0);
    }
    let units = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
    char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| 0)
}

fn is_refused(character: char) -> bool {
    match character {
        '\t' | '\r' | '\u{85}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        other => other.is_control(),
    }
}

/// The YAML reader's error for a tab alone after a colon, which the reader of Kubernetes accepts.
const TAB_AFTER_COLON: &str = "':' must be followed by a valid YAML whitespace";
/// How many bytes may be parsed again because of such tabs.
const REREAD_BYTES: usize = 64 * 1024 * 1024;

/// The first document of the text.
pub(super) fn parse(text: &str, origin: &Origin) -> Result<Document, Diagnostic> {
    let mut text = Cow::Borrowed(text);
    let mut budget = REREAD_BYTES;
    loop {
        let error = match build(&text, origin) {
            Ok(built) => return built,
            Err(error) => error,
        };
        budget = budget.saturating_sub(text.len());
        match spaces_before(&text, error.marker().index()) {
            Some(respaced) if error.info() == TAB_AFTER_COLON && budget > 0 => {
                text = Cow::Owned(respaced);
            }
            _ => {
                let marker = error.marker();
                let place = origin.at(count(marker.line()), count(marker.col() + 1));
                let message = format!("not valid YAML: {}", error.info());
                return Err(Diagnostic::error("", message).at(place));
            }
        }
    }
}

/// The text with spaces for the tabs right before a position (in characters); none without tabs
/// there.
fn spaces_before(text: &str, place: usize) -> Option<String> {
    let end = text.char_indices().nth(place).map_or(text.len(), |(index, _)| index);
    let start = text[..end].trim_end_matches(['\t', ' ']).len();
    let gap = &text[start..end];
    gap.contains('\t')
        .then(|| format!("{}{}{}", &text[..start], " ".repeat(gap.len()), &text[end..]))
}

/// The tree, or the tree builder's error; the outer error is the YAML reader's own.
fn build(text: &str, origin: &Origin) -> Result<Result<Document, Diagnostic>, ScanError> {
    let mut builder = Builder::new(origin);
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event?;
        match builder.take(event, span) {
            Ok(false) => {}
            Ok(true) => break,
            Err(diagnostic) => return Ok(Err(diagnostic)),
        }
    }
    let root = builder.root.unwrap_or_else(|| Node::new(Value::Null, origin.at(1, 1)));
    Ok(Ok(Document { root, repeated_keys: builder.repeated_keys }))
}

/// A list or map that is still open.
struct OpenCollection {
    origin: Origin,
    anchor: usize,
    depth: usize,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<Node>),
    Map { entries: BTreeMap<String, Node>, key: Option<PendingKey> },
}

/// The key that waits for its value.
struct PendingKey {
    name: String,
    origin: Origin,
    merges: bool,
}

/// What YAML lets a node have before its content.
struct NodeProperties<'a> {
    /// Zero for none.
    anchor: usize,
    tag: Option<Cow<'a, Tag>>,
}

/// A finished node with the cost of expanding it again.
struct Finished {
    node: Node,
    depth: usize,
    size: usize,
    /// Whether the node was written as an alias; a merge key treats aliases differently.
    by_alias: bool,
}

struct Builder<'origin> {
    origin: &'origin Origin,
    frames: Vec<OpenCollection>,
    anchors: BTreeMap<usize, (Node, usize, usize)>,
    nodes: usize,
    root: Option<Node>,
    repeated_keys: Vec<Diagnostic>,
}

impl<'origin> Builder<'origin> {
    fn new(origin: &'origin Origin) -> Self {
        Self {
            origin,
            frames: Vec::new(),
            anchors: BTreeMap::new(),
            nodes: 0,
            root: None,
            repeated_keys: Vec::new(),
        }
    }

    /// Takes one event; true when the first document is complete.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<bool, Diagnostic> {
        let origin = self.origin.at(count(span.start.line()), count(span.start.col() + 1));
        match event {
            Event::DocumentEnd | Event::StreamEnd => return Ok(true),
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
            Event::SequenceStart(anchor, _) => {
                self.open(OpenContent::List(Vec::new()), anchor, origin)?;
            }
            Event::MappingStart(anchor, _) => {
                let content = OpenContent::Map { entries: BTreeMap::new(), key: None };
                self.open(content, anchor, origin)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Scalar(text, style, anchor, tag) => {
                let properties = NodeProperties { anchor, tag };
                self.take_scalar(&text, style, properties, origin)?;
            }
            Event::Alias(anchor) => self.take_alias(anchor, origin)?,
        }
        Ok(false)
    }

    fn open(
        &mut self,
        content: OpenContent,
        anchor: usize,
        origin: Origin,
    ) -> Result<(), Diagnostic> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(too_deep(origin));
        }
        self.frames.push(OpenCollection { origin, anchor, depth: 1, content });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Diagnostic> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let value = match frame.content {
            OpenContent::List(items) => Value::List(items),
            OpenContent::Map { entries, .. } => Value::Map(entries),
        };
        let node = Node::new(value, frame.origin);
        // Only a node with an anchor can be expanded again.
        let size = if frame.anchor > 0 { count_nodes(&node) } else { 0 };
        let finished = Finished { node, depth: frame.depth, size, by_alias: false };
        self.finish(finished, frame.anchor)
    }

    fn take_scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        properties: NodeProperties<'_>,
        origin: Origin,
    ) -> Result<(), Diagnostic> {
        let NodeProperties { anchor, tag } = properties;
        let plain = style == ScalarStyle::Plain;
        let implicit = plain && tag.is_none();
        // The bare `!` is a foreign tag too: the value stays text.
        let tag =
            tag.map_or(ScalarTag::None, |tag| ScalarTag::from_parts(&tag.handle, &tag.suffix));
        let value = if implicit || tag != ScalarTag::None {
            scalar::resolve(text, tag)
                .map_err(|message| self.refuse_here(message, origin.clone()))?
        } else {
            Value::String(text.to_owned())
        };
        let merges = implicit && text == "<<";
        let node = Node::new(value, origin);
        if merges && self.waits_for_key() {
            self.nodes += 1;
            self.set_key(PendingKey { name: text.to_owned(), origin: node.origin, merges: true });
            return Ok(());
        }
        self.finish(Finished { node, depth: 0, size: 1, by_alias: false }, anchor)
    }

    fn take_alias(&mut self, anchor: usize, origin: Origin) -> Result<(), Diagnostic> {
        // An anchor that is not finished yet would contain itself.
        let Some((node, depth, size)) = self.anchors.get(&anchor).cloned() else {
            return Err(self.refuse_here("the alias is inside its own anchor".to_owned(), origin));
        };
        self.count_node(size, &origin)?;
        if self.frames.len() + depth > MAX_DEPTH {
            return Err(too_deep(origin));
        }
        self.finish(Finished { node, depth, size, by_alias: true }, 0)
    }

    fn count_node(&mut self, nodes: usize, origin: &Origin) -> Result<(), Diagnostic> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        Err(too_many(origin.clone()))
    }

    /// Puts a finished node where it belongs: into the open list or map, or as the root.
    fn finish(&mut self, finished: Finished, anchor: usize) -> Result<(), Diagnostic> {
        self.count_node(1, &finished.node.origin)?;
        if anchor > 0 {
            self.count_node(finished.size, &finished.node.origin)?;
            let kept = (finished.node.clone(), finished.depth, finished.size);
            self.anchors.insert(anchor, kept);
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(finished.node);
            return Ok(());
        };
        frame.depth = frame.depth.max(finished.depth + 1);
        match &mut frame.content {
            OpenContent::List(items) => {
                items.push(finished.node);
                Ok(())
            }
            OpenContent::Map { key, .. } => match key.take() {
                None => self.take_key(&finished.node),
                Some(key) if key.merges => self.merge(finished),
                Some(key) => {
                    self.insert(key.name, &key.origin, finished.node);
                    Ok(())
                }
            },
        }
    }

    fn waits_for_key(&self) -> bool {
        matches!(
            self.frames.last(),
            Some(OpenCollection { content: OpenContent::Map { key: None, .. }, .. })
        )
    }

    fn set_key(&mut self, new: PendingKey) {
        if let Some(OpenCollection { content: OpenContent::Map { key, .. }, .. }) =
            self.frames.last_mut()
        {
            *key = Some(new);
        }
    }

    fn take_key(&mut self, node: &Node) -> Result<(), Diagnostic> {
        let Some(name) = key_text(&node.value) else {
            let message = format!("{} cannot be a key, expected a word", node.kind_name());
            return Err(self.refuse_here(message, node.origin.clone()));
        };
        self.set_key(PendingKey { name, origin: node.origin.clone(), merges: false });
        Ok(())
    }

    fn merge(&mut self, finished: Finished) -> Result<(), Diagnostic> {
        let origin = finished.node.origin.clone();
        let sources = match finished.node.value {
            Value::Map(entries) => vec![entries],
            // The first of several sources wins, so it is applied last.
            Value::List(items) if !finished.by_alias => {
                let mut sources = Vec::new();
                for item in items.into_iter().rev() {
                    let Value::Map(entries) = item.value else {
                        return Err(self.refuse_here(merge_message(), item.origin));
                    };
                    sources.push(entries);
                }
                sources
            }
            _ => return Err(self.refuse_here(merge_message(), origin)),
        };
        for entries in sources {
            for (name, node) in entries {
                self.insert(name, &origin, node);
            }
        }
        Ok(())
    }

    fn insert(&mut self, name: String, place: &Origin, node: Node) {
        let repeats = matches!(
            self.frames.last(),
            Some(OpenCollection { content: OpenContent::Map { entries, .. }, .. }) if entries.contains_key(&name)
        );
        if repeats && self.repeated_keys.len() < MAX_REPEATED_KEYS {
            // Paths are built for findings only: with long keys above many values they are
            // expensive.
            let path = child_path(&self.path(), &name);
            self.repeated_keys.push(repeated_key(path).at(place.clone()));
        }
        if let Some(OpenCollection { content: OpenContent::Map { entries, .. }, .. }) =
            self.frames.last_mut()
        {
            entries.insert(name, node);
        }
    }

    /// The path of the innermost open list or map.
    fn path(&self) -> String {
        let outer = self.frames.len().saturating_sub(1);
        self.frames.iter().take(outer).fold(String::new(), |path, frame| match &frame.content {
            OpenContent::List(items) => item_path(&path, items.len()),
            OpenContent::Map { key: Some(key), .. } => child_path(&path, &key.name),
            OpenContent::Map { key: None, .. } => path,
        })
    }

    fn refuse_here(&self, message: String, origin: Origin) -> Diagnostic {
        Diagnostic::error(self.path(), message).at(origin)
    }
}

pub(super) fn repeated_key(path: String) -> Diagnostic {
    Diagnostic::warning(path, "the key is given more than once, the last one counts")
}

fn merge_message() -> String {
    "the merge key << takes an object or a list of objects".to_owned()
}

pub(super) fn too_deep(origin: Origin) -> Diagnostic {
    Diagnostic::error("", format!("nested more than {MAX_DEPTH} levels deep")).at(origin)
}

pub(super) fn too_many(origin: Origin) -> Diagnostic {
    let message = format!("more than {MAX_NODES} values once all aliases are written out");
    Diagnostic::error("", message).at(origin)
}

/// The text of a key; JSON has only string keys, so numbers and booleans are converted.
fn key_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(Number::Integer(whole)) => i64::try_from(*whole).ok().map(|n| n.to_string()),
        Value::Number(Number::Float(number)) => Some((*number as f32).to_string()),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

fn count_nodes(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(count_nodes).sum(),
        Value::Map(entries) => entries.values().map(count_nodes).sum(),
        _ => 0,
    }
}

/// Line or column as `u32`; the size limit of a file keeps it in range.
fn count(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
