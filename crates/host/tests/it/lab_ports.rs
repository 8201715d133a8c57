//! What Linux commanded on the lab's machine: a clock is a byte in an I/O port there, one port for each CPU (`lab/ssdt`).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// By CPU, as in `lab/ssdt`: page registers of the old DMA controller, which nobody uses and which keep what they are given.
const PORTS: [u64; 8] = [0x81, 0x82, 0x83, 0x87, 0x89, 0x8A, 0x8B, 0x8F];

/// What each CPU's clock was last set to, in tenths of a GHz.
pub fn commanded() -> [u8; 8] {
    let ports = File::open("/dev/port").expect("this needs root on the lab's machine: see lab/README.md");
    PORTS.map(|port| {
        let mut byte = [0];
        ports.read_exact_at(&mut byte, port).expect("a port can be read");
        byte[0]
    })
}
