//! The queue answers every ticket, remembers what it compiled, and ends when it is dropped.

use std::time::Duration;

use forerun_engine::TokenId;
use serde_json::json;

use super::super::queue::{Cache, CompileQueue};
use super::super::{GrammarCompileError, GrammarSource};
use super::{VOCAB_SIZE, allowed, compiler};

/// Far more than any of this takes.
const PATIENCE: Duration = Duration::from_mins(1);

fn choice(text: &str) -> GrammarSource {
    GrammarSource::Choice(vec![text.to_owned()])
}

#[test]
fn every_ticket_is_answered_once_and_in_order() {
    let queue = CompileQueue::start(compiler(), 2).unwrap();
    assert!(queue.try_finished().is_none());
    assert!(queue.wait_finished(Duration::ZERO).is_none());
    for ticket in 0..20 {
        let source = match ticket % 4 {
            0 => choice("a"),
            1 => GrammarSource::Regex("(".to_owned()),
            2 => GrammarSource::Choice(Vec::new()),
            _ => GrammarSource::JsonObject,
        };
        queue.submit(ticket, source);
    }
    for expected in 0..20 {
        let (ticket, grammar) = queue.wait_finished(PATIENCE).unwrap();
        assert_eq!(ticket, expected);
        match (ticket % 4, grammar) {
            (0 | 3, Ok(mut grammar)) => assert!(!allowed(&mut *grammar, VOCAB_SIZE).is_empty()),
            (1, Err(GrammarCompileError::Refused { .. }))
            | (2, Err(GrammarCompileError::NoChoice)) => {}
            (_, other) => panic!("ticket {ticket}: {other:?}"),
        }
    }
    assert!(queue.try_finished().is_none());
}

#[test]
fn grammars_of_one_source_are_separate() {
    let mut cache = Cache::new(compiler(), 2);
    let mut first = cache.compile(&choice("ab")).unwrap();
    first.accept(TokenId(u32::from(b'a'))).unwrap();
    let mut second = cache.compile(&choice("ab")).unwrap();
    second.accept(TokenId(u32::from(b'x'))).unwrap_err();
    let mut third = cache.compile(&choice("ab")).unwrap();
    assert!(allowed(&mut *third, VOCAB_SIZE).contains(&TokenId(u32::from(b'a'))));
    first.accept(TokenId(u32::from(b'b'))).unwrap();
    assert!(first.is_finished());
}

#[test]
fn the_sources_asked_for_last_are_remembered_with_their_failures() {
    let mut cache = Cache::new(compiler(), 2);
    cache.compile(&choice("a")).unwrap();
    cache
        .compile(&GrammarSource::Regex("(".to_owned()))
        .unwrap_err();
    cache.compile(&choice("a")).unwrap();
    cache.compile(&choice("c")).unwrap();
    let of = |text: &str| format!("start: CHOICE\nCHOICE: \"{text}\"");
    assert_eq!(cache.sources(), [of("a"), of("c")]);
    cache
        .compile(&GrammarSource::Regex("(".to_owned()))
        .unwrap_err();
    assert_eq!(cache.sources(), [of("c"), "start: /(/".to_owned()]);

    let mut cache = Cache::new(compiler(), 0);
    cache.compile(&choice("a")).unwrap();
    assert!(cache.sources().is_empty());
}

#[test]
fn schemas_that_differ_in_the_order_of_properties_are_not_confused() {
    let mut cache = Cache::new(compiler(), 4);
    for text in [
        r#"{"properties":{"a":{},"b":{}}}"#,
        r#"{"properties":{"b":{},"a":{}}}"#,
    ] {
        let schema = serde_json::from_str(text).unwrap();
        cache.compile(&GrammarSource::JsonSchema(schema)).unwrap();
        assert!(cache.sources().last().is_some_and(|source| *source == text));
    }
    cache.compile(&GrammarSource::JsonObject).unwrap();
    let schema = GrammarSource::JsonSchema(json!({"type": "object"}));
    cache.compile(&schema).unwrap();
    assert_eq!(cache.sources().len(), 3);
}

#[test]
fn dropping_the_queue_ends_its_thread_with_work_waiting() {
    let queue = CompileQueue::start(compiler(), 1).unwrap();
    for ticket in 0..10_000 {
        queue.submit(ticket, choice(&ticket.to_string()));
    }
    // Joins the thread: a worker that went on would take seconds, one that waits would hang.
    drop(queue);
}
