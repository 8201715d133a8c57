//! Interactions: how they are told apart, how they end, and that they leave no trace.

use super::super::QuiescenceCommand::{Freeze, Thaw};
use super::super::*;
use super::*;

#[test]
fn an_interaction_without_end_ends() {
    let mut phone = Phone::new(Params::default());
    phone.event(0, trigger(main_thread()));
    assert_eq!(phone.event(9_990, block(main_thread(), NETWORK)).len(), 2);
    assert_eq!(phone.0.poll_timeout(), Some(at(10_000)));
    assert_eq!(phone.timeout(10_000), [Thaw(UPDATER), Thaw(INDEXER)]);
    assert_eq!(phone.0.poll_timeout(), None);
}

#[test]
fn more_interactions_than_can_be_told_apart_are_a_loss() {
    let mut phone = Phone::new(Params::default());
    for interaction in 0..65 {
        assert_eq!(phone.0.record().losses, 0);
        phone.event(0, Event::Trigger { task: main_thread(), interaction: InteractionId(interaction) });
    }
    assert_eq!(phone.0.record().losses, 1);
}

#[test]
fn interactions_that_share_a_pipe_are_told_apart() {
    let mut phone = Phone::new(Params::default());
    let (pipe, other, reader) = (ChannelId::Pipe(7), task(11, BROWSER), task(20, UPDATER));
    phone.event(0, trigger(main_thread()));
    phone.event(0, Event::Trigger { task: other, interaction: InteractionId(2) });
    phone.event(1, Event::Send { task: main_thread(), channel: pipe });
    phone.event(1, Event::Send { task: other, channel: pipe });
    phone.event(2, Event::Receive { task: reader, channel: pipe });
    phone.event(3, block(reader, NETWORK));
    phone.event(3, block(main_thread(), NETWORK));
    phone.event(4, Event::Response { interaction: InteractionId(2) });
    // The first is under way, and the reader works for it too.
    assert_eq!(phone.event(5, block(main_thread(), NETWORK)), []);
    assert_eq!(phone.event(6, Event::Exit { task: reader.id }), [Freeze(UPDATER)]);
}

#[test]
fn an_interaction_leaves_no_trace() {
    let mut phone = Phone::new(Params::default());
    let (pipe, reader) = (ChannelId::Pipe(7), task(20, UPDATER));
    phone.event(0, trigger(main_thread()));
    phone.event(1, Event::Send { task: main_thread(), channel: pipe });
    phone.event(2, Event::Response { interaction: InteractionId(1) });
    // The next one gets the same bit.
    phone.event(3, Event::Trigger { task: main_thread(), interaction: InteractionId(2) });
    phone.event(4, Event::Receive { task: reader, channel: pipe });
    assert_eq!(phone.event(5, block(main_thread(), NETWORK)), [Freeze(UPDATER), Freeze(INDEXER)]);
}

#[test]
fn what_nobody_read_does_not_outlive_its_interaction() {
    let mut phone = Phone::new(Params::default());
    let (pipe, other) = (ChannelId::Pipe(7), task(11, BROWSER));
    phone.event(0, trigger(main_thread()));
    phone.event(0, Event::Trigger { task: other, interaction: InteractionId(2) });
    phone.event(1, Event::Send { task: main_thread(), channel: pipe });
    phone.event(1, Event::Receive { task: main_thread(), channel: pipe });
    phone.event(2, Event::Send { task: other, channel: pipe });
    phone.event(3, block(main_thread(), NETWORK));
    assert_eq!(phone.event(4, block(other, NETWORK)), []);
    assert_eq!(phone.event(5, Event::Response { interaction: InteractionId(2) }).len(), 2);
}

#[test]
fn hints_make_room_for_what_matters_and_no_room_is_a_loss() {
    let mut phone = Phone::new(Params { max_channels: 1, ..Params::default() });
    let pipes = [7, 8, 9].map(ChannelId::Pipe);
    let (writer, reader) = (task(20, UPDATER), task(30, INDEXER));
    phone.event(0, Event::Send { task: writer, channel: pipes[0] });
    phone.event(0, trigger(main_thread()));
    phone.event(1, Event::Send { task: main_thread(), channel: pipes[1] });
    // The hint has gone, and a new one finds no room.
    phone.event(2, Event::Receive { task: main_thread(), channel: pipes[0] });
    phone.event(2, Event::Send { task: writer, channel: pipes[2] });
    assert_eq!((phone.0.record().left_alone, phone.0.record().losses), (0, 0));
    phone.event(3, Event::Receive { task: reader, channel: pipes[1] });
    phone.event(3, block(reader, NETWORK));
    assert_eq!(phone.event(3, block(main_thread(), NETWORK)), [Freeze(UPDATER)]);
    assert_eq!(phone.event(4, Event::Send { task: main_thread(), channel: pipes[0] }), [Thaw(UPDATER)]);
    assert_eq!(phone.0.record().losses, 1);
}
