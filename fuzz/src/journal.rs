//! Any bytes are a journal, of which each line is understood, counted as unreadable, or a torn end;
//! text after a torn line does not count, and a line that is not understood holds nothing.
//!
//! A line that begins with a brace gets the checksum that it needs, else hardly one would have it.

use linux::Account;

pub fn run(bytes: &[u8]) {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n').map(summed).collect::<Vec<_>>();
    let whole = Account::read(&lines.concat());
    assert!(whole.unreadable + whole.held.len() <= lines.len());
    assert!(whole.held.values().all(|held| !held.ours.is_empty()), "held, and nothing of ours can be there");
    // Cut within its last line, it is the journal before that line, or that line's end alone was
    // lost.
    let Some((last, before)) = lines.split_last() else { return };
    let before_it = Account::read(&before.concat());
    let cut = Account::read(&[before.concat(), last[..last.len() / 2].to_vec()].concat());
    assert_eq!(cut.held, before_it.held);
}

fn summed(line: &[u8]) -> Vec<u8> {
    if !line.starts_with(b"{") {
        return line.to_vec();
    }
    let json = line.strip_suffix(b"\n").unwrap_or(line);
    // FNV-1a, 64 bits (docs/formats.md).
    let sum = json
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    [format!("{sum:016x} ").as_bytes(), line].concat()
}
