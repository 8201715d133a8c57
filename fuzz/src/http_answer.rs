//! Any bytes are HTTP answers, the beginning of one, or garbled; and in whichever pieces they come,
//! the same is read.

use loadgen::http_answer::{Garbled, HEAD_BYTES_MAX, Reader, Step, Whole};

/// The answers that a lane would read from these pieces.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Whole>, Garbled> {
    let mut reader = Reader::default();
    let (mut kept, mut wholes) = (Vec::new(), Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        while !kept.is_empty() {
            let bytes = match reader.take(&kept)? {
                Step::Nothing => break,
                Step::Part(bytes) => bytes,
                Step::Whole(bytes, whole) => {
                    wholes.push(whole);
                    bytes
                }
            };
            assert!((1..=kept.len()).contains(&bytes), "an answer that takes nothing never ends");
            kept.drain(..bytes);
        }
        assert!(kept.len() <= HEAD_BYTES_MAX);
    }
    wholes.extend(reader.end());
    Ok(wholes)
}

pub fn run(bytes: &[u8]) {
    let [size, bytes @ ..] = bytes else { return };
    let whole = read(std::iter::once(bytes));
    let pieces = read(bytes.chunks(usize::from(*size).max(1)));
    // Of garbled bytes, the answers read before them may differ in nothing but where they stop.
    assert_eq!(whole.is_ok(), pieces.is_ok());
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
    }
}
