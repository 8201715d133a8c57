//! The layout of an event's fields, as the recorded kernel described it: the text of
//! `/sys/kernel/tracing/events/*/*/format`, which perf keeps in its file.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Formats {
    fields: BTreeMap<(String, String), Field>,
    is_little: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

impl Formats {
    /// Of the section as it is: the texts stand in it one after the other, with other things between
    /// them.
    pub fn of(section: &[u8], is_little: bool) -> Self {
        let mut formats = Self { fields: BTreeMap::new(), is_little };
        let mut event: Option<String> = None;
        for line in section.split(|&byte| byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line.rsplit(|&byte| byte == 0).next().unwrap_or_default())
            else {
                continue;
            };
            // The length of a text stands before its first line, without an end of its own.
            if let Some((_, name)) = line.rsplit_once("name: ") {
                event = Some(name.trim().to_owned());
            } else if let (Some(event), Some((name, field))) = (&event, field(line)) {
                formats.fields.insert((event.clone(), name.to_owned()), field);
            }
        }
        formats
    }

    pub fn number(&self, event: &str, field: &str, raw: &[u8]) -> Option<i64> {
        let Field { offset, size, signed } = *self.fields.get(&(event.to_owned(), field.to_owned()))?;
        let bytes = raw.get(offset..offset.checked_add(size)?)?;
        if !(1..=8).contains(&size) {
            return None;
        }
        let mut whole = [0; 8];
        for (place, &byte) in bytes.iter().enumerate() {
            whole[if self.is_little { place } else { size - 1 - place }] = byte;
        }
        let unused = 64 - 8 * size as u32;
        let shifted = u64::from_le_bytes(whole) << unused;
        Some(if signed { (shifted as i64) >> unused } else { (shifted >> unused) as i64 })
    }

    /// A text that lies behind the fields: its place in the low half of a number, its length in the
    /// high one (`__data_loc`).
    pub fn text<'a>(&self, event: &str, field: &str, raw: &'a [u8]) -> Option<&'a [u8]> {
        let place = self.number(event, field, raw)? as u32;
        let (from, length) = ((place & 0xffff) as usize, (place >> 16) as usize);
        raw.get(from..from + length)
    }
}

/// `field:pid_t next_pid; offset:56; size:4; signed:1;`, tabs between them.
fn field(line: &str) -> Option<(&str, Field)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let name = parts.next()?.rsplit(' ').next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    Some((name, Field { offset, size, signed: number("signed:") == Some(1) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\x01\x00\x00\x00\x00\x00\x00\x00name: sched_switch\nID: 3\nformat:\n\
        \tfield:pid_t prev_pid;\toffset:2;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned char flags;\toffset:1;\tsize:1;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:6;\tsize:4;\tsigned:0;\n\nprint fmt: \"x\"\n\
        \xff\x00name: other\n\tfield:int a;\toffset:0;\tsize:9;\tsigned:1;\n";

    #[test]
    fn numbers_are_read_where_the_kernel_put_them() {
        let raw = [0, 200, 0xff, 0xff, 0xff, 0xfe, 12, 0, 2, 0, 0, 0, b'o', b'k'];
        let little = Formats::of(TEXT, true);
        assert_eq!(little.number("sched_switch", "flags", &raw), Some(200));
        assert_eq!(
            little.number("sched_switch", "prev_pid", &raw),
            Some(i64::from(i32::from_le_bytes([255, 255, 255, 254])))
        );
        assert_eq!(little.text("sched_switch", "name", &raw), Some(&b"ok"[..]));
        assert_eq!(Formats::of(TEXT, false).number("sched_switch", "prev_pid", &raw), Some(-2));
    }

    #[test]
    fn fields_beyond_an_event_are_none() {
        let formats = Formats::of(TEXT, true);
        assert_eq!(formats.number("sched_switch", "prev_pid", &[0; 5]), None);
        assert_eq!(formats.number("sched_switch", "next_pid", &[0; 50]), None);
        assert_eq!(formats.number("other", "a", &[0; 50]), None);
        assert_eq!(formats.text("sched_switch", "name", &[255; 10]), None);
    }
}
