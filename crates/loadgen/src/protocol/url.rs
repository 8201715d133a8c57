//! The address of an HTTP server and the request target.

use crate::{Error, Target};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `HOST:PORT`, as written.
    authority: String,
    /// From the first slash on, with the query.
    path: String,
}

impl Url {
    pub fn target(&self) -> Target {
        let has_port = self.authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = if has_port { "" } else { ":80" };
        Target::Tcp(format!("{}{port}", self.authority))
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The target in the request line.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::Url(text.to_owned());
        // A character that a request line cannot carry would end it; the words of a query are
        // escaped on their way in.
        let rest =
            text.strip_prefix("http://").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_graphic()));
        let rest = rest.ok_or_else(refused)?;
        let rest = rest.split('#').next().unwrap_or_default();
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let url = Self { authority: authority.to_owned(), path };
        let names_a_server = !authority.contains('@') && url.target().to_string().parse::<Target>().is_ok();
        if names_a_server { Ok(url) } else { Err(refused()) }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_server_and_path() {
        for (text, target, path) in [
            ("http://127.0.0.1:9200", "127.0.0.1:9200", "/"),
            ("http://localhost/a/_search?q={words}#top", "localhost:80", "/a/_search?q={words}"),
            ("http://[::1]/x", "[::1]:80", "/x"),
            ("http://[::1]:8983?q=1", "[::1]:8983", "/?q=1"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.target().to_string().as_str(), url.path()), (target, path));
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_fix() {
        for text in [
            "",
            "localhost:80/",
            "https://h/",
            "http://",
            "http:///x",
            "http://h:0/",
            "http://u@h/",
            "http://h/a b",
            "http://h/\r\nX: y",
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(
                error.is_usage() && error.to_string().contains("http://127.0.0.1:9200/"),
                "{text}: {error}"
            );
        }
    }
}
