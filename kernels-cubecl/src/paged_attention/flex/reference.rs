//! Attention by its definition, in f64: what the fast one is tested against.

use crate::spec::AttentionSpec;
use crate::step_inputs::StepView;

/// Same arguments as [`super::paged_attention`]; one score at a time.
pub fn paged_attention(
    qkv: &[f32],
    kv_pool: &[f32],
    step: StepView<'_>,
    spec: &AttentionSpec,
    out: &mut [f32],
) {
    let kv = &spec.kv;
    let (d, heads) = (kv.head_dim, kv.num_heads);
    let row_len = (heads + 2 * kv.num_kv_heads) * d;
    for token in 0..step.num_tokens() {
        let position = step.positions()[token] as usize;
        let seq = step.seq_of_token()[token] as usize;
        let table = step.block_table(kv.group, seq);
        let first = spec
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        for head in 0..heads {
            let query = &qkv[token * row_len + head * d..][..d];
            let kv_head = head / (heads / kv.num_kv_heads);
            // Row of K (0) or V (1) at a position.
            let row = |position: usize, k_or_v: usize| {
                let place = step.place_of(seq, position);
                let block = table[place / kv.block_size] as usize;
                let head = (2 * block + k_or_v) * kv.num_kv_heads + kv_head;
                let slot = head * kv.block_size + place % kv.block_size;
                &kv_pool[slot * d..(slot + 1) * d]
            };
            let score = |position| {
                let products = query.iter().zip(row(position, 0));
                let dot: f64 = products.map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                let score = dot * f64::from(spec.scale);
                spec.soft_cap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            };
            let maximum = (first..=position)
                .map(score)
                .fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            let mut values = vec![0.0; d];
            for position in first..=position {
                let weight = (score(position) - maximum).exp();
                sum += weight;
                for (value, &v) in values.iter_mut().zip(row(position, 1)) {
                    *value += weight * f64::from(v);
                }
            }
            let out = &mut out[(token * heads + head) * d..][..d];
            for (out, value) in out.iter_mut().zip(values) {
                *out = (value / sum) as f32;
            }
        }
    }
}
