//! Real servers, asked for their own figures.

use super::source::Source;
use super::{Names, Reading};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn source(named: &str) -> Source {
    Source::named(named, Names::default(), 0.99).unwrap()
}

/// A server that listens at a port that was free a moment ago; `None` if it is not installed.
fn started(name: &str, command: impl Fn(u16) -> Command) -> Option<(Started, SocketAddr)> {
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let spawned = command(free.port()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = match spawned {
            Ok(child) => Started(child),
            Err(error) => {
                eprintln!("SKIPPED: no {name} here: {error}");
                return None;
            }
        };
        // Another may have the port by now: then this one ends.
        let patience = Instant::now() + Duration::from_secs(60);
        while child.0.try_wait().unwrap().is_none() && Instant::now() < patience {
            if TcpStream::connect(free).is_ok() {
                return Some((child, free));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("{name} does not listen");
}

#[test]
fn a_real_redis_counts_what_others_asked_it() {
    let command = |port: u16| {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        command
    };
    let Some((_redis, address)) = started("redis-server", command) else { return };
    let source = source(&format!("redis:{address}"));
    let before = source.ask().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let mut lines = BufReader::new(client.try_clone().unwrap());
    for request in ["SET a 1\r\n", "INCR a\r\n", "MSET b 1 c 2\r\n", "PING\r\nPING\r\n"] {
        (&client).write_all(request.as_bytes()).unwrap();
        request.lines().for_each(|_| {
            lines.read_line(&mut String::new()).unwrap();
        });
    }
    let after = source.ask().unwrap();
    assert_eq!(after.requests - before.requests, 5.0, "without our questions");
    assert_eq!(source.ask().unwrap().requests, after.requests, "idle");
    assert_eq!((after.connections, after.tail), (Some(1), None));
    assert!(after.uptime >= before.uptime);
    (&client).write_all(b"CONFIG SET requirepass secret\r\n").unwrap();
    lines.read_line(&mut String::new()).unwrap();
    let refused = format!("{:#}", self::source(&format!("redis:{address}")).ask().unwrap_err());
    assert!(refused.contains("NOAUTH") && refused.contains("without a password"), "{refused}");
}

#[test]
fn a_real_nginx_counts_the_requests_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let command = |port: u16| {
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/log;\nevents {{}}\n\
             http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; \
             fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s; \
             server {{ listen 127.0.0.1:{port}; location /status {{ stub_status; }} \
             location / {{ return 200 x; }} }} }}\n"
        );
        let file = folder.path().join("conf");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("nginx");
        command.env("PATH", "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin").arg("-c").arg(file);
        command
    };
    let Some((_nginx, address)) = started("nginx", command) else { return };
    let source = source(&format!("nginx:{address}/status"));
    let before = source.ask().unwrap();
    for _ in 0..3 {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let answer = BufReader::new(client).lines().next().unwrap().unwrap();
        assert!(answer.contains("200"), "{answer}");
    }
    let Reading { requests, tail, connections, .. } = source.ask().unwrap();
    assert_eq!(requests - before.requests, 3.0, "without our questions");
    assert_eq!(source.ask().unwrap().requests, requests, "idle");
    assert!(tail.is_none() && connections.is_some());
    let other = self::source(&format!("nginx:{address}/")).ask().unwrap_err();
    assert!(format!("{other:#}").contains("the location with `stub_status`"), "{other:#}");
}

#[test]
fn a_real_memcached_counts_what_it_was_asked() {
    // It chooses its port itself: one that we found free another test may have by now.
    let folder = tempfile::tempdir().unwrap();
    let chosen = folder.path().join("port");
    let spawned = Command::new("memcached")
        .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root"])
        .env("MEMCACHED_PORT_FILENAME", &chosen)
        .stderr(Stdio::null())
        .spawn();
    let _memcached = match spawned {
        Ok(child) => Started(child),
        Err(error) => {
            eprintln!("skipped: no memcached here: {error}");
            return;
        }
    };
    let port = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::read_to_string(&chosen).ok()?.trim_end().strip_prefix("TCP INET: ")?.parse::<u16>().ok()
    });
    let address = SocketAddr::from(([127, 0, 0, 1], port.expect("memcached says its port")));
    let source = source(&format!("memcached:{address}"));
    let before = source.ask().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let mut lines = BufReader::new(client.try_clone().unwrap());
    let mut say = |request: &str| {
        (&client).write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        while !matches!(line.trim_end(), "STORED" | "END" | "NOT_FOUND" | "TOUCHED" | "HD" | "NF" | "EN") {
            line.clear();
            lines.read_line(&mut line).unwrap();
            assert!(!line.is_empty() && !line.contains("ERROR"), "{request}: {line}");
        }
    };
    say("set a 0 0 1\r\nx\r\n");
    for request in [
        "get a\r\n",
        "get b\r\n",
        "gat 100 a\r\n",
        "touch a 100\r\n",
        "incr b 1\r\n",
        "decr b 1\r\n",
        "delete b\r\n",
        "mg b\r\n",
        "md b\r\n",
        "ma b\r\n",
    ] {
        say(request);
    }
    let after = source.ask().unwrap();
    assert_eq!(after.requests - before.requests, 11.0, "one for each command");
    // The client's connection; ours is not counted, and there is one, for all callers.
    assert_eq!(after.connections, Some(1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let source = source.clone();
            scope.spawn(move || (0..50).for_each(|_| assert_eq!(source.ask().unwrap().connections, Some(1))));
        }
    });
    assert!(after.uptime >= before.uptime);
}
