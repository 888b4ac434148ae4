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
//! scheduler.rs       plan()     who runs how many tokens; admits, preempts
//! block_manager/     reserve()  a slot for every token (block_pool.rs, block_table.rs)
//! step_batch.rs      build()    flat arrays for the kernels
//! executor.rs        execute()  the model's part: one verdict per logit row
//! sequence/mod.rs    commit()   append, cut at stops (stop.rs, stop_strings.rs), events (event.rs)
//! ```

#![warn(missing_docs)]

mod block_hash;
mod block_manager;
mod block_pool;
mod block_table;
mod config;
mod engine;
mod event;
mod executor;
mod ids;
mod integrity;
mod prefix_cache;
mod request;
mod scheduler;
mod sequence;
mod sequence_store;
mod step_batch;
mod stop;
mod stop_strings;

pub use block_hash::{BlockHash, CacheKeys, HashChain};
pub use block_manager::{
    BlockManager, MissReason, OutOfBlocks, PartialHit, Pin, PinError, PinId, PrefixHit,
};
pub use block_pool::BlockPool;
pub use block_table::BlockTable;
pub use config::{ConfigError, EngineConfig, KvGroupConfig};
pub use engine::Engine;
pub use event::{Event, Events, FailureCause, FinishReason, StopCause, Usage};
pub use executor::{Executor, ExecutorError, FailureScope, StepOutput, Verdict};
pub use ids::{BlockId, Generation, Position, RequestId, SeqId, Slot, TokenId};
pub use integrity::IntegrityError;
pub use prefix_cache::{CacheIntegrityError, PrefixCacheConfig, PrefixGranularity};
pub use request::{AdmissionError, Request, SamplingParams, StopParams, Vocabulary};
pub use scheduler::{ScheduledSeq, StepPlan};
pub use step_batch::{BatchSeq, GroupBatch, SamplingRow, StepBatch};
pub use stop_strings::StopStrings;
