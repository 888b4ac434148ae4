//! Processing of logits against the goldens of `fixtures/algo/sampler.json`, on every device, and in the
//! reference that defines it.

use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::logits_process::flex::reference;
use forerun_kernels::logits_process::logits_process;
use forerun_kernels::step_inputs::{SamplingRow, TokenCount};
use forerun_tests::parity::TestDevice;
use forerun_tests::parity::step::StepPlan;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    cases: Vec<Golden>,
}

#[derive(Deserialize)]
struct Golden {
    params: Parameters,
    logits: Vec<f32>,
    prompt_tokens: Vec<u32>,
    output_tokens: Vec<u32>,
    /// After the temperature; null is masked.
    processed: Vec<Option<f64>>,
    kept: usize,
    probs: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
        }
    }
}

impl Golden {
    fn history(&self) -> Vec<TokenCount> {
        let count = |token| self.output_tokens.iter().filter(|&&t| t == token).count();
        (0..self.logits.len() as u32)
            .map(|token| TokenCount {
                token,
                output_count: count(token) as u32,
                in_prompt: self.prompt_tokens.contains(&token),
            })
            .collect()
    }

    fn sampling(&self) -> SamplingRow {
        let parameters = &self.params;
        SamplingRow {
            top_k: parameters.top_k,
            top_p: parameters.top_p,
            min_p: parameters.min_p,
            typical_p: parameters.typical_p,
            repetition_penalty: parameters.repetition_penalty,
            presence_penalty: parameters.presence_penalty,
            frequency_penalty: parameters.frequency_penalty,
            history: (0, self.logits.len() as u32),
            ..SamplingRow::plain(parameters.temperature, 0, 0)
        }
    }

    fn run(&self, device: &Device) -> Vec<f32> {
        let mut plan = StepPlan::tokens(1);
        plan.vocab_size = self.logits.len();
        plan.history = self.history();
        plan.sampling = vec![self.sampling()];
        plan.logit_rows = vec![0];
        plan.rows_max = 1;
        let data = TensorData::new(self.logits.clone(), [1, self.logits.len()]);
        let logits = Tensor::from_data(data, device);
        let processed = logits_process(logits, plan.upload(1, device)).into_data();
        processed
            .as_slice::<f32>()
            .expect("logits are f32")
            .to_vec()
    }

    /// What is wrong with these logits, of which `-inf` are masked.
    fn check(&self, found: &[f64]) -> Result<(), String> {
        let temperature = f64::from(self.params.temperature);
        let kept = found.iter().filter(|x| x.is_finite()).count();
        if kept != self.kept {
            return Err(format!("{kept} tokens are kept, expected {}", self.kept));
        }
        let maximum = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mass = |x: f64| ((x - maximum) / temperature).exp();
        let total: f64 = found.iter().map(|&x| mass(x)).sum();
        for (token, &x) in found.iter().enumerate() {
            let same = match self.processed[token] {
                None => x == f64::NEG_INFINITY,
                Some(expected) => (x / temperature - expected).abs() < 1e-4,
            };
            let p = mass(x) / total;
            if !same || (p - self.probs[token]).abs() > 1e-5 {
                return Err(format!("token {token} is {x}, probability {p}"));
            }
        }
        Ok(())
    }
}

fn goldens() -> Vec<Golden> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/algo/sampler.json");
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    let file: File = serde_json::from_str(&text).expect("the fixture has this form");
    assert_eq!(file.cases.len(), 60);
    file.cases
}

#[test]
fn all_sixty_goldens_come_out_on_every_device() {
    let mut failures = Vec::new();
    for kind in TestDevice::ALL {
        let Ok(device) = kind.open() else { continue };
        for (i, golden) in goldens().iter().enumerate() {
            let found: Vec<f64> = golden.run(&device).into_iter().map(f64::from).collect();
            if let Err(error) = golden.check(&found) {
                failures.push(format!("{} case {i}: {error}", kind.name()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn all_sixty_goldens_come_out_of_the_definition() {
    for (i, golden) in goldens().iter().enumerate() {
        let outcome = reference::process(&reference::Row {
            logits: &golden.logits,
            sampling: golden.sampling(),
            history: &golden.history(),
            bias: &[],
            mask: None,
            carried: None,
        });
        let found: Vec<f64> = outcome
            .logits
            .iter()
            .zip(&outcome.kept)
            .map(|(&logit, &kept)| if kept { logit } else { f64::NEG_INFINITY })
            .collect();
        golden
            .check(&found)
            .unwrap_or_else(|error| panic!("case {i}: {error}"));
    }
}
