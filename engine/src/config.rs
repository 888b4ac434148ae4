//! What an engine is built with, checked once, so that nothing behind it has to.
//!
//! Neighbours: read by `engine.rs`, `scheduler.rs` and `block_manager/`; made by the caller from
//! the model's config, the memory plan and the command line.

use thiserror::Error;

use crate::{PrefixCacheConfig, SchedulingConfig, SpeculationConfig, TokenId};

/// Largest block size (tokens).
const BLOCK_SIZE_MAX: usize = 256;

/// Most of the likeliest tokens that a row brings down.
const LOGPROBS_MAX: usize = 256;

/// One KV group: layers that share a block table and a window. It has a pool of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroupConfig {
    /// Blocks in the pool, the null block included: N of the pool tensors.
    pub num_blocks: usize,
    /// A token sees itself and the `window - 1` tokens before it; `None`: all of them. Blocks that
    /// lie wholly before the window go back to the pool while the sequence runs.
    pub window: Option<usize>,
}

/// Sizes and limits of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Tokens per block: a power of two, 1 to 256.
    pub block_size: usize,
    /// One entry per KV group, at least one.
    pub groups: Vec<KvGroupConfig>,
    /// Most tokens one step runs. At least `step_seqs_max`, so that every running sequence can
    /// decode in every step.
    pub step_tokens_max: usize,
    /// Most sequences that run at once.
    pub step_seqs_max: usize,
    /// Most tokens of a sequence, prompt and generated together, that the model supports.
    pub max_seq_len: usize,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Tokens with which the model ends its text: the union over every file that names some.
    pub eos_token_ids: Vec<TokenId>,
    /// What the prefix cache may do.
    pub prefix_cache: PrefixCacheConfig,
    /// How the scheduler decides.
    pub scheduling: SchedulingConfig,
    /// Who drafts.
    pub speculation: SpeculationConfig,
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The block size is not one that kernels and the hash chain take.
    #[error("block size is {found} tokens, must be a power of two from 1 to {BLOCK_SIZE_MAX}")]
    BlockSize {
        /// Tokens per block asked for.
        found: usize,
    },
    /// There is no KV group.
    #[error("no KV group is configured, a model has at least one")]
    NoGroups,
    /// A pool is too small to hold one token.
    #[error(
        "KV group {group} has {found} blocks, needs at least 2 (the null block and one to use): \
         give it more KV memory"
    )]
    TooFewBlocks {
        /// Index of the group.
        group: usize,
        /// Its blocks.
        found: usize,
    },
    /// Slots are 32-bit on the device.
    #[error(
        "KV group {group} has {num_blocks} blocks of {block_size} tokens, more slots than 32 bits \
         can number: give it fewer blocks"
    )]
    TooManySlots {
        /// Index of the group.
        group: usize,
        /// Its blocks.
        num_blocks: usize,
        /// Tokens per block.
        block_size: usize,
    },
    /// A window of no tokens sees nothing.
    #[error("the window of KV group {group} is 0 tokens, must be at least 1")]
    Window {
        /// Index of the group.
        group: usize,
    },
    /// A limit below the least that works.
    #[error("{field} is {found}, must be at least {least}")]
    TooSmall {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: usize,
        /// Least value that works.
        least: usize,
    },
    /// A size that does not fit the 32-bit integers of a step.
    #[error("{field} is {found}, must fit 32 bits")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: usize,
    },
    /// The model's end token is outside its vocabulary.
    #[error("end-of-text token {token} is outside the vocabulary of {vocab_size} tokens")]
    EosToken {
        /// The token.
        token: TokenId,
        /// Tokens in the vocabulary.
        vocab_size: usize,
    },
}

impl EngineConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let block_size = self.block_size;
        if !block_size.is_power_of_two() || block_size > BLOCK_SIZE_MAX {
            return Err(ConfigError::BlockSize { found: block_size });
        }
        if self.groups.is_empty() {
            return Err(ConfigError::NoGroups);
        }
        for (index, group) in self.groups.iter().enumerate() {
            group.validate(index, block_size)?;
        }
        in_range("step_seqs_max", self.step_seqs_max, 1)?;
        in_range("step_tokens_max", self.step_tokens_max, self.step_seqs_max)?;
        // A prompt token and a generated one.
        in_range("max_seq_len", self.max_seq_len, 2)?;
        in_range("vocab_size", self.vocab_size, 1)?;
        if let Some(prefill_tokens_max) = self.scheduling.prefill_tokens_max {
            in_range("prefill_tokens_max", prefill_tokens_max, 1)?;
        }
        match self
            .eos_token_ids
            .iter()
            .find(|token| token.0 as usize >= self.vocab_size)
        {
            Some(&token) => Err(ConfigError::EosToken {
                token,
                vocab_size: self.vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// Most log-probabilities per row that a request can ask for.
    pub fn logprobs_max(&self) -> usize {
        LOGPROBS_MAX.min(self.vocab_size)
    }

    /// Most tokens of a sequence that both the model and the KV pools can hold: the limit to
    /// advertise. A prompt may have one token less.
    ///
    /// A window group that can hold its window and what two steps write before anything leaves it
    /// does not limit the length.
    pub fn seq_len_max(&self) -> usize {
        self.groups
            .iter()
            .map(|group| {
                let num_usable = group.num_usable_blocks();
                match self.held_blocks_max(group) {
                    Some(held_max) if held_max <= num_usable => usize::MAX,
                    _ => num_usable * self.block_size,
                }
            })
            .fold(self.max_seq_len, usize::min)
    }

    /// Most blocks of a group with a window that one sequence holds at once: its window, and what
    /// two steps in flight write before blocks leave it, which may begin and end inside a block.
    pub(crate) fn held_blocks_max(&self, group: &KvGroupConfig) -> Option<usize> {
        let window = group.window?;
        // Rounded up apart: a prefix hit may end inside a block, and brings whole blocks of its own.
        let behind = (window - 1).div_ceil(self.block_size);
        let ahead = (2 * self.step_tokens_max).div_ceil(self.block_size);
        Some(behind + ahead + 1)
    }
}

impl KvGroupConfig {
    /// Blocks that can hold tokens: all but the null block.
    pub fn num_usable_blocks(&self) -> usize {
        self.num_blocks - 1
    }

    fn validate(&self, group: usize, block_size: usize) -> Result<(), ConfigError> {
        let num_blocks = self.num_blocks;
        if num_blocks < 2 {
            return Err(ConfigError::TooFewBlocks {
                group,
                found: num_blocks,
            });
        }
        let fits = num_blocks
            .checked_mul(block_size)
            .is_some_and(|num_slots| u32::try_from(num_slots).is_ok());
        if !fits {
            return Err(ConfigError::TooManySlots {
                group,
                num_blocks,
                block_size,
            });
        }
        if self.window == Some(0) {
            return Err(ConfigError::Window { group });
        }
        Ok(())
    }
}

fn in_range(field: &'static str, found: usize, least: usize) -> Result<(), ConfigError> {
    if found < least {
        Err(ConfigError::TooSmall {
            field,
            found,
            least,
        })
    } else if u32::try_from(found).is_err() {
        Err(ConfigError::TooLarge { field, found })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EngineConfig {
        EngineConfig {
            block_size: 16,
            groups: vec![KvGroupConfig {
                num_blocks: 21,
                window: None,
            }],
            step_tokens_max: 64,
            step_seqs_max: 4,
            max_seq_len: 4096,
            vocab_size: 320,
            eos_token_ids: vec![TokenId(2)],
            prefix_cache: PrefixCacheConfig::default(),
            scheduling: SchedulingConfig::default(),
            speculation: SpeculationConfig::default(),
        }
    }

    #[test]
    fn a_sound_configuration_is_accepted_and_advertises_what_the_pool_holds() {
        assert_eq!(config().validate(), Ok(()));
        assert_eq!(config().seq_len_max(), 320);
        assert_eq!(
            EngineConfig {
                max_seq_len: 100,
                ..config()
            }
            .seq_len_max(),
            100
        );
    }

    #[test]
    fn every_unsound_field_is_refused_by_name() {
        type Damage = fn(&mut EngineConfig);
        let cases: [(Damage, &str); 13] = [
            (|c| c.block_size = 0, "block size is 0"),
            (|c| c.block_size = 12, "block size is 12"),
            (|c| c.block_size = 512, "block size is 512"),
            (|c| c.groups.clear(), "no KV group"),
            (|c| c.groups[0].num_blocks = 1, "KV group 0 has 1 blocks"),
            (
                |c| c.groups[0].num_blocks = 1 << 29,
                "more slots than 32 bits",
            ),
            (|c| c.groups[0].window = Some(0), "window of KV group 0"),
            (|c| c.step_seqs_max = 0, "step_seqs_max is 0"),
            (
                |c| c.step_tokens_max = 3,
                "step_tokens_max is 3, must be at least 4",
            ),
            (|c| c.max_seq_len = 1, "max_seq_len is 1"),
            (
                |c| c.scheduling.prefill_tokens_max = Some(0),
                "prefill_tokens_max is 0",
            ),
            (
                |c| c.vocab_size = 1 << 33,
                "vocab_size is 8589934592, must fit 32 bits",
            ),
            (|c| c.vocab_size = 2, "end-of-text token 2"),
        ];
        for (damage, message) in cases {
            let mut config = config();
            damage(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(
                error.contains(message),
                "{error:?} should contain {message:?}"
            );
        }
    }
}
