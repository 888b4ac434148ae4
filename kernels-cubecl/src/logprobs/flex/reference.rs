//! Logprobs by their definition, in f64.

/// Log-softmax of a row at a temperature.
pub fn log_softmax(logits: &[f32], temperature: f32) -> Vec<f64> {
    let scaled = |&logit: &f32| f64::from(logit) / f64::from(temperature);
    let maximum = logits.iter().map(scaled).fold(f64::NEG_INFINITY, f64::max);
    let mass: f64 = logits.iter().map(|x| (scaled(x) - maximum).exp()).sum();
    logits
        .iter()
        .map(|x| scaled(x) - maximum - mass.ln())
        .collect()
}

/// The tokens, greatest logit first, lowest id first among equals.
pub fn order(logits: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    tokens.sort_by(|&a, &b| {
        let (a, b) = (logits[a as usize], logits[b as usize]);
        b.partial_cmp(&a).expect("the row has no NaN")
    });
    tokens
}
