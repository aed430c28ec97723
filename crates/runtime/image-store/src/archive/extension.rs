//! The extended headers of one tar entry: records of `LENGTH KEY=VALUE`, and GNU long names.
//!
//! Pure. Keys that change the layout of the data (sparse maps in records) are refused: ignoring
//! them would give a file with other content.

const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extension {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) user: Option<u64>,
    pub(super) group: Option<u64>,
    pub(super) modified: Option<(i64, u32)>,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extension {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn read(&mut self, mut records: &[u8]) -> Result<(), String> {
        while !records.is_empty() {
            let (key, value, rest) =
                record(records).ok_or("an extended header has a malformed record")?;
            self.take(key, value)?;
            records = rest;
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let number = || {
            let text = std::str::from_utf8(value).ok();
            text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| {
                let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
                format!("an extended header says {key}={value:?}; expected a number")
            })
        };
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number()?),
            b"uid" => self.user = Some(number()?),
            b"gid" => self.group = Some(number()?),
            b"mtime" => {
                self.modified = Some(time(value).ok_or("an extended header's mtime is no time")?);
            }
            _ if key.starts_with(SPARSE) => {
                return Err("has a sparse file in a form that is not supported \
                            (GNU.sparse records); pack it without --sparse"
                    .to_owned());
            }
            _ => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    self.attributes.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// The first record's key and value, and the records after it.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    let body = records.get(space + 1..length)?;
    let body = body.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    (equals > 0).then_some(())?;
    Some((&body[..equals], &body[equals + 1..], &records[length..]))
}

/// Decimal seconds, perhaps negative, perhaps with a fraction.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}
