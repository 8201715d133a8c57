//! The key `lend` of the configuration: the group of batch work that CPUs are lent to.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A control group that CPUs are lent to: `cgroup:batch.slice`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Borrower(String);

impl Borrower {
    /// Its path below the root of the control groups.
    pub fn group(&self) -> &str {
        &self.0
    }
}

impl FromStr for Borrower {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let group = text.strip_prefix("cgroup:").map(|group| group.trim_matches('/'));
        let leads_on = |group: &&str| !group.split('/').any(|part| matches!(part, "" | "." | ".."));
        match group.filter(leads_on) {
            Some(group) => Ok(Self(group.to_owned())),
            None => Err(format!("{text:?}: write the group of the batch work, such as cgroup:batch.slice")),
        }
    }
}

impl TryFrom<String> for Borrower {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Borrower> for String {
    fn from(borrower: Borrower) -> Self {
        borrower.to_string()
    }
}

impl fmt::Display for Borrower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cgroup:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_borrower_is_a_control_group_below_the_root() {
        let borrower: Borrower = "cgroup:/a/batch.slice/".parse().unwrap();
        assert_eq!(borrower.group(), "a/batch.slice");
        assert_eq!(borrower.to_string().parse(), Ok(borrower));
        for wrong in ["batch.slice", "cgroup:", "cgroup:/", "cgroup:../batch", "unit:batch"] {
            let told = wrong.parse::<Borrower>().unwrap_err();
            assert!(told.contains("such as cgroup:batch.slice"), "{wrong}: {told}");
        }
    }
}
