//! What went wrong in other engines, as tests of the definition.
//!
//! Neighbours: `mutants.rs` plants most of these bugs.

use forerun_engine::{
    Chance, DraftDraw, DraftTree, Drafted, SamplingParams, TokenId, verify_rejection,
};

use crate::branches::enumerate;
use crate::drafter::{Drafter, Draws, Flaw, Shape, chain, text_behind};
use crate::fake_model::mix;
use crate::joint::{BLOCK, ERROR_MAX, REJECTION, joint_error};
use crate::world::World;

/// Top-k 3 and top-p 0.9.
fn filtered(temperature: f32) -> SamplingParams {
    SamplingParams {
        temperature,
        top_k: 3,
        top_p: 0.9,
        ..SamplingParams::default()
    }
}

/// huggingface/transformers#47932: a drafter told a distribution it had not drawn from.
#[test]
fn a_drafter_that_takes_the_likeliest_token_is_deterministic_and_not_drawn() {
    let (target, model) = (
        World::with(1, 5, filtered(0.7)),
        World::with(2, 5, filtered(0.7)),
    );
    for rule in [REJECTION, BLOCK] {
        let honest = Drafter::new(chain(2), Draws::Deterministic, &model);
        assert!(joint_error(&target, &honest, rule, 3) < ERROR_MAX);
        let drawn = Drafter::new(chain(2), Draws::Drawn, &model);
        assert!(joint_error(&target, &drawn, rule, 3) < ERROR_MAX);
        let lying = drawn.flawed(Flaw::TellsArgmaxAsDrawn, &target);
        assert!(joint_error(&target, &lying, rule, 3) > 1e-3);
    }
}

/// Chance that refuses and accepts as told, and keeps what was asked.
struct Told {
    accepts: Vec<bool>,
    asked: Vec<f64>,
    drawn_from: Vec<f64>,
}

impl Chance for Told {
    fn happens(&mut self, probability: f64) -> bool {
        self.asked.push(probability);
        self.accepts[self.asked.len() - 1]
    }

    fn draw(&mut self, distribution: &[f64]) -> usize {
        self.drawn_from = distribution.to_vec();
        distribution.iter().position(|&p| p > 0.0).unwrap()
    }
}

/// vllm-project/vllm-ascend#2881: the replacement was drawn in a row that others still read.
#[test]
fn a_replacement_is_drawn_without_the_draft_and_changes_no_row() {
    let rows = [
        vec![0.5, 0.25, 0.125, 0.125],
        vec![0.125, 0.5, 0.25, 0.125],
        vec![0.25, 0.25, 0.25, 0.25],
        vec![0.125, 0.125, 0.25, 0.5],
    ];
    let mut tree = DraftTree::new();
    tree.push_chain(None, [0, 1, 2].map(TokenId));
    let row_behind = |node: Option<u32>| node.map_or(0, |node| node as usize + 1);
    let drafted = Drafted {
        tree: &tree,
        target: &|node| Some(rows[row_behind(node)].clone()),
        draft: &|_| unreachable!("nothing was drawn"),
    };
    let run = |accepts: &[bool]| {
        let mut told = Told {
            accepts: accepts.to_vec(),
            asked: Vec::new(),
            drawn_from: Vec::new(),
        };
        let verdicts = verify_rejection(drafted, &mut told);
        assert_eq!(verdicts.path.len(), accepts.iter().filter(|&&a| a).count());
        (told.asked, told.drawn_from)
    };
    // Two rejections of one batch, then a run that accepts all: each finds p as it was.
    assert_eq!(run(&[false]), (vec![0.5], vec![0.0, 0.5, 0.25, 0.25]));
    assert_eq!(
        run(&[true, false]),
        (vec![0.5, 0.5], vec![0.25, 0.0, 0.5, 0.25])
    );
    let (asked, drawn_from) = run(&[true, true, true]);
    assert_eq!((asked, drawn_from), (vec![0.5, 0.5, 0.25], rows[3].clone()));
}

/// vllm-project/vllm#40269: rows of draft distributions got lost, or changed their owners.
#[test]
fn each_draft_is_judged_by_its_own_row() {
    // Drafts of three requests share one list of rows; the middle request has left, and another
    // came, whose rows are at the end.
    let requests = [0.3_f32, 0.7, 1.0].map(|temperature| {
        let seed = temperature.to_bits().into();
        let target = World::with(seed, 4, filtered(temperature));
        (target, World::with(seed + 1, 4, filtered(temperature)))
    });
    let error_with = |swaps: bool| {
        let mut worst = 0.0_f64;
        for at in [0, 2, 1] {
            let (target, model) = &requests[at];
            let stranger = &requests[(at + 1) % 3].1;
            let drafter = Drafter::new(chain(2), Draws::Drawn, model);
            let mut texts = [0.0; 4];
            for (drafted_with, draft) in enumerate(|chance| drafter.draft(&[], chance)) {
                // Rows before belong to whoever was scheduled before.
                let mut rows = vec![stranger.distribution(&[]).unwrap(); at];
                rows.extend(draft.rows.iter().cloned());
                let shift = if swaps { 0 } else { at };
                let mut tree = DraftTree::new();
                let mut last = None;
                for node in draft.tree.nodes() {
                    let DraftDraw::Sampled { row } = node.draw else {
                        unreachable!("all are drawn")
                    };
                    let draw = DraftDraw::Sampled {
                        row: row + shift as u32,
                    };
                    last = Some(tree.push_drawn(last, node.token, draw));
                }
                let drafted = Drafted {
                    tree: &tree,
                    target: &|node| target.distribution(&text_behind(&[], &tree, node)),
                    draft: &|row| &rows[row as usize],
                };
                for (p, verdicts) in enumerate(|chance| verify_rejection(drafted, chance)) {
                    texts[verdicts.tokens(&tree)[0].0 as usize] += drafted_with * p;
                }
            }
            let expected = target.distribution(&[]).unwrap();
            let errors = texts.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            worst = errors.fold(worst, f64::max);
        }
        worst
    };
    assert!(error_with(false) < ERROR_MAX);
    assert!(error_with(true) > 1e-3);
}

/// vllm-project/vllm#18902: frequency penalties did nothing with drafts.
#[test]
fn a_penalty_counts_the_drafts_before_and_no_rejected_one() {
    for penalty in [-2.0, 2.0] {
        let mut target = World::new(3, 3);
        target.params.frequency_penalty = penalty;
        target.prompt = vec![2, 2, 2];
        // Drafts repeat a word.
        let mut model = World::new(4, 3);
        model.params.logit_bias = vec![(TokenId(2), 20.0)];
        for rule in [REJECTION, BLOCK] {
            let drafter = Drafter::new(chain(3), Draws::Deterministic, &model);
            assert!(joint_error(&target, &drafter, rule, 4) < ERROR_MAX);
        }
        let repeats = |num: usize| target.distribution(&vec![2; num]).unwrap()[2];
        let mut plain = World::new(3, 3);
        plain.prompt.clone_from(&target.prompt);
        for num in 1..3 {
            let unpenalised = plain.distribution(&vec![2; num]).unwrap()[2];
            assert_eq!(repeats(num) > unpenalised, penalty < 0.0);
        }
    }
}

/// sgl-project/sglang#33643: `min_tokens` counted steps.
#[test]
fn the_end_is_legal_after_as_many_tokens_whatever_was_accepted() {
    let mut target = World::new(5, 3);
    target.num_tokens_min = 3;
    let model = World::new(6, 3);
    for draws in Draws::ALL {
        let drafter = Drafter::new(chain(4), draws, &model);
        for (text, probability) in crate::joint::emitted(&target, &drafter, REJECTION, 4) {
            let early = text[..3].contains(&1);
            assert!(!early || probability <= 0.0, "{text:?}: {probability}");
        }
        assert!(joint_error(&target, &drafter, REJECTION, 4) < ERROR_MAX);
    }
}

/// A generator with a seed: SplitMix64.
struct Seeded(u64);

impl Seeded {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0, 0x5eed) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Chance for Seeded {
    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    fn draw(&mut self, distribution: &[f64]) -> usize {
        let uniform = self.uniform();
        let mut sum = 0.0;
        let found = distribution.iter().position(|p| {
            sum += p;
            uniform < sum
        });
        // Rounding may leave the sum below 1.
        found.unwrap_or_else(|| distribution.iter().rposition(|&p| p > 0.0).unwrap())
    }
}

/// Pearson's statistic of the first two tokens over many steps, and its degrees of freedom.
fn chi_square(target: &World, drafter: &Drafter<'_>, num_texts: usize) -> (f64, usize) {
    let vocab_size = target.vocab_size;
    let mut counts = vec![0_u32; vocab_size * vocab_size];
    let mut chance = Seeded(0);
    for _ in 0..num_texts {
        let mut text = Vec::new();
        while text.len() < 2 {
            let draft = drafter.draft(&text, &mut chance);
            let drafted = Drafted {
                tree: &draft.tree,
                target: &|node| target.distribution(&text_behind(&text, &draft.tree, node)),
                draft: &|row| &draft.rows[row as usize],
            };
            let verdicts = verify_rejection(drafted, &mut chance);
            let tokens = verdicts.tokens(&draft.tree);
            text.extend(tokens.iter().map(|token| token.0));
        }
        counts[text[0] as usize * vocab_size + text[1] as usize] += 1;
    }
    let (mut sum, mut num_cells, mut rest) = (0.0, 0, (0.0, 0.0));
    let mut add = |found: f64, expected: f64| {
        sum += (found - expected).powi(2) / expected;
        num_cells += 1;
    };
    for (cell, &count) in counts.iter().enumerate() {
        let text = [(cell / vocab_size) as u32, (cell % vocab_size) as u32];
        let expected = num_texts as f64 * target.joint(&text);
        // Rare texts are counted as one.
        if expected < 10.0 {
            rest = (rest.0 + f64::from(count), rest.1 + expected);
        } else {
            add(count.into(), expected);
        }
    }
    if rest.1 > 1.0 {
        add(rest.0, rest.1);
    }
    (sum, num_cells - 1)
}

/// SafeAILab/EAGLE#50: trees drawn at temperature 1 changed what was said.
#[test]
fn three_drawn_siblings_at_each_node_of_two_levels_keep_the_first_two_tokens() {
    let (target, model) = (World::new(7, 8), World::new(8, 8));
    let mut shape: Shape = Vec::new();
    for _ in 0..3 {
        let child = shape.len();
        shape.extend([None, Some(child), Some(child), Some(child)]);
    }
    let drafter = Drafter::new(shape, Draws::Drawn, &model);
    let (found, freedom) = chi_square(&target, &drafter, 200_000);
    // The 0.9999 quantile, by Wilson and Hilferty's approximation.
    let (k, z) = (freedom as f64, 3.719);
    let limit = k * (1.0 - 2.0 / (9.0 * k) + z * (2.0 / (9.0 * k)).sqrt()).powi(3);
    assert!(
        freedom > 30 && found < limit,
        "{found} of {limit}, {freedom}"
    );
    let (mutant, _) = chi_square(
        &target,
        &drafter.flawed(Flaw::DrawsSharper, &target),
        200_000,
    );
    assert!(mutant > limit, "{mutant} of {limit}");
    // The first level by enumeration.
    let drafter = Drafter::new(vec![None; 3], Draws::Drawn, &model);
    assert!(joint_error(&target, &drafter, REJECTION, 1) < ERROR_MAX);
}
