//! Bodies of requests and answers.

use forerun_engine::{BeamParams, LogprobsKind, LogprobsParams, OutputParams, TokenId};
use forerun_models::grammar::GrammarSource;
use serde_json::{Value, json};

use super::{Answer, ApiError, ApiRequest, Defaults, Endpoint, EngineRequest};
use crate::fakes::{self, FakeCodec};
use crate::speculation::Settings;

fn parse(endpoint: Endpoint, body: Value) -> Result<EngineRequest, ApiError> {
    let request = ApiRequest::parse(endpoint, body, Defaults::default())?;
    request.into_engine(&FakeCodec, 99, &Settings::default())
}

fn completion(body: Value) -> EngineRequest {
    parse(Endpoint::Completions, body).unwrap()
}

fn answer(endpoint: Endpoint, body: Value) -> Value {
    let EngineRequest {
        request,
        grammar,
        head,
    } = parse(endpoint, body).unwrap();
    let mut driver = fakes::driver();
    driver.add(request, grammar).unwrap();
    let outcome = loop {
        if let Some((_, outcome)) = driver.step(|_| {}).pop() {
            break outcome;
        }
    };
    let answer = Answer {
        codec: &FakeCodec,
        model: "fake",
        name: "n",
        created: 5,
    };
    let body = answer.body(head, &outcome).unwrap();
    // Through text, as it is written.
    serde_json::from_str(&serde_json::to_string(&body).unwrap()).unwrap()
}

#[test]
fn defaults_are_those_of_openai() {
    let request = completion(json!({"prompt": "ab"})).request;
    assert_eq!(
        (request.sampling.temperature, request.sampling.seed),
        (1.0, 99)
    );
    assert_eq!(request.stop.max_tokens, Some(16));
    assert_eq!(request.output, OutputParams::default());
    let body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let chat = parse(Endpoint::Chat, body.clone()).unwrap().request;
    assert_eq!(chat.stop.max_tokens, None);
    let defaults = Defaults {
        max_tokens: Some(7),
    };
    let request = ApiRequest::parse(Endpoint::Chat, body, defaults).unwrap();
    let request = request
        .into_engine(&FakeCodec, 0, &Settings::default())
        .unwrap()
        .request;
    assert_eq!(request.stop.max_tokens, Some(7));
}

#[test]
fn every_field_arrives_and_null_is_absent() {
    let body = json!({
        "prompt": [3, 4], "max_tokens": 20, "max_completion_tokens": 21, "min_tokens": 2,
        "stop": ["x", "yz"], "stop_token_ids": [9], "ignore_eos": true, "seed": -1,
        "temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8,
        "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": -0.3,
        "logit_bias": {"5": -100, "6": 2.5}, "n": 2, "best_of": 3, "logprobs": 4,
        "prompt_logprobs": 1, "cache_salt": "tenant", "priority": -3, "user": "u",
        "suffix": null, "model": "m",
    });
    let EngineRequest {
        request, grammar, ..
    } = completion(body);
    assert!(grammar.is_none());
    assert_eq!(request.prompt, [TokenId(3), TokenId(4)]);
    let stop = &request.stop;
    assert_eq!(
        (stop.max_tokens, stop.min_tokens, stop.ignore_eos),
        (Some(21), 2, true)
    );
    assert_eq!(stop.stop_strings, [b"x".to_vec(), b"yz".to_vec()]);
    assert_eq!(stop.stop_token_ids, [TokenId(9)]);
    let sampling = &request.sampling;
    assert_eq!((sampling.seed, sampling.top_k), (u64::MAX, 40));
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.min_p),
        (0.5, 0.9, 0.1)
    );
    assert_eq!(
        (sampling.typical_p, sampling.repetition_penalty),
        (0.8, 1.1)
    );
    assert_eq!(
        (sampling.presence_penalty, sampling.frequency_penalty),
        (0.2, -0.3)
    );
    assert_eq!(
        sampling.logit_bias,
        [(TokenId(5), -100.0), (TokenId(6), 2.5)]
    );
    let expected = OutputParams {
        num_samples: 2,
        best_of: Some(3),
        beam: None,
        logprobs: Some(LogprobsParams {
            num_top: 4,
            kind: LogprobsKind::Raw,
        }),
        prompt_logprobs: Some(1),
    };
    assert_eq!(request.output, expected);
    assert_eq!(request.cache_keys.tenant.as_deref(), Some("tenant"));
    assert_eq!(request.priority, -3);
}

#[test]
fn off_is_written_in_several_ways() {
    for (top_k, expected) in [(-1_i64, 0), (0, 0), (64, 64), (9_999_999_999, u32::MAX)] {
        let request = completion(json!({"prompt": "x", "top_k": top_k})).request;
        assert_eq!(request.sampling.top_k, expected);
    }
}

#[test]
fn beams_take_their_width_from_the_key_that_gives_it() {
    let beam = |body: Value| completion(body).request.output.beam.unwrap();
    let of = |width| BeamParams {
        width,
        length_penalty: 1.0,
        early_stopping: false,
    };
    let on = json!({"prompt": "x", "use_beam_search": true, "n": 2});
    assert_eq!(beam(on.clone()), of(2));
    let mut wide = on.clone();
    wide["best_of"] = json!(3);
    assert_eq!(beam(wide.clone()), of(3));
    wide["beam_width"] = json!(4);
    assert_eq!(beam(wide), of(4));
}

#[test]
fn prompts_come_as_text_ids_or_a_list_of_one_and_messages_as_text_or_parts() {
    let ids = completion(json!({"prompt": "ab"})).request.prompt;
    assert_eq!(completion(json!({"prompt": ["ab"]})).request.prompt, ids);
    let numbers: Vec<u32> = ids.iter().map(|id| id.0).collect();
    assert_eq!(completion(json!({"prompt": [numbers]})).request.prompt, ids);
    let chat = |content: Value| {
        let body = json!({"messages": [{"role": "user", "content": content}]});
        parse(Endpoint::Chat, body).map(|request| request.request.prompt)
    };
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(chat(parts).unwrap(), chat(json!("ab")).unwrap());
    let image = json!([{"type": "image_url", "image_url": {}}]);
    let error = chat(image).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("messages[0].content[0].type"));
    let error = parse(Endpoint::Chat, json!({"messages": []})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("messages"));
}

#[test]
fn forms_of_text_are_read_from_every_key_and_only_one_may_be_given() {
    let schema = json!({"type": "integer"});
    let cases = [
        (json!({"response_format": {"type": "text"}}), None),
        (
            json!({"response_format": {"type": "json_object"}}),
            Some(GrammarSource::JsonObject),
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}),
            Some(GrammarSource::JsonSchema(schema.clone())),
        ),
        (
            json!({"guided_json": schema}),
            Some(GrammarSource::JsonSchema(schema.clone())),
        ),
        (
            json!({"guided_json": schema.to_string()}),
            Some(GrammarSource::JsonSchema(schema.clone())),
        ),
        (
            json!({"guided_regex": "a+"}),
            Some(GrammarSource::Regex("a+".to_owned())),
        ),
        (
            json!({"guided_grammar": "start: \"a\""}),
            Some(GrammarSource::Lark("start: \"a\"".to_owned())),
        ),
        (
            json!({"structured_outputs": {"choice": ["a", "b"]}}),
            Some(GrammarSource::Choice(vec!["a".to_owned(), "b".to_owned()])),
        ),
        (
            json!({"structured_outputs": {"json_object": true}}),
            Some(GrammarSource::JsonObject),
        ),
    ];
    for (mut body, expected) in cases {
        body["prompt"] = json!("x");
        assert_eq!(completion(body).grammar, expected);
    }
    let wrong = [
        (
            json!({"prompt": "x", "guided_regex": "a", "guided_choice": ["a"]}),
            "guided_choice",
        ),
        (
            json!({"prompt": "x", "response_format": {"type": "xml"}}),
            "response_format.type",
        ),
        (json!({"prompt": "x", "guided_json": "{"}), "guided_json"),
        (
            json!({"prompt": "x", "structured_outputs": {"regex": 5}}),
            "structured_outputs.regex",
        ),
        (
            json!({"prompt": "x", "structured_outputs": {"structural_tag": {}}}),
            "structured_outputs.structural_tag",
        ),
    ];
    for (body, param) in wrong {
        let error = parse(Endpoint::Completions, body).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param));
    }
}

#[test]
fn unknown_keys_are_handed_back_and_known_idle_ones_are_not() {
    let body = json!({"prompt": "x", "user": "u", "bset_of": 2, "model": "m"});
    let request = ApiRequest::parse(Endpoint::Completions, body, Defaults::default()).unwrap();
    assert_eq!(request.unknown_keys(), ["bset_of"]);
}

#[test]
fn a_salt_is_a_name_and_not_a_text() {
    let with = |salt: String| {
        parse(
            Endpoint::Completions,
            json!({"prompt": "x", "cache_salt": salt}),
        )
    };
    assert!(with("s".repeat(512)).is_ok());
    let message = format!("{:?}", with("s".repeat(513)).err());
    assert!(message.contains("513 bytes, may have 512"), "{message}");
    assert!(with(String::new()).is_err());
}

#[test]
fn errors_show_the_value_that_was_found_but_not_all_of_it() {
    let body = json!({"prompt": "x", "temperature": "é".repeat(1000)});
    let error = parse(Endpoint::Completions, body).unwrap_err();
    assert!(
        error.message.starts_with("temperature: expected a number"),
        "{}",
        error.message
    );
    assert!(error.message.len() < 250);
}

#[test]
fn a_completion_has_the_shape_of_openai() {
    let body = json!({"prompt": "ab", "max_tokens": 4, "temperature": 0, "logprobs": 3});
    let body = answer(Endpoint::Completions, body);
    assert_eq!(
        (&body["id"], &body["object"]),
        (&json!("cmpl-n"), &json!("text_completion"))
    );
    assert_eq!(
        (&body["model"], &body["created"]),
        (&json!("fake"), &json!(5))
    );
    let usage = json!({
        "prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(body["usage"], usage);
    let choice = &body["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["finish_reason"]),
        (&json!(0), &json!("length"))
    );
    let logprobs = &choice["logprobs"];
    let list = |name: &str| logprobs[name].as_array().unwrap();
    assert_eq!(list("tokens").len(), 4);
    assert_eq!(list("token_logprobs")[0], -0.5);
    let tokens: Vec<&str> = list("tokens").iter().map(|t| t.as_str().unwrap()).collect();
    if !tokens.iter().any(|token| token.starts_with("bytes:")) {
        assert_eq!(tokens.concat(), choice["text"].as_str().unwrap());
    }
    for top in list("top_logprobs") {
        let values: Vec<f64> = top
            .as_object()
            .unwrap()
            .values()
            .map(|v| v.as_f64().unwrap())
            .collect();
        assert_eq!(values.len(), 3);
        assert!(
            values.contains(&-9999.0),
            "a masked token has the floor: {values:?}"
        );
    }
    assert_eq!(list("text_offset")[0], 0);
}

#[test]
fn a_chat_has_the_shape_of_openai() {
    let body = json!({
        "messages": [{"role": "user", "content": "ab"}], "max_completion_tokens": 3,
        "logprobs": true, "top_logprobs": 2, "model": "mine", "seed": 1,
    });
    let body = answer(Endpoint::Chat, body);
    assert_eq!(
        (&body["object"], &body["model"]),
        (&json!("chat.completion"), &json!("mine"))
    );
    let choice = &body["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 3);
    let first = &content[0];
    assert_eq!(first["logprob"], -0.5);
    assert!(first["token"].is_string() && first["bytes"].is_array());
    assert_eq!(first["top_logprobs"].as_array().unwrap().len(), 2);
    assert!(choice.get("text").is_none() && body.get("prompt_logprobs").is_none());
}

#[test]
fn an_echo_begins_with_the_prompt_and_scores_it() {
    let body =
        json!({"prompt": "abc", "max_tokens": 2, "echo": true, "logprobs": 1, "temperature": 0});
    let body = answer(Endpoint::Completions, body);
    let choice = &body["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with("abc"));
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 5);
    assert!(logprobs[0].is_null() && logprobs[1..].iter().all(Value::is_number));
    assert!(
        choice.get("prompt_logprobs").is_none(),
        "nobody asked for vLLM's"
    );
}

#[test]
fn prompt_logprobs_come_by_token_id() {
    let body = json!({"prompt": "abc", "max_tokens": 1, "prompt_logprobs": 2});
    let body = answer(Endpoint::Completions, body);
    let scores = body["choices"][0]["prompt_logprobs"].as_array().unwrap();
    assert_eq!(scores.len(), 3);
    assert!(scores[0].is_null());
    let entry = scores[1].as_object().unwrap().values().next().unwrap();
    assert!(entry["logprob"].is_number() && entry["rank"].is_number());
}

#[test]
fn a_stop_string_is_named_and_not_shown() {
    let body = json!({"prompt": "abc", "max_tokens": 8, "temperature": 0});
    let whole = answer(Endpoint::Completions, body.clone());
    let text = whole["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = text.chars().skip(3).take(1).collect();
    let mut stopped = body;
    stopped["stop"] = json!(["never", stop]);
    let choice = answer(Endpoint::Completions, stopped)["choices"][0].clone();
    assert_eq!(choice["text"], text.split(&stop).next().unwrap());
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("stop"), &json!(stop))
    );
}
