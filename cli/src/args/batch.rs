//! Flags of `forerun batch`.
//!
//! Neighbours: `batch/command.rs` runs it.

use clap::Args;

use super::{EngineArgs, MessageArgs, ModelArgs, SchedulingArgs, SpeculationArgs};

pub(super) const EXAMPLES: &str = "\
Each line of the input is a request as in OpenAI's Batch API:
  {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/completions\",
   \"body\": {\"prompt\": \"Once upon a time\", \"max_tokens\": 32, \"seed\": 7}}
`url` may also be /v1/chat/completions, with `messages` in the body. vLLM's keys (top_k, min_p,
repetition_penalty, ignore_eos, min_tokens, stop_token_ids, cache_salt, priority, use_beam_search,
guided_json, structured_outputs, ..) are understood too; keys that are not are ignored with a
warning. Log-probabilities are the model's own, before penalties, temperature and filters; -inf is
written as -9999.0.

`\"speculation\": {\"enabled\": false}` in a body turns speculation off for that line; its other keys
are method, num_tokens, verify and task (a label: lines that share one share what is learnt).

Each answer is one line of the output, written whole as soon as it is finished. A line that cannot
be answered gets an error line and harms nothing. If a run is interrupted, run the same command
again: lines that the output answers already are not answered twice.

Exit status:
  0  every line of the output is an answer
  1  the batch could not run to its end
  2  it ran to its end, and some lines are errors

Examples:
  forerun batch requests.jsonl -o answers.jsonl
  forerun batch - -o - --quiet < requests.jsonl > answers.jsonl
  forerun batch requests.jsonl -o answers.jsonl --max-num-seqs 16 --stats table";

/// What to answer and where to.
#[derive(Args, Debug)]
pub(crate) struct BatchArgs {
    /// The file of requests, one JSON object per line; `-` is standard input.
    #[arg(value_name = "IN.jsonl")]
    pub(crate) input: String,
    /// The file of answers; `-` is standard output.
    #[arg(long, short, value_name = "OUT.jsonl")]
    pub(crate) output: String,
    /// Start anew even if the output has answers already.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Most tokens to generate for lines that do not say. Default: 16 for completions, as OpenAI,
    /// and until the longest length for chats.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_tokens: Option<u32>,
    /// Seed from which lines that give none get theirs: the same answers in every run. Default: a
    /// new one each run.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Print statistics at the end: `table`, `json`, or the name of a file that gets the JSON.
    #[arg(long, value_name = "table|json|FILE")]
    pub(crate) stats: Option<String>,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) scheduling: SchedulingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,

    #[command(flatten)]
    pub(crate) messages: MessageArgs,
}
