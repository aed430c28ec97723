//! Splits a YAML stream into its documents without losing the line numbers.
//!
//! Rule: a document begins at a line that starts with `---`; each piece is preceded by as many
//! empty lines as stood before it, so that a reader of the piece counts lines of the whole.

/// The documents that hold anything but comments and blanks.
pub(crate) fn documents(text: &str) -> Vec<String> {
    let mut documents = Vec::new();
    let mut current = String::new();
    let mut filled = false;
    for (number, line) in text.lines().enumerate() {
        if is_marker(line) {
            if filled {
                documents.push(std::mem::take(&mut current));
            }
            current = "\n".repeat(number);
            // What follows the marker on its line belongs to the new document.
            let rest = &line[3..];
            filled = has_content(rest);
            current.push_str("   ");
            current.push_str(rest);
        } else {
            filled |= has_content(line);
            current.push_str(line);
        }
        current.push('\n');
    }
    if filled {
        documents.push(current);
    }
    documents
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

fn has_content(line: &str) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#') || line == "...")
}
