//! TLS, by rustls: towards clients with a certificate from files, towards servers with the
//! authorities that are named.

use crate::config::{ConfigError, Server, Tls};
use ::tls::Identity;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ConfigError> {
    if let Some(remark) = ::tls::remark(&tls.key) {
        // The reader may have gone.
        let _ = writeln!(io::stderr(), "roost: {remark}");
    }
    let identity = Identity { certificate: tls.certificate.clone(), key: tls.key.clone(), clients: None };
    let mut config = ::tls::server_config(&identity).map_err(wrong)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Asks a server, and under which name it must show a certificate.
pub(crate) fn to_server(
    server: &Server,
    host: &str,
) -> Result<(TlsConnector, ServerName<'static>), ConfigError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| ConfigError::new(format!("`{host}` is no name that a certificate could have")))?;
    let file = server.authorities.as_deref().unwrap_or(Path::new(SYSTEM));
    let mut config = ::tls::client_config(file).map_err(wrong)?;
    if server.http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn wrong(error: ::tls::FileError) -> ConfigError {
    ConfigError::new(error.to_string())
}

/// Where Debian, Ubuntu and Alpine have the authorities.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";
