//! A real proxy between real clients and real servers.

mod charged;
mod failing;
mod fixture;
mod holding;
mod http2;
mod passing;
mod pooling;
mod refusing;
mod scripted;
mod soak;
