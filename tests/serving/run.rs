//! Runs requests through an engine over a model and collects what comes of them.

use std::collections::BTreeMap;

use forerun_engine::{
    Drafter, Engine, EngineConfig, Event, Executor, FinishReason, Request, RequestId,
    SpeculationReport, StatisticsReport, Timestamp, TokenId, Usage, Vocabulary,
};

/// Tokens without text: these tests compare ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoText;

impl Vocabulary for NoText {
    fn token_bytes(&self, _: TokenId) -> &[u8] {
        &[]
    }
}

/// One continuation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) tokens: Vec<u32>,
    pub(crate) reason: Option<FinishReason>,
    /// Chosen log-probability and likeliest tokens of each token, as bits.
    pub(crate) logprobs: Vec<Vec<(u32, u32)>>,
}

/// What came of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Output {
    pub(crate) samples: BTreeMap<u32, Sample>,
    /// Bits of the log-probability of each prompt token.
    pub(crate) prompt_logprobs: Vec<Option<u32>>,
}

/// What came of all requests, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) outputs: Vec<Output>,
    pub(crate) usages: Vec<Usage>,
    pub(crate) statistics: StatisticsReport,
    /// Most blocks of the first KV group that were in use at once.
    pub(crate) num_blocks_max: usize,
    /// What speculation did, by request.
    pub(crate) speculation: Vec<SpeculationReport>,
}

/// Runs `requests`, all added at once, to their end.
pub(crate) fn run<E: Executor>(executor: E, config: &EngineConfig, requests: &[Request]) -> Run {
    run_drafted(executor, config, requests, None)
}

/// The same with a drafter of the test's own.
pub(crate) fn run_drafted<E: Executor>(
    executor: E,
    config: &EngineConfig,
    requests: &[Request],
    drafter: Option<Box<dyn Drafter>>,
) -> Run {
    let mut engine =
        Engine::new(config.clone(), executor, NoText).unwrap_or_else(|error| panic!("{error}"));
    if let Some(drafter) = drafter {
        engine.set_drafter(drafter);
    }
    let ids: Vec<RequestId> = requests
        .iter()
        .map(|request| {
            let id = engine.add_request(request.clone(), Timestamp(0));
            id.unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    let mut outputs: BTreeMap<RequestId, Output> = BTreeMap::new();
    let mut usages = BTreeMap::new();
    let mut speculation = BTreeMap::new();
    let mut num_blocks_max = 0;
    let mut now = 0;
    while engine.has_work() {
        now += 1;
        for event in engine.step(Timestamp(now)).iter() {
            if let Event::Finished {
                request,
                speculation: report,
                ..
            } = event
            {
                speculation.insert(request, report.clone());
            }
            take(event, &mut outputs, &mut usages);
        }
        if let Err(error) = engine.check_integrity() {
            panic!("{error}");
        }
        num_blocks_max = num_blocks_max.max(engine.blocks().num_referenced(0));
    }
    Run {
        outputs: ids.iter().map(|id| outputs[id].clone()).collect(),
        usages: ids.iter().map(|id| usages[id]).collect(),
        statistics: engine.statistics(),
        num_blocks_max,
        speculation: speculation.into_values().collect(),
    }
}

fn take(
    event: Event<'_>,
    outputs: &mut BTreeMap<RequestId, Output>,
    usages: &mut BTreeMap<RequestId, Usage>,
) {
    match event {
        Event::Draft { .. } => {}
        Event::PromptToken {
            request, logprobs, ..
        } => {
            let bits = logprobs.map(|logprobs| logprobs.chosen.logprob.to_bits());
            let output = outputs.entry(request).or_default();
            output.prompt_logprobs.push(bits);
        }
        Event::Token {
            request,
            sample,
            token,
            logprobs,
            ..
        } => {
            let samples = &mut outputs.entry(request).or_default().samples;
            let sample = samples.entry(sample).or_default();
            sample.tokens.push(token.0);
            if let Some(logprobs) = logprobs {
                let all = [&logprobs.chosen].into_iter().chain(logprobs.top);
                let bits = all.map(|entry| (entry.token.0, entry.logprob.to_bits()));
                sample.logprobs.push(bits.collect());
            }
        }
        Event::SampleFinished {
            request,
            sample,
            reason,
            ..
        } => {
            let samples = &mut outputs.entry(request).or_default().samples;
            let sample = samples.entry(sample).or_default();
            assert!(sample.reason.is_none(), "a sample ends once");
            sample.reason = Some(reason.clone());
        }
        Event::Finished { request, usage, .. } => {
            let earlier = usages.insert(request, usage);
            assert!(earlier.is_none(), "a request ends once");
        }
    }
}
