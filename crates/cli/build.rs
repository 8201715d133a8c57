//! The linker's options of the binary.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // 0.6 MB of relative relocations become some kilobytes. glibc reads them from 2.36 on (Debian 12).
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
