//! TLS, by rustls: towards clients with a certificate from files, towards servers with the
//! authorities that are named.

use crate::config::{ConfigError, Server, Tls};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ConfigError> {
    let chain = certificates(&tls.certificate)?;
    if let Some(remark) = remark(&tls.key) {
        // The reader may have gone.
        let _ = writeln!(io::stderr(), "roost: {remark}");
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| wrong(&tls.key, &error, "name a private key in PEM"))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has all of TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&tls.certificate, &error, "certificate and key must belong together"))?;
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
    let mut roots = RootCertStore::empty();
    let file = server.authorities.as_deref().unwrap_or(Path::new(SYSTEM));
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(wrong(file, &"no authority in it", "name a PEM file with one"));
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has all of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    if server.http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// The fault of a private key's file though it can be used.
fn remark(key: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(key).ok()?.permissions().mode();
    (mode & 0o007 != 0)
        .then(|| format!("{}: every user may read this private key or write it; chmod o= it", key.display()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| wrong(file, &error, "name a file of certificates in PEM"))?;
    if all.is_empty() {
        Err(wrong(file, &"no certificate in it", "name a file of certificates in PEM"))
    } else {
        Ok(all)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn wrong(file: &Path, error: &dyn std::fmt::Display, fix: &str) -> ConfigError {
    ConfigError::new(format!("{}: {error}; {fix}", file.display()))
}

/// Where Debian, Ubuntu and Alpine have the authorities.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_that_all_may_read_is_remarked() {
        let key = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_remarked) in [(0o600, false), (0o640, false), (0o644, true)] {
            key.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(remark(key.path()).is_some(), is_remarked, "{mode:o}");
        }
    }
}
