//! Clients' connections: taken, perhaps after a TLS handshake, spoken with in HTTP/1.1 or HTTP/2,
//! and ended.

use crate::headers::Peer;
use crate::paced::Paced;
use crate::request;
use crate::shared::{Place, Shared};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// The parts that a listener hands to each connection.
#[derive(Clone)]
pub(crate) struct Reception {
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    builder: Builder<TokioExecutor>,
    room: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Reception {
    pub(crate) fn new(shared: Arc<Shared>, tls: Option<TlsAcceptor>, stop: watch::Receiver<bool>) -> Self {
        let limits = shared.config.limits;
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(std::time::Duration::from(limits.client))
            .max_buf_size(HEAD_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(HEAD_MAX as u32)
            .max_send_buf_size(HEAD_MAX)
            .initial_stream_window_size(HEAD_MAX as u32)
            .initial_connection_window_size(4 * HEAD_MAX as u32)
            .keep_alive_interval(Some(limits.idle.into()));
        let room = Arc::new(Semaphore::new(limits.connections as usize));
        Self { shared, tls, builder, room, stop }
    }

    /// Takes connections until it is time to stop.
    pub(crate) async fn accept(mut self, listener: TcpListener) {
        loop {
            let taken = async {
                // Closed never, so there is always a permit to wait for.
                let permit = self.room.clone().acquire_owned().await.ok();
                (permit, listener.accept().await)
            };
            let mut stop = self.stop.clone();
            let (permit, accepted) = tokio::select! {
                taken = taken => taken,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    let reception = self.clone();
                    let place = Place::take(&reception.shared, permit, reception.stop.clone());
                    tokio::spawn(async move { reception.welcome(stream, address, place).await });
                }
                // No descriptor is left, or the client has left already. Others may go meanwhile.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
            self.stop.mark_unchanged();
        }
    }

    async fn welcome(self, stream: TcpStream, address: SocketAddr, place: Arc<Place>) {
        let _ = stream.set_nodelay(true);
        let stream = Paced::new(stream, self.shared.config.limits.client.into());
        let peer = Arc::new(Peer::new(address.ip(), self.tls.is_some()));
        match self.tls.clone() {
            None => self.converse(stream, peer, place).await,
            Some(tls) => {
                let patience = self.shared.config.limits.client.into();
                if let Ok(Ok(stream)) = tokio::time::timeout(patience, tls.accept(stream)).await {
                    self.converse(stream, peer, place).await;
                }
            }
        }
    }

    async fn converse(
        mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Arc<Peer>,
        place: Arc<Place>,
    ) {
        let has_asked = Arc::new(AtomicBool::new(false));
        let service = {
            let (shared, has_asked) = (self.shared.clone(), has_asked.clone());
            service_fn(move |request| {
                has_asked.store(true, Ordering::Relaxed);
                request::serve(shared.clone(), peer.clone(), place.clone(), request)
            })
        };
        let connection = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // Until the first request hyper waits without end to learn which version it will be.
        let mut silent = pin!(tokio::time::sleep(self.shared.config.limits.client.into()));
        let (mut is_silent, mut is_stopping) = (true, false);
        loop {
            tokio::select! {
                // Nearly always it is the connection that has something to do.
                biased;
                // A connection's fault is its client's to know.
                _ = connection.as_mut() => return,
                () = &mut silent, if is_silent => {
                    is_silent = false;
                    if !has_asked.load(Ordering::Relaxed) {
                        return;
                    }
                }
                _ = self.stop.wait_for(|stop| *stop), if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Request line and headers together. 64 KiB: more than any browser sends, and the most that one
/// slow client may take.
const HEAD_MAX: usize = 64 << 10;
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
