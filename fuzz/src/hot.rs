//! Any bytes are stacks, counts or a program's functions, or an error: the output of profilers, of
//! an agent in a stranger's JVM and of a stranger's program.

use linux::symbols::{build_id, function, readable};
use observe::hot::{Profile, read_async_profiler, read_counts, read_perf_script};

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for read in [read_async_profiler, read_perf_script] {
        let Ok(stacks) = read(&text) else { continue };
        assert_eq!(stacks.collapsed().lines().count(), stacks.stacks.len());
        let profile = Profile::of(&stacks);
        assert!(profile.functions.iter().all(|seen| seen.own.as_f64() <= seen.share.as_f64() + 1e-9));
    }
    let _ = read_counts(&text);
    let _ = readable(&text);
    if let Ok(found) = function(bytes, None, "main") {
        assert!(
            found.entry < bytes.len() as u64 && found.exits.iter().all(|&exit| exit < bytes.len() as u64)
        );
    }
    let _ = build_id(bytes);
}
