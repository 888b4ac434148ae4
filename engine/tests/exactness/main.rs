//! Verification of drafts is exact: every outcome of chance is enumerated, that of drafting included,
//! and the distribution of emitted texts compared with the target's.
//!
//! `branches.rs` enumerates; `world.rs` is the target and the draft model, with the whole logits
//! chain; `drafter.rs` draws drafts of every shape; `joint.rs` composes steps into texts. What is
//! shown: `shapes.rs` (chains and trees), `features.rs` (filters, penalties, masks), `walks.rs`
//! (greedy and shared noise), `block.rs`, `cases.rs` (what went wrong in other engines),
//! `goldens.rs` (a trusted implementation's verdicts). `mutants.rs` plants bugs into acceptance and
//! drafters: each has to be seen.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod block;
mod branches;
mod cases;
mod drafter;
#[expect(
    dead_code,
    reason = "the simulator's model: its logits and the edits of its chain are used here"
)]
#[path = "../sim/fake_model.rs"]
mod fake_model;
mod features;
mod goldens;
mod joint;
mod mutants;
mod shapes;
mod walks;
mod world;
