//! Lines and what they say.

use std::io::Cursor;

use serde_json::json;

use super::super::lines::{Line, LineReader, LineThread, Lines, NextLine};
use super::{completion, line, result, run};

fn read_all(lines: &mut impl Lines) -> Vec<(u64, Option<String>)> {
    let mut all = Vec::new();
    loop {
        match lines.next_line(true).unwrap() {
            NextLine::Line(Line { number, bytes, .. }) => {
                all.push((number, bytes.map(|bytes| String::from_utf8(bytes).unwrap())));
            }
            NextLine::NotYet => {}
            NextLine::End => return all,
        }
    }
}

#[test]
fn lines_are_numbered_and_the_last_needs_no_end() {
    let text = "one\n\ntwo\r\nthree";
    let expected = ["one", "", "two\r", "three"];
    let expected: Vec<_> = (1..)
        .zip(expected.map(|line| Some(line.to_owned())))
        .collect();
    assert_eq!(read_all(&mut LineReader::new(Cursor::new(text))), expected);
    let mut thread = LineThread::start(Cursor::new(text)).unwrap();
    assert_eq!(read_all(&mut thread), expected);
}

#[test]
fn a_line_that_is_too_long_is_passed_over_without_being_kept() {
    let text = "ab\nabc\nabcdefghijklmnop\nabc\n";
    // A reader with a small buffer, so that the long line comes in pieces.
    let reader = std::io::BufReader::with_capacity(2, Cursor::new(text));
    let mut lines = LineReader::with_limit(reader, 3);
    let of = |text: &str| Some(text.to_owned());
    assert_eq!(
        read_all(&mut lines),
        [(1, of("ab")), (2, of("abc")), (3, None), (4, of("abc"))]
    );
}

#[test]
fn bad_lines_get_errors_that_say_what_is_wrong_and_harm_nothing() {
    let alone = run(&completion("good", 5)).1;
    let bad_bodies = [
        (json!({"prompt": "x", "temperature": "hot"}), "temperature"),
        (json!({"prompt": "x", "top_p": 1.5}), "top_p"),
        (
            json!({"prompt": "x", "logit_bias": {"99999": 1}}),
            "logit_bias",
        ),
        (
            json!({"prompt": "x", "logit_bias": {"-1": 1}}),
            "logit_bias[\"-1\"]",
        ),
        (
            json!({"prompt": "x", "stop_token_ids": [400], "min_tokens": 2}),
            "stop_token_ids",
        ),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": ["a", "b"]}), "prompt"),
        (json!({}), "prompt"),
        (json!({"prompt": "x", "stream": true}), "stream"),
        (json!({"prompt": "x", "max_tokens": 0}), "max_tokens"),
        (json!({"prompt": "x", "n": 9}), "n"),
        (json!({"prompt": vec![3; 200]}), "prompt"),
    ];
    let mut input = String::new();
    for (index, (body, _)) in bad_bodies.iter().enumerate() {
        input += &line(&format!("bad-{index}"), body);
        if index == 6 {
            input += &completion("good", 5);
        }
    }
    let (summary, out) = run(&input);
    assert_eq!(
        (summary.num_ok, summary.num_errors),
        (1, bad_bodies.len() as u64)
    );
    assert_eq!(summary.exit_code(), 2);
    for (index, (_, param)) in bad_bodies.iter().enumerate() {
        let response = &result(&out, &format!("bad-{index}"))["response"];
        assert_eq!(response["status_code"], 400);
        let error = &response["body"]["error"];
        assert_eq!(error["param"], *param, "{error}");
        assert_eq!(error["type"], "invalid_request_error");
        let message = error["message"].as_str().unwrap();
        assert!(
            !message.is_empty() && error.get("code").is_some(),
            "{error}"
        );
    }
    let choices = |line: &serde_json::Value| line["response"]["body"]["choices"].clone();
    assert_eq!(choices(result(&out, "good")), choices(&alone[0]));
}

#[test]
fn lines_that_cannot_be_answered_by_name_are_answered_by_number() {
    let input = [
        "not json\n",
        "\n",
        "[1]\n",
        "{\"custom_id\": 7}\n",
        "{\"url\": \"/v1/completions\"}\n",
        &completion("twice", 2),
        &completion("twice", 3),
    ]
    .concat();
    let (summary, out) = run(&input);
    assert_eq!((summary.num_ok, summary.num_errors), (1, 5));
    assert_eq!(
        result(&out, "twice")["response"]["body"]["usage"]["completion_tokens"],
        2
    );
    for (number, says) in [
        (1, "not JSON"),
        (3, "object"),
        (4, "custom_id"),
        (5, "custom_id"),
        (7, "\"twice\""),
    ] {
        let id = format!("batch_req_{number}");
        let error = out.iter().find(|line| line["id"] == id.as_str()).unwrap();
        assert!(error["custom_id"].is_null());
        let message = error["response"]["body"]["error"]["message"]
            .as_str()
            .unwrap();
        assert!(
            message.contains(&format!("line {number}")) && message.contains(says),
            "{message}"
        );
    }
}

#[test]
fn method_and_url_are_checked() {
    let input = [
        json!({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}}),
        json!({"custom_id": "b", "method": "POST", "url": "/v1/embeddings", "body": {}}),
        json!({"custom_id": "c", "method": "POST", "url": "/v1/completions"}),
    ]
    .map(|line| format!("{line}\n"))
    .concat();
    let (_, out) = run(&input);
    for (id, param) in [("a", "method"), ("b", "url"), ("c", "body")] {
        assert_eq!(
            result(&out, id)["response"]["body"]["error"]["param"],
            param
        );
    }
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_line() {
    let (summary, _) = run(&format!("\u{feff}{}", completion("a", 1)));
    assert_eq!((summary.num_ok, summary.exit_code()), (1, 0));
}
