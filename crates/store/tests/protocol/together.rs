//! Connections that are served together: each gets its own answers, all of them, in order.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use store::{Config, Policy, Server};

/// More than one batch of a worker.
const CLIENTS: usize = 40;
const ROUNDS: usize = 200;
/// Of the value that the client asks for that never reads: more than its socket takes.
const UNREAD: usize = 900_000;

fn connect(place: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(place).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    client
}

/// Of the client with that number: some small, some larger than answers may be that wait.
fn value(number: usize) -> Vec<u8> {
    (0..number * number * 17).map(|at| b'a' + ((at * 7 + number) % 26) as u8).collect()
}

fn asked(client: &mut TcpStream, request: &[u8], answer: &[u8]) {
    client.write_all(request).unwrap();
    expect(client, answer);
}

fn expect(client: &mut TcpStream, answer: &[u8]) {
    let mut came = vec![0; answer.len()];
    client.read_exact(&mut came).unwrap();
    assert!(came == answer, "{} in place of {}", came.escape_ascii(), answer.escape_ascii());
}

#[test]
fn each_of_many_clients_at_once_gets_its_own_answers() {
    let cpu = linux::allowed_cpus().unwrap().0.into_iter().next().unwrap();
    let server = Server::start(Config::on_loopback(vec![cpu], Policy::AllAwake), || ()).unwrap();
    let place = server.addresses()[0];
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(place)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let value = value(number);
        let set = [format!("set k{number} 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        asked(client, &set, b"STORED\r\n");
    }
    let mut deaf = connect(place);
    let large = [format!("set u 0 0 {UNREAD}\r\n").as_bytes(), &vec![b'u'; UNREAD], b"\r\n"].concat();
    asked(&mut deaf, &large, b"STORED\r\n");
    for round in 0..ROUNDS {
        deaf.write_all(b"get u\r\n").unwrap();
        for (number, client) in clients.iter_mut().enumerate() {
            let other = (number + round) % CLIENTS;
            let request = format!("get k{number} none\r\nget k{other}\r\nmn\r\n");
            client.write_all(request.as_bytes()).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            for of in [number, (number + round) % CLIENTS] {
                let value = value(of);
                let head = format!("VALUE k{of} 0 {}\r\n", value.len());
                expect(client, &[head.as_bytes(), &value, b"\r\nEND\r\n"].concat());
            }
            expect(client, b"MN\r\n");
        }
        // Some leave without a word, with a request on its way, and others take their places.
        for number in (round % 7..CLIENTS).step_by(7) {
            clients[number].write_all(b"get k1\r\n").unwrap();
            clients[number] = connect(place);
        }
    }
    server.stop().unwrap();
}
