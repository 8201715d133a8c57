//! `roost serve --memcached-args`: memcached's own arguments, as units and `/etc/memcached.conf` have them.
//!
//! Each option is *taken*, is *without effect* here (it steers a part that this store has not), or is
//! *refused*, because the operator has ruled out a store without it: one that answers without
//! authentication, in plain text, or to other users. The options are those of memcached 1.6.45, and so are
//! the defaults, but for the address: memcached listens at all of them.

use crate::exit::usage;
use anyhow::Result;
use clap::{ArgAction, Parser};

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Theirs {
    #[arg(short = 'p', long, default_value_t = 11211)]
    port: u16,
    #[arg(short = 'U', long, default_value_t = 0)]
    udp_port: u16,
    #[arg(short = 's', long)]
    unix_socket: Option<String>,
    #[arg(short = 'a', long, default_value = "700")]
    unix_mask: String,
    #[arg(short = 'l', long, action = ArgAction::Append)]
    listen: Vec<String>,
    #[arg(short = 'm', long, default_value_t = 64)]
    memory_limit: u64,
    #[arg(short = 'c', long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    conn_limit: u32,
    #[arg(short = 't', long)]
    threads: Option<u16>,
    #[arg(short = 'I', long, default_value = "1m")]
    max_item_size: String,
    #[arg(short = 'B', long, default_value = "auto")]
    protocol: String,
    #[arg(short = 'o', long, action = ArgAction::Append)]
    extended: Vec<String>,
    #[arg(short = 'u', long)]
    user: Option<String>,
    #[arg(short = 'P', long)]
    pidfile: Option<String>,
    #[arg(short = 'e', long)]
    memory_file: Option<String>,
    #[arg(short = 'Y', long)]
    auth_file: Option<String>,
    #[arg(short = 'S', long)]
    enable_sasl: bool,
    #[arg(short = 'Z', long)]
    enable_ssl: bool,
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    #[arg(short = 'F', long)]
    disable_flush_all: bool,
    #[arg(short = 'A', long)]
    enable_shutdown: bool,
    #[arg(short = 'k', long)]
    lock_memory: bool,
    #[arg(short = 'd', long)]
    daemon: bool,
    #[arg(short = 'X', long)]
    disable_dumping: bool,
    #[arg(short = 'W', long)]
    disable_watch: bool,
    // These steer parts of memcached alone.
    #[arg(short = 'C', long)]
    disable_cas: bool,
    #[arg(short = 'L', long)]
    enable_largepages: bool,
    #[arg(short = 'r', long)]
    enable_coredumps: bool,
    #[arg(short = 'v', long, action = ArgAction::Count)]
    verbose: u8,
    #[arg(short = 'f', long)]
    slab_growth_factor: Option<String>,
    #[arg(short = 'n', long)]
    slab_min_size: Option<String>,
    #[arg(short = 'D')]
    delimiter: Option<String>,
    #[arg(short = 'R', long)]
    max_reqs_per_event: Option<String>,
    #[arg(short = 'b', long)]
    listen_backlog: Option<String>,
    #[arg(short = 'N', long)]
    napi_ids: Option<String>,
    /// Lines of Debian's file, which its start script reads: `logfile FILE` and `verbose`.
    of_debian: Vec<String>,
}

/// The same as options of `roost serve`, and a sentence for each that is not taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Translated {
    pub listen: Vec<String>,
    pub port: u16,
    pub unix_mode: u32,
    pub workers: Option<u16>,
    pub memory_limit: String,
    pub max_item_size: String,
    pub connections: u32,
    pub auth_file: Option<String>,
    pub items: Option<String>,
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    pub tls_client_ca: Option<String>,
    pub dump: bool,
    pub watch: bool,
    pub notes: Vec<String>,
}

/// Arguments in one text, or a file's lines with remarks.
pub fn translate(text: &str) -> Result<Translated> {
    let lines = || text.lines().map(|line| line.split('#').next().unwrap_or_default());
    if lines().any(|line| line.contains(['"', '\'', '\\', '$'])) {
        return Err(refused("quotes, \\ and $ are not read: write the arguments as memcached gets them"));
    }
    let words = lines().flat_map(str::split_ascii_whitespace);
    let theirs = Theirs::try_parse_from(words).map_err(|error| {
        let told = error.to_string();
        let first = told.lines().next().unwrap_or_default().trim_start_matches("error: ");
        refused(&format!("{first}\nhint: the options are those of memcached 1.6.45"))
    })?;
    if let Some(first) = theirs.of_debian.first().filter(|word| !["verbose", "logfile"].contains(&&***word)) {
        return Err(refused(&format!("{first}: options begin with -")));
    }
    if theirs.port == 0 && theirs.unix_socket.is_none() {
        return Err(refused("-p 0: no TCP, and no -s either: it would listen nowhere"));
    }
    if let Some(reason) = ruled_out(&theirs) {
        return Err(refused(&reason));
    }
    let [tls_cert, tls_key, tls_client_ca] = tls_files(&theirs)?;
    let mut notes = without_effect(&theirs);
    let mut port = theirs.port;
    let mut listen = Vec::new();
    for place in theirs.listen.iter().flat_map(|places| places.split(',')) {
        let (is_plain, place) = place.strip_prefix("notls:").map_or((false, place), |rest| (true, rest));
        let (address, own_port) = address_of(place)?;
        let own_port = own_port.unwrap_or(theirs.port);
        if !listen.is_empty() && own_port != port {
            return Err(refused(&format!(
                "-l {place}: all addresses have one port here, and another has {port}"
            )));
        }
        port = own_port;
        listen.push(if is_plain { format!("notls:{address}") } else { address });
    }
    if let Some(path) = &theirs.unix_socket {
        listen = vec![format!("unix:{path}")];
    } else if listen.is_empty() {
        notes.push(
            "without -l memcached listens at all addresses, and this at 127.0.0.1: say -l 0.0.0.0 for all"
                .to_owned(),
        );
        listen.push("127.0.0.1".to_owned());
    }
    Ok(Translated {
        listen,
        port,
        // A socket is connected to by those who may write it.
        unix_mode: u32::from_str_radix(&theirs.unix_mask, 8)
            .ok()
            .filter(|mode| *mode <= 0o777)
            .ok_or_else(|| refused("-a: write permissions in octal, such as 700"))?,
        workers: theirs.threads,
        memory_limit: format!("{}m", theirs.memory_limit),
        max_item_size: theirs.max_item_size,
        connections: theirs.conn_limit,
        auth_file: theirs.auth_file,
        items: theirs.memory_file,
        tls_cert,
        tls_key,
        tls_client_ca,
        dump: !theirs.disable_dumping,
        watch: !theirs.disable_watch,
        notes,
    })
}

/// The certificate, its key and the authorities of clients, of `-Z` and its `-o ssl_...`.
fn tls_files(theirs: &Theirs) -> Result<[Option<String>; 3]> {
    let [mut certificate, mut key, mut authorities] = [const { None }; 3];
    let mut verify = "0";
    for word in theirs.extended.iter().flat_map(|words| words.split(',')) {
        let Some(named) = word.strip_prefix("ssl_") else { continue };
        let (name, value) = named.split_once('=').unwrap_or((named, ""));
        match name {
            "chain_cert" => certificate = Some(value.to_owned()),
            "key" => key = Some(value.to_owned()),
            "ca_cert" => authorities = Some(value.to_owned()),
            "verify_mode" => verify = value,
            // 1.0, 1.1 and 1.2; no older one than that is spoken.
            "min_version" if ["0", "1", "2"].contains(&value) => {}
            _ => return Err(refused(&format!("-o {word}: not served here"))),
        }
    }
    if !theirs.enable_ssl {
        return Ok([const { None }; 3]);
    }
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Err(refused("-Z: it needs -o ssl_chain_cert=FILE,ssl_key=FILE"));
    };
    let authorities = match verify {
        "0" => None,
        "2" if authorities.is_some() => authorities,
        "2" => return Err(refused("-o ssl_verify_mode=2: it needs ssl_ca_cert=FILE")),
        other => {
            return Err(refused(&format!(
                "-o ssl_verify_mode={other}: clients show a certificate (2) or none (0)"
            )));
        }
    };
    Ok([Some(certificate), Some(key), authorities])
}

/// The reason why the store must not run with these, if there is one.
fn ruled_out(theirs: &Theirs) -> Option<String> {
    let extended = theirs.extended.iter().flat_map(|words| words.split(','));
    let of_other_servers =
        extended.filter(|word| ["ext_path", "proxy_config"].iter().any(|name| word.starts_with(name)));
    let reasons = [
        (theirs.enable_sasl, "-S: clients would not have to authenticate"),
        (theirs.disable_flush_all, "-F: any client could empty it with flush_all"),
        (theirs.disable_evictions, "-M: a full store evicts; it does not answer with an error"),
        (theirs.udp_port != 0, "-U: UDP is not served"),
        (theirs.protocol == "binary", "-B binary: the text and meta protocols are served alone"),
    ];
    let first = reasons.iter().find(|(is, _)| *is).map(|(_, reason)| (*reason).to_owned());
    first.or_else(|| of_other_servers.map(|word| format!("-o {word}: not served here")).next())
}

fn without_effect(theirs: &Theirs) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |is: bool, told: String| notes.extend(is.then_some(told));
    let user = theirs.user.as_deref().unwrap_or_default();
    note(theirs.user.is_some(), format!("-u {user} is not taken: start it as that user (User= of a unit)"));
    note(theirs.daemon, "-d is not taken: it stays in the foreground, as systemd wants it".to_owned());
    let words = theirs.of_debian.join(" ");
    note(!words.is_empty(), format!("{words} is not taken: it writes to standard error"));
    note(theirs.pidfile.is_some(), "-P is not taken: no file of the process's number is written".to_owned());
    let items = theirs.memory_file.as_deref().unwrap_or_default();
    note(
        theirs.memory_file.is_some(),
        format!(
            "-e: the items are written into {items} at the end, beside their memory, and read from it at the \
             start"
        ),
    );
    note(theirs.lock_memory, "-k is not taken: say MemorySwapMax=0 in the unit".to_owned());
    note(theirs.enable_shutdown, "-A is not taken: end it by a signal".to_owned());
    let named = [
        (theirs.disable_cas, "-C"),
        (theirs.enable_largepages, "-L"),
        (theirs.enable_coredumps, "-r"),
        (theirs.verbose > 0, "-v"),
        (theirs.slab_growth_factor.is_some(), "-f"),
        (theirs.slab_min_size.is_some(), "-n"),
        (theirs.delimiter.is_some(), "-D"),
        (theirs.max_reqs_per_event.is_some(), "-R"),
        (theirs.listen_backlog.is_some(), "-b"),
        (theirs.napi_ids.is_some(), "-N"),
    ];
    let mut names: Vec<String> =
        named.iter().filter(|(is, _)| *is).map(|(_, name)| (*name).to_owned()).collect();
    let is_taken = |word: &&str| theirs.enable_ssl && word.starts_with("ssl_");
    for words in &theirs.extended {
        let left: Vec<&str> = words.split(',').filter(|word| !is_taken(word)).collect();
        if !left.is_empty() {
            names.push(format!("-o {}", left.join(",")));
        }
    }
    let steer = if names.len() == 1 { "steers a part" } else { "steer parts" };
    note(!names.is_empty(), format!("{} {steer} that this store has not", names.join(", ")));
    notes
}

/// `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT`, or a name in its place, after `proto[...]:` and `tag[...]:`.
fn address_of(place: &str) -> Result<(String, Option<u16>)> {
    let mut rest = place;
    while let Some((word, after)) =
        rest.split_once(':').filter(|(word, _)| word.contains('[') && !word.starts_with('['))
    {
        if word == "proto[binary]" {
            return Err(refused("proto[binary]: the text and meta protocols are served alone"));
        }
        rest = after;
    }
    if let Ok(address) = rest.parse::<std::net::IpAddr>() {
        return Ok((address.to_string(), None));
    }
    if let Ok(address) = rest.parse::<std::net::SocketAddr>() {
        return Ok((address.ip().to_string(), Some(address.port())));
    }
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, port.parse().ok().map(Some)),
        None => (rest, Some(None)),
    };
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    port.filter(|_| !name.is_empty() && is_name(name)).map(|port| (name.to_owned(), port)).ok_or_else(|| {
        refused(&format!("-l {place}: no address\nhint: write one, such as 127.0.0.1 or [::1]:11211"))
    })
}

fn refused(reason: &str) -> anyhow::Error {
    usage(format!("--memcached-args: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_and_the_file_of_debian_are_taken() {
        let found =
            translate("-m 512 -t 4 -c 2000 -p 11311 -l 127.0.0.1,::1 -I 2m -U 0 -u memcache -vv").unwrap();
        assert_eq!((found.listen.join(" "), found.port), ("127.0.0.1 ::1".to_owned(), 11311));
        assert_eq!((found.workers, found.connections), (Some(4), 2000));
        assert_eq!((&*found.memory_limit, &*found.max_item_size), ("512m", "2m"));
        let [user, steers] = &found.notes[..] else { panic!("{:?}", found.notes) };
        assert!(user.contains("User=") && steers.starts_with("-v steers a part"), "{user} {steers}");
        let file =
            "# it's $1 \"file\"\n-d\nlogfile /l/m.log\n-m 64\n-p 11211  # the port\n-l 10.0.0.7:11212\n";
        let found = translate(file).unwrap();
        assert_eq!((found.listen.join(" "), found.port), ("10.0.0.7".to_owned(), 11212));
        assert_eq!((&*found.memory_limit, found.connections, found.workers), ("64m", 1024, None));
        assert!(found.notes.iter().any(|note| note.starts_with("logfile /l/m.log is not taken")));
        let found = translate("-m64 --port=1 --conn-limit=7 -o modern,hashpower=20").unwrap();
        assert_eq!((found.port, found.connections, &*found.memory_limit), (1, 7, "64m"));
        assert!(found.notes.iter().any(|note| note.contains("-o modern,hashpower=20")));
        assert!(found.notes.iter().any(|note| note.contains("127.0.0.1: say -l 0.0.0.0")));
        let found =
            translate("-l proto[ascii]:tag[shop]:127.0.0.1:11400 -s /run/mc.sock -a 0770 -Y /etc/auth")
                .unwrap();
        assert_eq!((found.auth_file.as_deref(), found.unix_mode), (Some("/etc/auth"), 0o770));
        assert_eq!(found.listen, ["unix:/run/mc.sock"]);
        let found = translate("-e /var/lib/roost/items").unwrap();
        assert_eq!(found.items.as_deref(), Some("/var/lib/roost/items"));
        let found = translate("-l localhost:11411 -X").unwrap();
        assert_eq!((&*found.listen, found.port), (&["localhost".to_owned()][..], 11411));
        assert_eq!((found.dump, found.watch), (false, true));
        let found = translate("-W").unwrap();
        assert_eq!((found.dump, found.watch), (true, false));
    }

    #[test]
    fn tls_is_taken_with_its_files() {
        let files = |text: &str| {
            let found = translate(text).unwrap();
            assert!(found.notes.iter().all(|note| !note.contains("ssl_key")), "{:?}", found.notes);
            (
                [found.tls_cert, found.tls_key, found.tls_client_ca].map(Option::unwrap_or_default),
                found.listen,
            )
        };
        let (found, listen) = files(
            "-Z -o modern,ssl_chain_cert=/c.pem,ssl_key=/k.pem,ssl_verify_mode=2,ssl_ca_cert=/a.pem \
             -l 10.0.0.7,notls:127.0.0.1",
        );
        assert_eq!(found, ["/c.pem", "/k.pem", "/a.pem"]);
        assert_eq!(listen, ["10.0.0.7", "notls:127.0.0.1"]);
        let (found, _) = files("-Z -o ssl_chain_cert=/c -o ssl_key=/k,ssl_min_version=2 -l ::1");
        assert_eq!(found, ["/c", "/k", ""]);
        let (found, listen) = files("-l notls:127.0.0.1");
        assert_eq!((found, &*listen), (["", "", ""].map(str::to_owned), &["notls:127.0.0.1".to_owned()][..]));
    }

    #[test]
    fn what_would_open_the_store_or_lose_items_is_refused() {
        for (text, told) in [
            ("-vS", "-S:"),
            ("-Z -o ssl_key=/k", "ssl_chain_cert=FILE"),
            ("-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_ciphers=x", "ssl_ciphers=x: not served"),
            ("-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=1", "(2) or none (0)"),
            ("-Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=2", "ssl_ca_cert=FILE"),
            ("-F", "flush_all"),
            ("-M", "evicts"),
            ("-U 11211", "UDP"),
            ("-B binary", "text and meta"),
            ("-l proto[binary]:127.0.0.1:1", "text and meta"),
            ("-s /run/x -a 9", "in octal"),
            ("-o ext_path=/d:1G", "not served"),
            ("-l :11211", "no address"),
            ("-l a:b:c", "no address"),
            ("-l 127.0.0.1:1,127.0.0.1:2", "one port"),
            ("-q 7", "memcached 1.6.45"),
            ("-p many", "many"),
            ("-p 0", "nowhere"),
            ("-c 0", "'0'"),
            ("-m 64 memory", "memory: options"),
            ("-P '$PID'", "quotes"),
        ] {
            let error = translate(text).unwrap_err().to_string();
            assert!(error.contains("--memcached-args: ") && error.contains(told), "{text}: {error}");
        }
    }
}
