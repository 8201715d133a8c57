//! TLS, by rustls: certificates from files, and a socket that does not block.
//!
//! ```text
//!   files.rs    a server's certificate and key, the authorities of a client; read again while it serves
//!   socket.rs   TlsSocket: plain bytes in and out of a socket that carries sealed ones
//! ```

mod files;
mod socket;

#[cfg(unix)]
pub use files::remark;
pub use files::{Client, FileError, Identity, Server, client_config, server_config};
pub use rustls::client::UnbufferedClientConnection;
pub use rustls::server::UnbufferedServerConnection;
pub use socket::{BROKEN, Session, TlsSocket};
