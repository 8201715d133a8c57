//! A setting of one queue of a network card (NAPI), by generic netlink: [`crate::nic::napi`].
//!
//! Its path is `napi/DEVICE/ID/SETTING`; the text is the number. An instance whose device has gone, or
//! was taken down and up by a driver that makes new ones, is missing. On a made-up machine each setting
//! is a file.

use crate::nic::napi::{NapiSetting, queues_of, set};
use crate::root::{FileError, Root, overwrite};
use std::fs;
use std::io;
use std::path::PathBuf;

/// The journal's name for a setting.
pub(crate) fn napi_of(device: &str, id: u32, setting: NapiSetting) -> String {
    format!("napi/{device}/{id}/{}", setting.name())
}

/// The device, queue and setting that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NapiName {
    pub(super) device: String,
    pub(super) id: u32,
    pub(super) setting: NapiSetting,
}

impl NapiName {
    pub(super) fn from_path(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix("napi/")?.split('/').collect();
        let [device, id, name] = parts[..] else { return None };
        let setting = NapiSetting::ALL.into_iter().find(|setting| setting.name() == name)?;
        let id = id.parse::<u32>().ok().filter(|number| number.to_string() == id)?;
        super::indirection::is_device(device).then(|| Self { device: device.to_owned(), id, setting })
    }
}

#[derive(Debug)]
pub(super) struct NapiKnob {
    name: NapiName,
    /// The object that an error names: `/sys/class/net/DEVICE`, or the file of a made-up machine.
    path: PathBuf,
    is_real: bool,
}

impl NapiKnob {
    pub(super) fn new(root: &Root, name: NapiName) -> Self {
        let is_real = *root == Root::system();
        let path = if is_real {
            format!("sys/class/net/{}", name.device)
        } else {
            napi_of(&name.device, name.id, name.setting)
        };
        Self { name, path: root.path(&path), is_real }
    }

    pub(super) fn read(&self) -> Result<String, FileError> {
        let read = || {
            if !self.is_real {
                return fs::read_to_string(&self.path).map(|text| text.trim_end().to_owned());
            }
            let queues = queues_of(&self.name.device)?;
            // Its settings are there again when it is up: they are no lost ones.
            if queues.is_empty() {
                return Err(io::ErrorKind::NetworkDown.into());
            }
            let queue = queues.iter().find(|queue| queue.id == self.name.id);
            let value = queue.and_then(|queue| queue.get(self.name.setting));
            value.map(|value| value.to_string()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        read().map_err(|cause: io::Error| FileError::unreadable(&self.path, cause))
    }

    pub(super) fn write(&self, value: &str) -> Result<(), FileError> {
        let write = || {
            let number = value.parse::<u64>().map_err(|_| io::ErrorKind::InvalidInput)?;
            if self.is_real {
                set(self.name.id, self.name.setting, number)
            } else {
                overwrite(&self.path, &format!("{number}\n"))
            }
        };
        write().map_err(|cause| FileError::unwritable(&self.path, value, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_queues_setting_is_one() {
        let name = NapiName { device: "eth0.7".to_owned(), id: 258, setting: NapiSetting::IrqSuspendTimeout };
        let path = napi_of(&name.device, name.id, name.setting);
        assert_eq!(NapiName::from_path(&path), Some(name));
        for path in [
            "napi/eth0/258",
            "napi/eth0/258/threaded",
            "napi/eth0/+258/defer-hard-irqs",
            "napi/eth0/0258/defer-hard-irqs",
            "napi//258/defer-hard-irqs",
            "napi/../258/defer-hard-irqs",
            "napi/eth0/258/defer-hard-irqs/x",
        ] {
            assert_eq!(NapiName::from_path(path), None, "{path}");
        }
    }
}
