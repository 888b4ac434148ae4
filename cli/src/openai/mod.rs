//! OpenAI's API as data: what comes in is checked field by field, what goes out is serialised.
//!
//! ```text
//! request.rs      the body of a request: endpoint, prompt, and everything below
//!   fields.rs       reads one JSON object, key by key, and names what is wrong
//!   prompt.rs       text, token ids or messages
//!   sampling.rs     sampling, stop conditions, samples and log-probabilities
//!   structured.rs   response_format and vLLM's guided decoding
//! answer.rs       what the engine made of it, as the body of a response
//!   response.rs     the objects of the response
//!   logprobs.rs     log-probabilities in the shapes of both endpoints
//! error.rs        errors in OpenAI's shape
//! ```
//!
//! Rules that hold everywhere:
//! - **null is absent**, as clients write it.
//! - **Unknown keys are never an error**: they are handed back, for whoever warns.
//! - **A wrong value is an error that names its field** and what was expected.
//! - **Log-probabilities are the model's own**, before bias, penalties, temperature and filters,
//!   as in vLLM. JSON has no infinity: `-inf` is written as -9999.0.
//!
//! Neighbours: `batch/` reads requests from lines; `codec.rs` turns text into tokens.

mod answer;
mod error;
mod fields;
mod logprobs;
mod prompt;
mod request;
mod response;
mod sampling;
mod speculation;
mod structured;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, AnswerHead};
pub(crate) use error::ApiError;
pub(crate) use fields::Fields;
pub(crate) use request::{ApiRequest, Defaults, Endpoint, EngineRequest};
pub(crate) use response::ResponseBody;
