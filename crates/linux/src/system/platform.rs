//! The maker of the machine, its kernel, and whether it is virtual.
//!
//! On x86 the processor's flags say `hypervisor`; the firmware's tables (DMI) name the vendor,
//! where there are any: a microVM has none. Arm has no such flag: there, the vendor's name and the
//! device tree must tell. In a virtual machine the host chooses which idle states, frequencies and
//! counters to show.

use crate::energy::processor;
use crate::root::{Gaps, Root};
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// The processor's name; on Arm, its designer and its part number.
    pub processor: Option<String>,
    /// The maker of the machine, or of the hypervisor (DMI).
    pub vendor: Option<String>,
    /// The maker's name for it (DMI).
    pub product: Option<String>,
    pub kernel: Option<String>,
    /// True in a virtual machine, as far as it shows; `None` if nothing tells.
    pub virtual_machine: Option<bool>,
}

/// Makers whose machines are always virtual.
const VIRTUAL_VENDORS: [&str; 9] = [
    "QEMU",
    "VMware",
    "innotek",
    "Xen",
    "Microsoft Corporation",
    "Amazon EC2",
    "Google",
    "Bochs",
    "Parallels",
];

pub fn identity(root: &Root, gaps: &mut Gaps) -> Identity {
    let cpuinfo = gaps.text(root, "proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let vendor = gaps.text(root, "sys/class/dmi/id/sys_vendor");
    let product = gaps.text(root, "sys/class/dmi/id/product_name");
    let flag = field("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    // These two rent out whole machines as well, under this name.
    let metal = product.as_deref().is_some_and(|product| product.contains("metal"));
    let by_vendor =
        vendor.as_ref().map(|vendor| VIRTUAL_VENDORS.iter().any(|known| vendor.starts_with(known)) && !metal);
    let by_tree = root.has("sys/hypervisor/type").filter(|there| *there);
    let name = processor(root).model_name;
    Identity {
        processor: Some(name).filter(|name| !name.is_empty()).or_else(|| {
            let part = field("CPU part")?;
            Some(format!("{} core, part {part}", designer(field("CPU implementer").unwrap_or("?"))))
        }),
        kernel: gaps.text(root, "proc/sys/kernel/osrelease"),
        // The flag is the processor's own word; a vendor such as Microsoft also makes real
        // machines.
        virtual_machine: flag.or(by_tree).or(by_vendor),
        vendor,
        product,
    }
}

/// Arm's registry of core designers.
fn designer(code: &str) -> &str {
    match code {
        "0x41" => "Arm",
        "0x46" => "Fujitsu",
        "0x48" => "HiSilicon",
        "0x4e" => "NVIDIA",
        "0x51" => "Qualcomm",
        "0x61" => "Apple",
        "0xc0" => "Ampere",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    fn read(cpuinfo: &str, vendor: &str, product: &str) -> Identity {
        let machine = FakeMachine::intel_server(1);
        machine.write("proc/cpuinfo", cpuinfo);
        machine.write("sys/class/dmi/id/sys_vendor", vendor);
        machine.write("sys/class/dmi/id/product_name", product);
        identity(machine.root(), &mut Gaps::default())
    }

    #[test]
    fn the_processors_flag_counts_more_than_the_vendor() {
        let x86 = "model name : Xeon\nflags : fpu hypervisor vme\n";
        assert_eq!(read(x86, "", "").virtual_machine, Some(true));
        assert_eq!(read("flags : fpu vme\n", "Microsoft Corporation", "").virtual_machine, Some(false));
    }

    #[test]
    fn arm_is_judged_by_the_vendor() {
        let arm = "CPU implementer : 0x41\nCPU part : 0xd0c\n";
        assert_eq!(read(arm, "QEMU", "QEMU Virtual Machine").virtual_machine, Some(true));
        assert_eq!(read(arm, "Amazon EC2", "c6g.metal").virtual_machine, Some(false));
        assert_eq!(read(arm, "", "").virtual_machine, None, "nothing tells");
        assert_eq!(read(arm, "", "").processor.as_deref(), Some("Arm core, part 0xd0c"));
    }
}
