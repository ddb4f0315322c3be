//! YAML text to plain nodes, bounded: size, depth and number of nodes, aliases counted as if they were written out.
//!
//! Only what scenario files need: strings, lists, mappings, anchors. Types are given to scalars by those that use them.
//! The value of a skipped key is never turned into nodes.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::error::Fault;

/// Most bytes of a scenario file.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// Most nodes of a file, aliases written out.
const MAX_NODES: u64 = 1 << 20;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// A value and where it begins.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
    /// Nodes below it and itself, aliases written out.
    size: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A scalar; quoted ones are always text.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Rc<Node>>),
    /// In the order of the text; keys are unique.
    Map(Vec<(String, Rc<Node>)>),
}

impl Node {
    /// 'a list', 'a mapping', or the text, for messages.
    pub(super) fn shown(&self) -> &str {
        match &self.value {
            Value::Scalar { text, .. } => text,
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// A fault about this node.
    pub(super) fn fault(&self, problem: impl Into<String>) -> Fault {
        Fault::new(self.line, problem, self.shown())
    }

    /// The entries of a mapping.
    pub(super) fn map(&self, what: &str) -> Result<&[(String, Rc<Node>)], Fault> {
        match &self.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.fault(format!("{what}: a mapping is expected"))),
        }
    }

    /// The items of a list.
    pub(super) fn list(&self, what: &str) -> Result<&[Rc<Node>], Fault> {
        match &self.value {
            Value::List(items) => Ok(items),
            _ => Err(self.fault(format!("{what}: a list is expected"))),
        }
    }

    /// The text of a scalar.
    pub(super) fn text(&self, what: &str) -> Result<&str, Fault> {
        match &self.value {
            Value::Scalar { text, .. } => Ok(text),
            _ => Err(self.fault(format!("{what}: a text is expected"))),
        }
    }

    fn plain(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, quoted: false } => Some(text),
            _ => None,
        }
    }

    /// Whether nothing was given.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.plain(), Some("" | "~" | "null"))
    }

    /// A whole number, decimal or 0x….
    pub(super) fn integer(&self, what: &str) -> Result<i64, Fault> {
        let parsed = self.plain().and_then(|text| match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with(['+', '-'])),
            None => text.parse().ok(),
        });
        parsed.ok_or_else(|| self.fault(format!("{what}: a whole number is expected")))
    }

    /// A whole number that is not negative.
    pub(super) fn unsigned(&self, what: &str) -> Result<u64, Fault> {
        u64::try_from(self.integer(what)?).map_err(|_| self.fault(format!("{what}: it cannot be negative")))
    }

    /// A finite number.
    pub(super) fn number(&self, what: &str) -> Result<f64, Fault> {
        let parsed = self.plain().and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite());
        parsed.ok_or_else(|| self.fault(format!("{what}: a number is expected")))
    }

    /// true or false.
    pub(super) fn boolean(&self, what: &str) -> Result<bool, Fault> {
        match self.plain() {
            Some("true" | "True") => Ok(true),
            Some("false" | "False") => Ok(false),
            _ => Err(self.fault(format!("{what}: true or false is expected"))),
        }
    }
}

/// The documents of a text; empty ones are left out. `skipped` is a key of a document's top mapping whose value is
/// passed over.
pub(super) fn documents(text: &str, skipped: &str) -> Result<Vec<Node>, Fault> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: FxHashMap::default(), nodes: 0, skipped };
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart(_) => {
                reader.anchors.clear();
                let (event, span) = reader.next()?;
                let node = reader.node(event, span, 0)?;
                if !node.is_null() {
                    documents.push((*node).clone());
                }
            }
            _ => _ = span,
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: FxHashMap<usize, Rc<Node>>,
    nodes: u64,
    skipped: &'a str,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Fault::new(error.marker().line(), format!("not YAML: {}", error.info()), "")),
            None => Err(Fault::new(0, "not YAML: the text ends too early", "")),
        }
    }

    fn count(&mut self, nodes: u64, line: usize) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let problem = format!("more than {MAX_NODES} values, aliases written out; write repetitions as repeat:");
        Err(Fault::new(line, problem, ""))
    }

    /// The node that begins with `event`. Recursion ends at [`MAX_DEPTH`].
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Rc<Node>, Fault> {
        let line = span.start.line();
        if depth > MAX_DEPTH {
            return Err(Fault::new(line, format!("nested deeper than {MAX_DEPTH} levels"), ""));
        }
        self.count(1, line)?;
        let mut size = 1_u64;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _tag) => {
                (Value::Scalar { text: text.into_owned(), quoted: style != ScalarStyle::Plain }, anchor)
            }
            Event::SequenceStart(anchor, _tag) => {
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    let item = self.node(event, span, depth + 1)?;
                    size = size.saturating_add(item.size);
                    items.push(item);
                }
                (Value::List(items), anchor)
            }
            Event::MappingStart(anchor, _tag) => (Value::Map(self.entries(depth, &mut size)?), anchor),
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return Err(Fault::new(line, "an alias to a value that is not there or not finished", ""));
                };
                self.count(node.size, line)?;
                return Ok(node);
            }
            _ => return Err(Fault::new(line, "not YAML: a value is expected", "")),
        };
        let node = Rc::new(Node { line, value, size });
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn entries(&mut self, depth: usize, size: &mut u64) -> Result<Vec<(String, Rc<Node>)>, Fault> {
        let mut entries: Vec<(String, Rc<Node>)> = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        loop {
            let (event, span) = self.next()?;
            let line = span.start.line();
            let key = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(Fault::new(line, "a key must be a text", "")),
            };
            if !seen.insert(key.clone()) {
                return Err(Fault::new(line, "key given twice", &key));
            }
            if depth == 0 && key == self.skipped {
                self.skip()?;
                continue;
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            *size = size.saturating_add(value.size).saturating_add(1);
            entries.push((key, value));
        }
    }

    /// Passes over one value.
    fn skip(&mut self) -> Result<(), Fault> {
        let mut depth = 0_u64;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
                Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
                Event::Scalar(..) | Event::Alias(_) => {}
                _ => return Err(Fault::new(span.start.line(), "not YAML: a value is expected", "")),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Value, documents};

    #[test]
    fn skipped_keys_leave_nothing_behind() {
        let docs = documents("verdict: {a: &x [1, {b: 2}], c: 3}\nid: H\nz: {verdict: 4}", "verdict").expect("valid");
        let entries = docs[0].map("doc").expect("a mapping");
        assert_eq!(entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["id", "z"]);
        assert!(matches!(&entries[1].1.value, Value::Map(inner) if inner.len() == 1), "only the top level is skipped");
        assert!(documents("verdict: &x 1\nid: *x", "verdict").is_err());
    }

    #[test]
    fn aliases_are_shared_and_counted() {
        let docs = documents("a: &x [1, 2]\nb: *x", "").expect("valid");
        assert_eq!(docs[0].map("doc").expect("a mapping")[1].1.list("b").expect("a list").len(), 2);
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..30 {
            let inner = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        assert!(documents(&bomb, "").expect_err("too large").problem.contains("values"));
        assert!(documents("a: &x [*x]", "").is_err(), "a value inside itself");
    }

    #[test]
    fn hostile_texts_are_errors() {
        let deep = "[".repeat(100_000);
        let deep_map = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>();
        for text in [deep.as_str(), &deep_map, "a: 1\na: 2", "[a]: 1", "a: *nobody", "a: [1", "\"", "%YAML 9", "\u{0}"]
        {
            let shown: String = text.chars().take(20).collect();
            assert!(documents(text, "").is_err(), "{shown}");
        }
        assert!(documents("", "").expect("nothing").is_empty());
        assert!(documents("---\n---\n", "").expect("nothing").is_empty());
    }
}
