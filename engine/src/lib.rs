//! The engine as integers: which sequence runs how many tokens in which blocks, and what comes of
//! it.
//!
//! No tensors, no input or output, no clock, no threads, no ambient randomness: the same requests
//! and the same verdicts give the same steps, bit for bit. Whoever owns a model implements
//! [`Executor`] and hands it to [`Engine`].
//!
//! The path of one token, in reading order:
//!
//! ```text
//! engine.rs          step()     the phases, one line each
//! scheduler.rs       plan()     who runs how many tokens; admits, preempts (queues.rs, rank.rs)
//! block_manager/     reserve()  a slot for every token (block_pool.rs, block_table.rs)
//! step_batch/        build()    flat arrays for the kernels (sampling_rows.rs)
//! executor.rs        submit(), collect()  the model's part: one verdict per logit row
//! commit.rs          commit()   verdicts become tokens, forks, ends
//! sequence/mod.rs    commit()   append, cut at stops (stop.rs, stop_strings.rs), events (event.rs)
//! ```

#![warn(missing_docs)]

mod admission;
mod arrival;
mod beam;
mod beam_step;
mod block_hash;
mod block_manager;
mod block_pool;
mod block_table;
mod commit;
mod commit_draft;
mod config;
mod draft_rows;
mod engine;
mod event;
mod executor;
mod finish;
mod grammar;
mod ids;
mod in_flight;
mod integrity;
mod invariants;
mod output_log;
mod prefix_cache;
mod queues;
mod rank;
mod record;
mod request;
mod request_state;
mod request_store;
mod sampling_params;
mod sampling_rows;
mod scheduler;
mod scheduling_config;
mod sequence;
mod sequence_store;
mod spec;
mod statistics;
mod step_batch;
mod stop;
mod stop_strings;
mod token_counts;

pub use admission::AdmissionError;
pub use arrival::Promotion;
pub use block_hash::{BlockHash, CacheKeys, HashChain};
pub use block_manager::{
    BlockManager, MissReason, OutOfBlocks, PartialHit, Pin, PinError, PinId, PrefixHit,
};
pub use block_pool::BlockPool;
pub use block_table::BlockTable;
pub use config::{ConfigError, EngineConfig, KvGroupConfig};
pub use engine::{Engine, QueueLens};
pub use event::{Event, Events, FailureCause, FinishReason, StopCause, Usage};
pub use executor::{
    DraftSource, Executor, ExecutorError, FailureScope, RowLogprobs, StepOutput, TokenLogprob,
    Verdict,
};
pub use grammar::{Grammar, GrammarError};
pub use ids::{BlockId, Generation, Position, RequestId, SeqId, Slot, Timestamp, TokenId};
pub use integrity::IntegrityError;
pub use prefix_cache::{CacheIntegrityError, PrefixCacheConfig, PrefixGranularity};
pub use request::{Request, StopParams, Vocabulary, WaitReason};
pub use sampling_params::{
    BeamParams, LogprobsKind, LogprobsParams, OutputParams, SamplingParams, TEMPERATURE_MIN,
};
pub use sampling_rows::{NoisePurpose, RowPurpose, SamplingRow, TokenBias};
pub use scheduler::{Admission, ScheduledSeq, StepPlan};
pub use scheduling_config::{SchedulingConfig, SchedulingPolicy};
pub use spec::{
    Chance, DraftContext, DraftDraw, DraftModelConfig, DraftNode, DraftTree, Drafted, Drafter,
    NgramDrafter, Occurrence, SpecMethod, SpeculationConfig, SpeculationParams, SpeculationReport,
    SuffixDrafter, Verdicts, Verification, verify_block, verify_greedy, verify_rejection,
    verify_shared_noise,
};
pub use statistics::{
    Bin, BucketReport, Distribution, EngineReport, LengthClass, MeanMax, MissCounts, MissKind,
    PrefixReport, RequestFacts, RequestsReport, SamplingKind, Statistics, StatisticsReport,
    StepFacts, TenantLabel,
};
pub use step_batch::{BatchSeq, CarriedToken, GroupBatch, StepBatch};
pub use stop_strings::StopStrings;
pub use token_counts::TokenCount;
