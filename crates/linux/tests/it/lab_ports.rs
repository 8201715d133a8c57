//! Linux's commands on the lab's machine: a frequency is a byte in an I/O port there, one port for
//! each CPU (`lab/ssdt`). Debian's cloud kernels have no `/dev/port`, so the processor is asked.

/// By CPU, as in `lab/ssdt`: page registers of the old DMA controller, which are unused and keep
/// their value.
const PORTS: [u16; 8] = [0x81, 0x82, 0x83, 0x87, 0x89, 0x8A, 0x8B, 0x8F];

unsafe extern "C" {
    fn ioperm(from: std::ffi::c_ulong, ports: std::ffi::c_ulong, on: std::ffi::c_int) -> std::ffi::c_int;
}

/// The last frequency command of each CPU, in tenths of a GHz.
pub fn commanded() -> [u8; 8] {
    // SAFETY: a call of the C library with three numbers. It is for this thread alone, and lets it
    // use these ports.
    let permitted = unsafe { ioperm(0x80, 0x10, 1) };
    assert_eq!(permitted, 0, "this needs root on the lab's machine: see lab/README.md");
    PORTS.map(port)
}

fn port(number: u16) -> u8 {
    let byte: u8;
    // SAFETY: the port may be read, as was asked for above, and reading a page register of the old
    // DMA controller does nothing else; neither memory nor flags are touched.
    unsafe {
        std::arch::asm!("in al, dx", in("dx") number, out("al") byte, options(nomem, nostack, preserves_flags));
    }
    byte
}
