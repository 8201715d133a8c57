//! Any bytes behind the mark of perf's file are a recording or are refused in one line that names the
//! file. No CPU worked and slept for longer than the recording lasted, and every second's wake-ups add
//! up to all of them.

use observe::recording::{Input, read_service};

pub fn run(bytes: &[u8]) {
    let whole = [b"PERFILE2", bytes.get(8..).unwrap_or_default()].concat();
    match read_service(Input::Bytes { name: "perf.data", bytes: &whole }, 1, &[]) {
        Ok(found) => {
            let work = found.work;
            let cpus = u32::from(u16::MAX).min(found.cpus.max(1));
            assert!(work.service.cpu + work.others.cpu + work.idle <= work.elapsed * u64::from(cpus));
            assert!(work.each_second.iter().sum::<u64>() <= work.wakes);
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("perf.data") && !said.contains('\n'), "{said}");
        }
    }
}
