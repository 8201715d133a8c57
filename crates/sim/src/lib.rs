//! A server in simulated time, driven by the policies that run live.
