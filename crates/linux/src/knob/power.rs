//! A socket's power limit, in microwatts. The kernel keeps it in the hardware's own unit, an eighth
//! of a watt on most, and reads the rounded value back: so two limits that are less than a unit
//! apart are one.

/// The hardware's unit: a multiple of it reads back unchanged.
pub(crate) const UNIT_UW: u64 = 125_000;

/// True if the hardware makes one limit of both.
pub(crate) fn same_power(text: &str, reads: &str) -> bool {
    let (Ok(one), Ok(other)) = (text.parse::<u64>(), reads.parse::<u64>()) else { return text == reads };
    one.abs_diff(other) < UNIT_UW
}

/// The file of a package's power cap that `path` names.
pub(super) fn power_file(path: &str) -> Option<&str> {
    let (zone, file) = path.strip_prefix("sys/class/powercap/intel-rapl:")?.split_once('/')?;
    super::is_number(zone).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_makes_no_difference_and_two_do() {
        assert!(same_power("61000000", "61000000") && same_power("61000000", "60900001"));
        assert!(!same_power("61000000", "60875000") && !same_power("61000000", "a lot"));
    }
}
