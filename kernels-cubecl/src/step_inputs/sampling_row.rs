//! How the next token of one logit row is chosen, and the words that say so in a packed step.
//!
//! Neighbours: packed by [`super::StepInputs::fill`]; read by [`crate::advance`],
//! [`crate::logits_process`], [`crate::sample`], [`crate::verify`] and [`crate::logprobs`].

use crate::sample::philox;

/// Words of one row of sampling parameters, see [`word`].
pub const SAMPLING_WORDS: usize = 27;
/// Below this temperature a row is greedy.
pub const TEMPERATURE_MIN: f32 = 1e-6;
/// Most tokens besides the chosen one whose logprobs a row can ask for: candidates of a beam search.
pub const LOGPROBS_TOP_MAX: usize = 256;

/// Words of a row of sampling parameters, relative to its start. A row of zeros is padding: greedy,
/// and nothing to process.
pub mod word {
    /// Temperature, f32 bits.
    pub const TEMPERATURE: usize = 0;
    /// Seed, low half.
    pub const SEED_LOW: usize = 1;
    /// Seed, high half.
    pub const SEED_HIGH: usize = 2;
    /// Position of the sampled token.
    pub const POSITION: usize = 3;
    /// Which of the other words mean something: bits of [`super::flag`].
    pub const FLAGS: usize = 4;
    /// Most likely tokens kept, 0 for all.
    pub const TOP_K: usize = 5;
    /// Nucleus mass, f32 bits.
    pub const TOP_P: usize = 6;
    /// Least share of the greatest probability, f32 bits.
    pub const MIN_P: usize = 7;
    /// Typical mass, f32 bits.
    pub const TYPICAL_P: usize = 8;
    /// f32 bits.
    pub const REPETITION_PENALTY: usize = 9;
    /// f32 bits.
    pub const PRESENCE_PENALTY: usize = 10;
    /// f32 bits.
    pub const FREQUENCY_PENALTY: usize = 11;
    /// First entry of the row's history.
    pub const HISTORY_START: usize = 12;
    /// One past its last entry.
    pub const HISTORY_END: usize = 13;
    /// First entry of the row's biases.
    pub const BIAS_START: usize = 14;
    /// One past its last entry.
    pub const BIAS_END: usize = 15;
    /// Row of the masks.
    pub const MASK: usize = 16;
    /// Row of the previous verdicts.
    pub const CARRIED_ROW: usize = 17;
    /// Token of that row; written by [`crate::advance`].
    pub const CARRIED_TOKEN: usize = 18;
    /// Token to score.
    pub const TARGET: usize = 19;
    /// Most likely tokens whose logprobs are wanted.
    pub const NUM_TOP: usize = 20;
    /// Rows of drafts that follow.
    pub const NUM_DRAFTS: usize = 21;
    /// Row of the token before a draft.
    pub const PARENT_ROW: usize = 22;
    /// Row of the distributions that drafts were drawn from.
    pub const DRAFT_ROW: usize = 23;
    /// How drafts are verified: 0 by shared noise, 1 by rejection, 2 as a block.
    pub const VERIFICATION: usize = 24;
    /// What the noise of [`crate::sample`] is for: a purpose of [`crate::sample::philox`].
    pub const PURPOSE: usize = 25;
    /// Position of the anchor.
    pub const ANCHOR: usize = 26;
}

/// Bits of [`word::FLAGS`].
pub mod flag {
    /// The logits of the row are to be changed before sampling.
    pub const PROCESS: u32 = 1;
    /// There is a mask.
    pub const MASK: u32 = 2;
    /// There is a carried token.
    pub const CARRIED: u32 = 4;
    /// There is a token to score.
    pub const TARGET: u32 = 8;
    /// Logprobs are wanted.
    pub const LOGPROBS: u32 = 16;
    /// They are those after processing.
    pub const PROCESSED: u32 = 32;
    /// The row is a draft's.
    pub const DRAFT: u32 = 64;
    /// It was drawn from a distribution.
    pub const DRAWN: u32 = 128;
}

/// Sampling parameters of one logit row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRow {
    /// Below [`TEMPERATURE_MIN`] the row is greedy.
    pub temperature: f32,
    /// Seed of the request's noise.
    pub seed: u64,
    /// Position the sampled token will take; with the seed it selects the noise.
    pub position: u32,
    /// Most likely tokens that are kept; 0 is off, as is the vocabulary size and more.
    pub top_k: u32,
    /// The most likely tokens that have this mass together are kept; 1 is off.
    pub top_p: f32,
    /// Tokens with at least this share of the greatest probability are kept; 0 is off.
    pub min_p: f32,
    /// The tokens of the most typical information that have this mass together are kept; 1 is off.
    pub typical_p: f32,
    /// Above 0; 1 is off.
    pub repetition_penalty: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// Half-open range of [`super::StepArrays::history`].
    pub history: (u32, u32),
    /// Half-open range of [`super::StepArrays::bias`].
    pub bias: (u32, u32),
    /// Row of [`super::StepArrays::masks`].
    pub mask: Option<u32>,
    /// Row of the previous step's verdicts whose token is this row's newest output token, when the
    /// host does not know it yet and the history does not count it.
    pub carried_row: Option<u32>,
    /// A token to score instead of the sampled one (prompt logprobs).
    pub target: Option<u32>,
    /// What comes down besides the verdict.
    pub logprobs: Option<LogprobsRow>,
    /// Rows right after this one that are drafts of its sequence, in an anchor's row.
    pub num_drafts: u32,
    /// In a draft's row: the row of the token before it, the anchor's or an earlier draft's. The draft
    /// token is the token that the row reads.
    pub parent_row: Option<u32>,
    /// In a draft's row: which of the kept distributions it was drawn from. Siblings share one.
    pub draft_row: Option<u32>,
    /// How the drafts of the sequence are verified, if the row is drawn with noise.
    pub verification: Verification,
    /// What the noise is for.
    pub purpose: NoisePurpose,
    /// Position of the anchor: with other purposes than sampling it is part of the noise's key.
    pub anchor: u32,
}

/// How drafts are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verification {
    /// A draft is kept where it is the token that the row draws anyway.
    #[default]
    SharedNoise,
    /// By rejection sampling, sibling after sibling.
    Rejection,
    /// A whole chain at once.
    Block,
}

/// What noise is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NoisePurpose {
    /// Sampling, whatever is drafted.
    #[default]
    Sample,
    /// Drawing drafts that are verified by rejection or as a block.
    Draft,
}

/// Logprobs that a row asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogprobsRow {
    /// Most likely tokens besides the chosen one, at most [`LOGPROBS_TOP_MAX`] and the vocabulary.
    pub num_top: u32,
    /// Of which distribution.
    pub kind: LogprobsKind,
}

/// Which distribution logprobs are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogprobsKind {
    /// The model's own: before biases, penalties, masks, temperature and filters.
    Raw,
    /// The one that was sampled from: after all of them.
    Processed,
}

impl SamplingRow {
    /// The likeliest token, nothing else asked for.
    pub const fn greedy(position: u32) -> Self {
        Self::plain(0.0, 0, position)
    }

    /// A draw from the model's own distribution at a temperature.
    pub const fn plain(temperature: f32, seed: u64, position: u32) -> Self {
        Self {
            temperature,
            seed,
            position,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            history: (0, 0),
            bias: (0, 0),
            mask: None,
            carried_row: None,
            target: None,
            logprobs: None,
            num_drafts: 0,
            parent_row: None,
            draft_row: None,
            verification: Verification::SharedNoise,
            purpose: NoisePurpose::Sample,
            anchor: 0,
        }
    }

    /// Whether the row is drawn with noise; else it is greedy.
    pub fn is_noisy(&self) -> bool {
        self.temperature >= TEMPERATURE_MIN
    }

    /// The noise that [`crate::sample`] adds.
    pub fn stream(&self) -> philox::Stream {
        match self.purpose {
            NoisePurpose::Sample => philox::Stream::sampling(self.position),
            NoisePurpose::Draft => self.stream_for(philox::PURPOSE_DRAFT),
        }
    }

    /// Noise of this row for a purpose other than sampling.
    pub fn stream_for(&self, purpose: u32) -> philox::Stream {
        philox::Stream {
            position: self.position,
            purpose,
            anchor: self.anchor,
        }
    }

    /// Whether tokens are filtered by their probability. A greedy row needs none: the likeliest
    /// token passes every filter but `typical_p`, which says nothing about greedy choices.
    pub fn has_filters(&self) -> bool {
        let filters =
            self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0 || self.typical_p < 1.0;
        filters && self.is_noisy()
    }

    /// Whether tokens already seen are penalised.
    #[expect(
        clippy::float_cmp,
        reason = "these very values mean that a penalty is off"
    )]
    pub fn has_penalties(&self) -> bool {
        let active = self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0;
        let tokens = self.history.0 < self.history.1 || self.carried_row.is_some();
        active && tokens
    }

    /// Whether [`crate::logits_process`] has anything to do for this row.
    pub fn needs_processing(&self) -> bool {
        self.bias.0 < self.bias.1
            || self.mask.is_some()
            || self.has_penalties()
            || self.has_filters()
    }

    /// Its words.
    pub(super) fn pack(&self) -> [u32; SAMPLING_WORDS] {
        let mut flags = 0;
        let mut set = |bit, condition: bool| flags |= if condition { bit } else { 0 };
        set(flag::PROCESS, self.needs_processing());
        set(flag::MASK, self.mask.is_some());
        set(flag::CARRIED, self.carried_row.is_some());
        set(flag::TARGET, self.target.is_some());
        set(flag::LOGPROBS, self.logprobs.is_some());
        let kind = self.logprobs.map(|logprobs| logprobs.kind);
        set(flag::PROCESSED, kind == Some(LogprobsKind::Processed));
        set(flag::DRAFT, self.parent_row.is_some());
        set(flag::DRAWN, self.draft_row.is_some());
        let mut words = [0; SAMPLING_WORDS];
        words[word::TEMPERATURE] = self.temperature.to_bits();
        words[word::SEED_LOW] = self.seed as u32;
        words[word::SEED_HIGH] = (self.seed >> 32) as u32;
        words[word::POSITION] = self.position;
        words[word::FLAGS] = flags;
        words[word::TOP_K] = self.top_k;
        words[word::TOP_P] = self.top_p.to_bits();
        words[word::MIN_P] = self.min_p.to_bits();
        words[word::TYPICAL_P] = self.typical_p.to_bits();
        words[word::REPETITION_PENALTY] = self.repetition_penalty.to_bits();
        words[word::PRESENCE_PENALTY] = self.presence_penalty.to_bits();
        words[word::FREQUENCY_PENALTY] = self.frequency_penalty.to_bits();
        words[word::HISTORY_START] = self.history.0;
        words[word::HISTORY_END] = self.history.1;
        words[word::BIAS_START] = self.bias.0;
        words[word::BIAS_END] = self.bias.1;
        words[word::MASK] = self.mask.unwrap_or(0);
        words[word::CARRIED_ROW] = self.carried_row.unwrap_or(0);
        words[word::TARGET] = self.target.unwrap_or(0);
        words[word::NUM_TOP] = self.logprobs.map_or(0, |logprobs| logprobs.num_top);
        words[word::NUM_DRAFTS] = self.num_drafts;
        words[word::PARENT_ROW] = self.parent_row.unwrap_or(0);
        words[word::DRAFT_ROW] = self.draft_row.unwrap_or(0);
        words[word::VERIFICATION] = match self.verification {
            Verification::SharedNoise => 0,
            Verification::Rejection => 1,
            Verification::Block => 2,
        };
        words[word::PURPOSE] = match self.purpose {
            NoisePurpose::Sample => philox::PURPOSE_SAMPLE,
            NoisePurpose::Draft => philox::PURPOSE_DRAFT,
        };
        words[word::ANCHOR] = self.anchor;
        words
    }

    /// The row that these words say.
    pub(super) fn unpack(words: &[u32]) -> Self {
        let float = |at: usize| f32::from_bits(words[at]);
        let has = |bit| words[word::FLAGS] & bit != 0;
        let kind = if has(flag::PROCESSED) {
            LogprobsKind::Processed
        } else {
            LogprobsKind::Raw
        };
        Self {
            temperature: float(word::TEMPERATURE),
            seed: u64::from(words[word::SEED_LOW]) | u64::from(words[word::SEED_HIGH]) << 32,
            position: words[word::POSITION],
            top_k: words[word::TOP_K],
            top_p: float(word::TOP_P),
            min_p: float(word::MIN_P),
            typical_p: float(word::TYPICAL_P),
            repetition_penalty: float(word::REPETITION_PENALTY),
            presence_penalty: float(word::PRESENCE_PENALTY),
            frequency_penalty: float(word::FREQUENCY_PENALTY),
            history: (words[word::HISTORY_START], words[word::HISTORY_END]),
            bias: (words[word::BIAS_START], words[word::BIAS_END]),
            mask: has(flag::MASK).then_some(words[word::MASK]),
            carried_row: has(flag::CARRIED).then_some(words[word::CARRIED_ROW]),
            target: has(flag::TARGET).then_some(words[word::TARGET]),
            logprobs: has(flag::LOGPROBS).then_some(LogprobsRow {
                num_top: words[word::NUM_TOP],
                kind,
            }),
            num_drafts: words[word::NUM_DRAFTS],
            parent_row: has(flag::DRAFT).then_some(words[word::PARENT_ROW]),
            draft_row: has(flag::DRAWN).then_some(words[word::DRAFT_ROW]),
            verification: match words[word::VERIFICATION] {
                1 => Verification::Rejection,
                2 => Verification::Block,
                _ => Verification::SharedNoise,
            },
            purpose: if words[word::PURPOSE] == philox::PURPOSE_DRAFT {
                NoisePurpose::Draft
            } else {
                NoisePurpose::Sample
            },
            anchor: words[word::ANCHOR],
        }
    }
}
