//! What `check_integrity` finds: each is a bug in the engine, never a fault of a caller.

use thiserror::Error;

use crate::{BlockId, CacheIntegrityError, RequestId, SeqId};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IntegrityError {
    /// The free list's links do not agree.
    #[error("free list: block {block} points back to {found}, expected {expected}")]
    FreeList {
        /// Block with the wrong link.
        block: BlockId,
        /// Block before it.
        expected: BlockId,
        /// Where it points.
        found: BlockId,
    },
    /// The count of free blocks is not the length of the free list.
    #[error("{found} blocks are counted as free, the list has {expected}")]
    NumFree {
        /// Length of the list.
        expected: usize,
        /// The count.
        found: usize,
    },
    /// A reference count is not the number of tables, pins and scheduled copies with the block.
    #[error("block {block} counts {found} references, {expected} hold it")]
    RefCount {
        /// The block.
        block: BlockId,
        /// Tables, pins and copies that hold it.
        expected: u32,
        /// Its count.
        found: u32,
    },
    /// The prefix cache contradicts itself.
    #[error(transparent)]
    PrefixCache(#[from] CacheIntegrityError),
    /// Two scheduled copies of blocks have the same destination, or one reads what another writes.
    #[error("the copy of block {source_block} to block {destination} depends on another copy")]
    Copies {
        /// Block read.
        source_block: BlockId,
        /// Block written.
        destination: BlockId,
    },
    /// A block is on the free list and held, or neither.
    #[error("block {block} with {ref_count} references is on the wrong side of the free list")]
    FreeAndHeld {
        /// The block.
        block: BlockId,
        /// Its count.
        ref_count: u32,
    },
    /// A table holds the null block where no window has let go, or another block where one has.
    #[error("block table entry {index} is block {block}, the window has let go of {num_released}")]
    Table {
        /// Entry.
        index: usize,
        /// What it holds.
        block: BlockId,
        /// Entries that should be null.
        num_released: usize,
    },
    /// A sequence counts more tokens as computed than it has, or than have slots.
    #[error("sequence {seq}: {num_computed} tokens computed of {num_tokens}, slots for {capacity}")]
    Computed {
        /// The sequence.
        seq: SeqId,
        /// Tokens whose keys and values are in the pool.
        num_computed: usize,
        /// Tokens known.
        num_tokens: usize,
        /// Tokens that have slots.
        capacity: usize,
    },
    /// A sequence is in no queue or in several.
    #[error("sequence {seq} is in {found} queues, expected 1")]
    Queues {
        /// The sequence.
        seq: SeqId,
        /// Queue entries that name it.
        found: usize,
    },
    /// A queue names a sequence that has ended.
    #[error("the queues name {found} sequences, {expected} have not ended")]
    QueueLen {
        /// Sequences that have not ended.
        expected: usize,
        /// Queue entries.
        found: usize,
    },
    /// A waiting sequence holds blocks.
    #[error("sequence {seq} waits but holds {num_blocks} blocks")]
    WaitingWithBlocks {
        /// The sequence.
        seq: SeqId,
        /// Blocks it holds.
        num_blocks: usize,
    },
    /// More sequences run than may.
    #[error("{found} sequences run, at most {limit} may")]
    Running {
        /// Sequences that run.
        found: usize,
        /// How many may.
        limit: usize,
    },
    /// The running sequences are not in order of rank.
    #[error("the running sequences are not in order of rank")]
    Order,
    /// A request names a sequence that is not its own.
    #[error("request {request} counts sequence {seq} as its own")]
    Request {
        /// The request.
        request: RequestId,
        /// The sequence.
        seq: SeqId,
    },
    /// Requests and sequences do not match.
    #[error("requests name {found} sequences, {expected} have not ended, or a request names none")]
    Live {
        /// Sequences that have not ended.
        expected: usize,
        /// Those that requests name.
        found: usize,
    },
    /// A sequence waits for more or fewer tokens than steps in flight decide for it.
    #[error("sequence {seq} waits for {found} tokens, steps in flight decide {expected}")]
    Placeholders {
        /// The sequence.
        seq: SeqId,
        /// Tokens that steps in flight decide.
        expected: usize,
        /// Tokens it waits for.
        found: usize,
    },
}
