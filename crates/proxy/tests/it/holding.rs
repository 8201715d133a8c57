//! Which requests wait, until when, and which do not.

use crate::fixture::{Client, Upstream, held, hold_until_full, proxy, say, until};
use machine::Duration;
use proxy::{Class, Period, Why};

#[test]
fn held_requests_go_together() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| hold_until_full(config, 4));
    let mut clients: Vec<Client> = (0..4).map(|_| Client::to(&proxy)).collect();
    for (number, client) in clients.iter_mut().take(3).enumerate() {
        client.ask(&format!("/{number}"));
    }
    until(&proxy, "three are held", |status| held(status) == 3);
    assert!(server.got().is_empty());
    clients[3].ask("/3");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read().unwrap().text(), format!("/{number}"));
    }
    let bursts = &proxy.take_bursts()[0];
    assert_eq!((bursts.len(), bursts[0].released, bursts[0].why), (1, 4, Why::Full));
    let status = until(&proxy, "all are counted", |status| status.counts().answered == 4);
    assert_eq!((status.servers[0].in_service, status.servers[0].stage.in_time), (0, 4));
    assert!(status.classes[0].held.max <= status.classes[0].latency.max);
}

#[test]
fn the_period_lets_go_and_so_does_a_deadline_before_it() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        config.goal = "1h@p99.9".parse().unwrap();
        config.period = Some(Period(Duration::from_millis(40)));
    });
    assert_eq!(Client::to(&proxy).get("/a").unwrap().text(), "/a");
    assert_eq!(proxy.status().servers[0].stage.by_period, 1);
    let urgent = crate::fixture::proxy(&[&server], |config| {
        config.goal = "40ms@p99.9".parse().unwrap();
        config.period = Some(Period(Duration::from_secs(3600)));
    });
    assert_eq!(Client::to(&urgent).get("/b").unwrap().text(), "/b");
    assert_eq!(urgent.status().servers[0].stage.by_deadline, 1);
}

#[test]
fn classes_are_held_as_they_say() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        hold_until_full(config, 100);
        config.classes = vec![
            Class {
                name: "live".to_owned(),
                path: Some("/live".to_owned()),
                never_stage: true,
                ..Class::default()
            },
            Class {
                name: "soon".to_owned(),
                header: Some("X-Soon".to_owned()),
                deadline: Some(Period(Duration::from_millis(30))),
                ..Class::default()
            },
        ];
    });
    let mut waits = Client::to(&proxy);
    waits.ask("/waits");
    until(&proxy, "one is held", |status| held(status) == 1);
    let mut live = Client::to(&proxy);
    assert_eq!(live.get("/live/x").unwrap().text(), "/live/x");
    assert_eq!(server.paths(), ["/live/x"]);
    // The urgent one takes the other along.
    live.write("GET /soon HTTP/1.1\r\nHost: a\r\nX-Soon: yes\r\n\r\n");
    assert_eq!(live.read().unwrap().text(), "/soon");
    assert_eq!(waits.read().unwrap().text(), "/waits");
    let status = proxy.status();
    let arrived: Vec<u64> = status.classes.iter().map(|class| class.counts.arrived).collect();
    assert_eq!(arrived, [1, 1, 1]);
}

#[test]
fn who_leaves_is_not_asked_for() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| hold_until_full(config, 3));
    let mut stays = Client::to(&proxy);
    stays.ask("/stays");
    until(&proxy, "one is held", |status| held(status) == 1);
    let mut leaves = Client::to(&proxy);
    leaves.ask("/leaves");
    until(&proxy, "two are held", |status| held(status) == 2);
    drop(leaves);
    let status = until(&proxy, "one has left", |status| held(status) == 1);
    assert_eq!((status.counts().gone, status.servers[0].stage.withdrawn), (1, 1));
    let mut others = [Client::to(&proxy), Client::to(&proxy)];
    others.iter_mut().for_each(|client| client.ask("/other"));
    for client in others.iter_mut().chain([&mut stays]) {
        assert_eq!(client.read().unwrap().status, 200);
    }
    let mut paths = server.paths();
    paths.sort();
    assert_eq!(paths, ["/other", "/other", "/stays"]);
}

#[test]
fn on_the_way_out_everybody_is_answered_and_nobody_is_taken() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| hold_until_full(config, 100));
    let address = proxy.addresses()[0];
    let mut clients: Vec<Client> = (0..5).map(|_| Client::to(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.ask("/last"));
    let _idle = Client::to(&proxy);
    until(&proxy, "five are held", |status| held(status) == 5);
    let reader = std::thread::spawn(move || {
        clients.iter_mut().map(|client| client.read().unwrap().text().to_owned()).collect::<Vec<_>>()
    });
    let (all_answered, status) = proxy.stop();
    assert!(all_answered);
    assert_eq!(reader.join().unwrap(), ["/last"; 5]);
    assert_eq!((status.counts().answered, status.servers[0].stage.by_drain), (5, 1));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn on_the_way_out_nobody_new_comes_in_while_others_are_still_answered() {
    let (tell, told) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let server = Upstream::start(move |got, stream| {
        told.lock().unwrap().recv().unwrap();
        say(stream, 200, got.path().as_bytes())
    });
    let proxy = proxy(&[&server], |config| config.hold = false);
    let address = proxy.addresses()[0];
    let mut client = Client::to(&proxy);
    client.ask("/last");
    until(&proxy, "it has come", |status| status.counts().arrived == 1);
    let stopping = std::thread::spawn(move || proxy.stop());
    let began = std::time::Instant::now();
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(began.elapsed().as_secs() < 15, "it still takes connections");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    tell.send(()).unwrap();
    assert_eq!(client.read().unwrap().text(), "/last");
    assert!(stopping.join().unwrap().0);
}

#[test]
fn who_is_not_answered_in_time_does_not_keep_it_for_ever() {
    let server = Upstream::start(|_, _| {
        std::thread::park();
        false
    });
    let proxy = proxy(&[&server], |config| {
        config.hold = false;
        config.limits.drain = Duration::from_millis(50);
    });
    let mut client = Client::to(&proxy);
    client.ask("/");
    until(&proxy, "it has come", |status| status.counts().arrived == 1);
    assert!(!proxy.stop().0);
    assert_eq!(client.read(), None);
}

#[test]
fn replicas_share_and_have_stages_of_their_own() {
    let servers = [Upstream::echo(), Upstream::echo()];
    let proxy = proxy(&[&servers[0], &servers[1]], |config| hold_until_full(config, 3));
    let mut clients: Vec<Client> = (0..6).map(|_| Client::to(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.ask("/"));
    clients.iter_mut().for_each(|client| assert_eq!(client.read().unwrap().status, 200));
    assert_eq!(servers.each_ref().map(|server| server.got().len()), [3, 3]);
    assert!(proxy.take_bursts().iter().all(|bursts| bursts.len() == 1 && bursts[0].released == 3));
}
