//! The linker's options of the binary.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // 0.6 MB of relative relocations become some kilobytes. glibc reads them from 2.36 on (Debian 12).
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
