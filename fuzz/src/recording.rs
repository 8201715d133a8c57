//! Any bytes are a recording of sleeps or are refused in one line that names the file. Of a
//! recording that is accepted no CPU slept and worked for longer than the recording lasted.

use machine::{CstateTable, Duration};
use observe::recording::{self, Input, read_service};

pub fn run(bytes: &[u8]) {
    if let Err(error) = read_service(Input::Bytes { name: "rec.txt", bytes }, 12, &[]) {
        let said = error.to_string();
        assert!(said.contains("rec.txt") && !said.contains('\n'), "{said}");
    }
    match recording::read("rec.txt", bytes, |_| CstateTable::default(), &mut |_| ()) {
        Ok(found) => {
            for cpu in &found.pattern.cpus {
                let idle: Duration = cpu.idle.iter().map(|lengths| lengths.time()).sum();
                assert!(idle + cpu.active.time() <= found.pattern.elapsed);
            }
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("rec.txt") && !said.contains('\n'), "{said}");
        }
    }
}
