//! Power sensors of hwmon: boards, power supplies, graphics cards.
//!
//! `/sys/class/hwmon/hwmonN/powerM_average` or `powerM_input` is in microwatts, `powerM_label` its
//! name, `name` that of the chip (kernel `Documentation/hwmon/sysfs-interface.rst`). A chip that
//! averages over an interval of its own says so by having `powerM_average`, which is preferred: a
//! reading now and then misses less. Each sensor stands for itself; two may measure the same watts.

use crate::root::{Gaps, Root};
use machine::Microwatts;

const FOLDER: &str = "sys/class/hwmon";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerSensor {
    /// Chip and sensor, such as `hwmon power_meter power1`.
    pub name: String,
    file: String,
}

impl PowerSensor {
    /// All that can be read now, in the order of their names.
    pub fn all(root: &Root) -> Vec<Self> {
        let mut gaps = Gaps::default();
        let mut found: Vec<Self> = Vec::new();
        for chip in gaps.names(root, FOLDER) {
            let folder = format!("{FOLDER}/{chip}");
            let chip_name = gaps.text(root, &format!("{folder}/name")).unwrap_or_else(|| chip.clone());
            let mut files = gaps.names(root, &folder);
            files.sort();
            for file in &files {
                let Some((sensor, kind)) = file.split_once('_') else { continue };
                let is_sensor = sensor.strip_prefix("power").is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                });
                let is_second = kind == "input" && files.contains(&format!("{sensor}_average"));
                if !is_sensor || !matches!(kind, "average" | "input") || is_second {
                    continue;
                }
                let label = root.text(&format!("{folder}/{sensor}_label"));
                let label = label.unwrap_or_else(|_| sensor.to_owned());
                let name = format!("hwmon {} {}", chip_name.trim(), label.trim());
                let name = crate::printable_name(&name).to_string();
                let same = found.iter().filter(|other| other.name.starts_with(&name)).count();
                let name = if same > 0 { format!("{name} ({chip})") } else { name };
                let sensor = Self { name, file: format!("{folder}/{file}") };
                if sensor.read(root).is_some() {
                    found.push(sensor);
                }
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    /// The power now; `None` if the sensor does not answer.
    pub fn read(&self, root: &Root) -> Option<Microwatts> {
        root.parse(&self.file, "microwatts").ok().map(Microwatts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn each_sensor_stands_once_under_its_own_name() {
        let machine = FakeMachine::intel_server(1);
        let write = |file: &str, text: &str| machine.write(&format!("{FOLDER}/{file}"), text);
        write("hwmon0/name", "coretemp\n");
        write("hwmon0/temp1_input", "40000\n");
        write("hwmon1/name", "power_meter\n");
        write("hwmon1/power1_average", "215000000\n");
        write("hwmon1/power1_input", "190000000\n");
        write("hwmon1/power1_average_interval", "1000\n");
        for psu in ["hwmon2", "hwmon3"] {
            write(&format!("{psu}/name"), "pmbus\n");
            write(&format!("{psu}/power1_input"), "100000000\n");
            write(&format!("{psu}/power1_label"), "pin\n");
            write(&format!("{psu}/power2_input"), "broken\n");
        }
        let found = PowerSensor::all(machine.root());
        let seen: Vec<(&str, u64)> = found
            .iter()
            .map(|sensor| (sensor.name.as_str(), sensor.read(machine.root()).unwrap().0))
            .collect();
        assert_eq!(
            seen,
            [
                ("hwmon pmbus pin", 100_000_000),
                ("hwmon pmbus pin (hwmon3)", 100_000_000),
                ("hwmon power_meter power1", 215_000_000)
            ]
        );
        machine.write("sys/class/hwmon/hwmon1/power1_average", "lots\n");
        assert_eq!(found[2].read(machine.root()), None, "missing, not zero");
    }
}
