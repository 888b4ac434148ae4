//! The integers of the engine, each with a type of its own, so that a block never passes for a
//! slot.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// What [`crate::Engine::add_request`] hands out: counts up, never reused.
    RequestId(u64)
);
id!(
    /// Place of a sequence in the engine's store. Reused after the sequence has gone: only together
    /// with a [`Generation`] does it name a sequence for good.
    SeqId(u32)
);
id!(
    /// Drawn anew each time a sequence starts from nothing: when it is created and when it is
    /// preempted. Results carry it, and those of an older generation are dropped whole.
    Generation(u64)
);
id!(
    /// A block of one KV group's pool. Block 0 is the null block.
    BlockId(u32)
);
id!(
    /// A token of the vocabulary.
    TokenId(u32)
);
id!(
    /// One token's place in the KV pool: `block_id * block_size + offset`.
    Slot(u32)
);
id!(
    /// 0-based index of a token in its sequence.
    Position(u32)
);

impl BlockId {
    /// Never allocated and never read: padding writes to it, and it stands in a block table where a
    /// window has let go.
    pub const NULL: Self = Self(0);

    /// Whether this is the null block.
    pub fn is_null(self) -> bool {
        self == Self::NULL
    }

    /// As an index into arrays over blocks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl SeqId {
    /// As an index into arrays over sequences.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A moment on the caller's clock, in microseconds since any fixed moment: the engine has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Microseconds from `earlier` to this moment; 0 if the clock went backwards.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
