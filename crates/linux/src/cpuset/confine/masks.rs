//! The share of the new CPUs that a thread gets.

use machine::CpuList;

/// The CPUs of a thread that has `own` without us, when its service is kept on `cpus`: those of its
/// own that are among them, and all of them if none is, or none that is online. So a pinned thread
/// stays where it was as long as that is permitted, and no thread is left without a CPU.
pub(super) fn share(own: &CpuList, cpus: &CpuList, online: &CpuList) -> CpuList {
    let both = CpuList(own.0.intersection(&cpus.0).copied().collect());
    if both.0.is_disjoint(&online.0) { cpus.clone() } else { both }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuId;
    use proptest::prelude::*;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn a_pinned_thread_keeps_what_it_may() {
        let online = cpus("0-7");
        for (own, set, gets) in [
            ("0-7", "2-3", "2-3"),
            ("3", "2-3", "3"),
            ("3-5", "2-3", "3"),
            ("6", "2-3", "2-3"),
            ("0-3", "2,5", "2"),
        ] {
            assert_eq!(share(&cpus(own), &cpus(set), &online), cpus(gets), "{own} in {set}");
        }
        assert_eq!(share(&cpus("3"), &cpus("2-3"), &cpus("0-2")), cpus("2-3"), "its only one is offline");
    }

    fn lists() -> impl Strategy<Value = CpuList> {
        proptest::collection::btree_set((0u16..12).prop_map(CpuId), 1..12).prop_map(CpuList)
    }

    proptest! {
        /// For all sets, as long as one CPU of the new set is online.
        #[test]
        fn nobody_is_left_without_a_cpu_or_gets_another(own in lists(), set in lists(), online in lists()) {
            prop_assume!(!set.0.is_disjoint(&online.0));
            let gets = share(&own, &set, &online);
            prop_assert!(gets.0.is_subset(&set.0));
            prop_assert!(!gets.0.is_disjoint(&online.0));
            prop_assert!(gets.0.is_subset(&own.0) || gets == set);
            prop_assert_eq!(share(&gets, &set, &online), gets.clone(), "once more changes nothing");
            if set.0.is_subset(&own.0) {
                prop_assert_eq!(gets, set, "a thread that is free gets all");
            }
        }
    }
}
