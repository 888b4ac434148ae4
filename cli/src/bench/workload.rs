//! Random requests of given lengths: the same seed gives the same requests.
//!
//! Neighbours: `cache.rs` and `sched.rs` put them together.

use forerun_engine::{Request, StopParams, TokenId};

/// Lengths of requests in ShareGPT conversations, as log-normal distributions whose means are those
/// that the vLLM paper reports (Kwon et al., arXiv 2309.06180, section 6.1): 161 and 338 tokens.
const SHAREGPT_PROMPT: LogNormal = LogNormal {
    mean: 161.0,
    sigma: 1.0,
};
const SHAREGPT_OUTPUT: LogNormal = LogNormal {
    mean: 338.0,
    sigma: 0.8,
};

/// A source of random tokens and lengths.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    state: u64,
    vocab_size: usize,
}

#[derive(Clone, Copy, Debug)]
struct LogNormal {
    mean: f64,
    /// Of the logarithm.
    sigma: f64,
}

impl Workload {
    pub(super) fn new(seed: u64, vocab_size: usize) -> Self {
        Self {
            state: seed,
            vocab_size,
        }
    }

    /// The next 64 random bits (SplitMix64).
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Random tokens.
    pub(super) fn tokens(&mut self, count: usize) -> Vec<TokenId> {
        let vocab_size = self.vocab_size as u64;
        (0..count)
            .map(|_| TokenId((self.bits() % vocab_size) as u32))
            .collect()
    }

    /// A length from `least` to `most`, each power of two as likely as the next.
    pub(super) fn spread_len(&mut self, least: usize, most: usize) -> usize {
        let (low, high) = ((least as f64).ln(), (most as f64 + 1.0).ln());
        let len = (low + (high - low) * self.unit()).exp() as usize;
        len.clamp(least, most)
    }

    /// Lengths of a prompt and an answer as in ShareGPT conversations, cut at 1,024 each.
    pub(super) fn sharegpt_lens(&mut self) -> (usize, usize) {
        let prompt = self.log_normal(SHAREGPT_PROMPT);
        (prompt, self.log_normal(SHAREGPT_OUTPUT))
    }

    fn log_normal(&mut self, lens: LogNormal) -> usize {
        // Box and Muller.
        let radius = (-2.0 * self.unit().ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        let median_ln = lens.mean.ln() - lens.sigma * lens.sigma / 2.0;
        let len = (median_ln + lens.sigma * normal).exp();
        (len as usize).clamp(4, 1024)
    }
}

/// A greedy request for exactly `output_len` tokens.
pub(super) fn request(prompt: Vec<TokenId>, output_len: usize) -> Request {
    Request {
        prompt,
        stop: StopParams {
            max_tokens: Some(output_len as u32),
            ignore_eos: true,
            ..StopParams::default()
        },
        ..Request::default()
    }
}
