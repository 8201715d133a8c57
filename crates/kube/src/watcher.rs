//! A thread that keeps a reading of a collection up to date.
//!
//! While the server is away the last reading stands. A broken watch goes on from its version; one
//! whose version is gone lists anew.

use crate::api::{ApiError, Client, News};
use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use std::sync::mpsc::Sender;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Starts a thread that reads a collection until the receiver is gone.
pub fn watch<T, M>(
    client: Client,
    collection: String,
    sender: Sender<M>,
    message: fn(News<T>) -> M,
) -> Result<()>
where
    T: DeserializeOwned + 'static,
    M: Send + 'static,
{
    let reading = move || read(&client, &collection, &sender, message);
    std::thread::Builder::new().name("watch".to_owned()).spawn(reading).context("starting a thread")?;
    Ok(())
}

fn read<T: DeserializeOwned, M>(
    client: &Client,
    collection: &str,
    sender: &Sender<M>,
    message: fn(News<T>) -> M,
) {
    let mut pause = SHORTEST;
    let mut version: Option<String> = None;
    loop {
        let known = match version.take() {
            Some(version) => Ok(version),
            None => client.list(collection).and_then(|list| {
                let version = list.metadata.resource_version;
                sender.send(message(News::All(list.items))).map_err(|_| ended())?;
                Ok(version)
            }),
        };
        let result = known.and_then(|mut known| {
            let mut is_heard = true;
            let result = client.watch(collection, &mut known, |news| {
                is_heard &= sender.send(message(news)).is_ok();
            });
            if !matches!(result, Err(ApiError::Gone)) {
                version = Some(known);
            }
            if is_heard { result } else { Err(ended()) }
        });
        match result {
            Ok(()) => pause = SHORTEST,
            Err(ApiError::Gone) => {}
            Err(error) => {
                if sender.send(message(News::Away(error.to_string()))).is_err() {
                    return;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

fn ended() -> ApiError {
    ApiError::Failed { what: "telling".to_owned(), cause: "no receiver".to_owned() }
}
