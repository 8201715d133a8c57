//! Amounts of memory as people write them.

/// Bytes from `64m`, `1g`, `1.5gb`, `512k` or plain bytes; powers of 1024, as memcached counts.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let refused = || format!("`{text}` is no amount of memory: write a number and a unit, such as 64m or 1g");
    let lower = text.to_ascii_lowercase();
    let unit_at = lower.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(unit_at);
    let factor = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        "g" => 1024.0 * 1024.0 * 1024.0,
        "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
    if !number.is_finite() || number < 0.0 {
        return Err(refused());
    }
    Ok((number * factor) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in
            [("64m", 64 << 20), ("1g", 1 << 30), ("1.5GB", 3 << 29), ("512KiB", 512 << 10), ("77", 77)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "lots", "-1m", "1x", "m", "nan", "1 g"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
