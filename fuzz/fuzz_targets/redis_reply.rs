#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roost_fuzz::redis_reply::run(bytes));
