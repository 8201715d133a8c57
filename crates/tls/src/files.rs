//! Certificates, keys and authorities, as PEM files have them.

use crate::socket::TlsSocket;
use rustix::fd::OwnedFd;
use rustls::client::UnbufferedClientConnection;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Why a file is not taken, and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}\nhint: {fix}", file.display())]
pub struct FileError {
    pub file: PathBuf,
    pub why: String,
    pub fix: &'static str,
}

/// The files by which a server shows its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain of certificates, the server's own first.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities: a client has to show a certificate of one of them. Absent: clients show none.
    pub clients: Option<PathBuf>,
}

/// A server's identity, which may be read again while it serves.
#[derive(Debug)]
pub struct Server {
    identity: Identity,
    config: RwLock<Arc<ServerConfig>>,
}

impl Server {
    pub fn load(identity: Identity) -> Result<Self, FileError> {
        let config = RwLock::new(Arc::new(server_config(&identity)?));
        Ok(Self { identity, config })
    }

    /// Reads the files again; one that is wrong changes nothing. Connections that stand keep theirs.
    pub fn reload(&self) -> Result<(), FileError> {
        let config = Arc::new(server_config(&self.identity)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A connection that was accepted; it does not block.
    pub fn accept(&self, socket: OwnedFd) -> Result<TlsSocket<UnbufferedServerConnection>, rustls::Error> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        Ok(TlsSocket::new(socket, UnbufferedServerConnection::new(config)?))
    }
}

/// A client that believes the authorities of a file.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Client {
    /// `host` is the name, or the address, that the server's certificate has to have.
    pub fn new(authorities: &Path, host: &str) -> Result<Self, FileError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| FileError {
            file: host.into(),
            why: "no certificate could have this name".to_owned(),
            fix: "give the server's name or address as its certificate has it",
        })?;
        Ok(Self { config: Arc::new(client_config(authorities)?), name })
    }

    /// A connection that is about to begin; the socket does not block.
    pub fn connect(&self, socket: OwnedFd) -> Result<TlsSocket<UnbufferedClientConnection>, rustls::Error> {
        let session = UnbufferedClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        Ok(TlsSocket::new(socket, session))
    }
}

/// TLS 1.2 and 1.3, with the files' certificate.
pub fn server_config(identity: &Identity) -> Result<ServerConfig, FileError> {
    let chain = certificates(&identity.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&identity.key)
        .map_err(|error| wrong(&identity.key, &error, "name a private key in PEM"))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has all of TLS 1.2 and 1.3");
    let builder = match &identity.clients {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(file)?), provider());
            let verifier = verifier.build().map_err(|error| wrong(file, &error, AUTHORITIES))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&identity.certificate, &error, "certificate and key must belong together"))
}

/// Believes the authorities of a file, and shows no certificate.
pub fn client_config(authorities: &Path) -> Result<ClientConfig, FileError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has all of TLS 1.2 and 1.3")
        .with_root_certificates(roots(authorities)?)
        .with_no_client_auth())
}

/// The fault of a private key's file though it can be used.
#[cfg(unix)]
pub fn remark(key: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(key).ok()?.permissions().mode();
    (mode & 0o007 != 0)
        .then(|| format!("{}: every user may read this private key or write it; chmod o= it", key.display()))
}

const AUTHORITIES: &str = "name a PEM file with a certificate of an authority";

fn roots(file: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(wrong(file, &"no authority in it", AUTHORITIES));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    const FIX: &str = "name a file of certificates in PEM";
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| wrong(file, &error, FIX))?;
    if all.is_empty() { Err(wrong(file, &"no certificate in it", FIX)) } else { Ok(all) }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn wrong(file: &Path, error: &dyn std::fmt::Display, fix: &'static str) -> FileError {
    FileError { file: file.to_owned(), why: error.to_string(), fix }
}

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

    fn of_tests(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stage").join(name)
    }

    #[test]
    fn files_that_do_not_fit_are_refused_and_the_old_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::copy(of_tests("localhost.pem"), at("cert.pem")).unwrap();
        std::fs::copy(of_tests("localhost.key.pem"), at("key.pem")).unwrap();
        let identity = Identity { certificate: at("cert.pem"), key: at("key.pem"), clients: None };
        let server = Server::load(identity.clone()).unwrap();
        let config = || Arc::as_ptr(&server.config.read().unwrap());
        let before = config();
        server.reload().unwrap();
        let renewed = config();
        assert_ne!(before, renewed);
        std::fs::copy(of_tests("other.key.pem"), at("key.pem")).unwrap();
        let error = server.reload().unwrap_err().to_string();
        assert!(error.contains("belong together") && error.contains("cert.pem"), "{error}");
        std::fs::write(at("cert.pem"), "no certificate\n").unwrap();
        assert!(server.reload().unwrap_err().to_string().contains("no certificate in it"));
        assert_eq!(config(), renewed, "the old ones serve on");
        let lost = Identity { clients: Some(at("nowhere.pem")), ..identity };
        assert!(Server::load(lost).is_err());
    }
}
