//! Drafts of a given shape: tokens chosen or drawn behind a text.
//!
//! Neighbours: `world.rs` is the model that is drawn from; `joint.rs` verifies the drafts.

use forerun_engine::{Chance, DraftDraw, DraftTree, TokenId};

use crate::world::{World, normalise};

/// Parents of nodes; a node comes behind its parent.
pub(crate) type Shape = Vec<Option<usize>>;

/// One after another.
pub(crate) fn chain(len: usize) -> Shape {
    (0..len).map(|node| node.checked_sub(1)).collect()
}

/// All ordered trees with so many nodes below the anchor, nodes in depth-first order.
pub(crate) fn all_shapes(num_nodes: usize) -> Vec<Shape> {
    let mut shapes = vec![Shape::new()];
    for node in 0..num_nodes {
        let extend = |shape: Shape| {
            // The next node hangs from the last one or from any above it.
            let last = node.checked_sub(1);
            let up = |&at: &Option<usize>| at.map(|at: usize| shape[at]);
            let parents: Vec<_> = std::iter::successors(Some(last), up).collect();
            parents.into_iter().map(move |parent| {
                let mut shape = shape.clone();
                shape.push(parent);
                shape
            })
        };
        shapes = shapes.into_iter().flat_map(extend).collect();
    }
    shapes
}

/// How tokens of a draft come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draws {
    /// The likeliest tokens.
    Deterministic,
    /// Siblings drawn without replacement.
    Drawn,
    /// Of some nodes the first child is drawn and the others are not, of some all or none are drawn.
    Mixed,
}

impl Draws {
    pub(crate) const ALL: [Self; 3] = [Self::Deterministic, Self::Drawn, Self::Mixed];

    fn num_drawn(self, parent: Option<usize>) -> usize {
        match self {
            Self::Deterministic => 0,
            Self::Drawn => usize::MAX,
            // The anchor's first child is drawn.
            Self::Mixed => [1, 0, usize::MAX][parent.map_or(0, |parent| parent + 1) % 3],
        }
    }
}

/// A bug in how drafts are made or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Drawn tokens that the row thinks unlikely are dropped.
    DropsUnlikely,
    /// Drawn tokens that the target's mask or filters exclude are dropped.
    DropsIllegal,
    /// Drawn at another temperature than the row that is told.
    DrawsSharper,
    /// The likeliest token is taken, and told as if it had been drawn.
    TellsArgmaxAsDrawn,
    /// Siblings are drawn behind a guess that is there already; a draw that falls on it is
    /// dropped.
    MergesDraws,
}

/// Makes drafts of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Drafter<'a> {
    pub(crate) shape: Shape,
    pub(crate) draws: Draws,
    /// What is drawn from.
    pub(crate) model: &'a World,
    /// The chain ends behind this token: what a confidence limit does.
    pub(crate) stops_behind: Option<u32>,
    /// Each sibling is drawn from all of the row, and dropped if it is there already: another way
    /// to draw without replacement, which gives fewer siblings.
    pub(crate) draws_whole_row: bool,
    pub(crate) flaw: Option<(Flaw, &'a World)>,
}

/// A draft and the rows that it was drawn from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) tree: DraftTree,
    pub(crate) rows: Vec<Vec<f64>>,
}

/// Children of one node while they are drawn.
struct Siblings {
    row: u32,
    left: Vec<f64>,
    num: usize,
}

impl<'a> Drafter<'a> {
    pub(crate) fn new(shape: Shape, draws: Draws, model: &'a World) -> Self {
        Self {
            shape,
            draws,
            model,
            stops_behind: None,
            draws_whole_row: false,
            flaw: None,
        }
    }

    pub(crate) fn flawed(self, flaw: Flaw, target: &'a World) -> Self {
        Self {
            flaw: Some((flaw, target)),
            ..self
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw.is_some_and(|(found, _)| found == flaw)
    }

    /// A draft behind `text`. Nodes for which there is no token are left out with all behind them.
    pub(crate) fn draft(&self, text: &[u32], chance: &mut impl Chance) -> Draft {
        let mut draft = Draft::default();
        let mut placed: Vec<Option<u32>> = Vec::new();
        let mut families: Vec<Option<Siblings>> = Vec::new();
        families.resize_with(self.shape.len() + 1, || None);
        for &parent in &self.shape {
            let above = match parent {
                None => None,
                Some(parent) => match placed[parent] {
                    None => {
                        placed.push(None);
                        continue;
                    }
                    above => above,
                },
            };
            let stops = above.is_some_and(|above| {
                Some(draft.tree.nodes()[above as usize].token.0) == self.stops_behind
            });
            let text = text_behind(text, &draft.tree, above);
            let family = &mut families[parent.map_or(0, |parent| parent + 1)];
            let node = match self.model.distribution(&text) {
                Some(distribution) if !stops => {
                    let siblings = family.get_or_insert_with(|| Siblings {
                        row: draft.rows.len() as u32,
                        left: distribution.clone(),
                        num: 0,
                    });
                    if siblings.row as usize == draft.rows.len() {
                        draft.rows.push(distribution);
                    }
                    siblings.num += 1;
                    let is_drawn = self.is_drawn(parent, siblings.num);
                    let place = (&text[..], above);
                    if is_drawn {
                        self.draw(&mut draft, place, siblings, chance)
                    } else {
                        choose(&mut draft, above, siblings)
                    }
                }
                _ => None,
            };
            placed.push(node);
        }
        draft
    }

    fn is_drawn(&self, parent: Option<usize>, number: usize) -> bool {
        if self.has(Flaw::MergesDraws) {
            number > 1
        } else {
            number <= self.draws.num_drawn(parent)
        }
    }

    fn draw(
        &self,
        draft: &mut Draft,
        (text, above): (&[u32], Option<u32>),
        siblings: &mut Siblings,
        chance: &mut impl Chance,
    ) -> Option<u32> {
        let mut weights = siblings.left.clone();
        if weights.iter().sum::<f64>() <= 0.0 {
            return None;
        }
        if self.has(Flaw::DrawsSharper) {
            for weight in &mut weights {
                *weight *= *weight;
            }
        }
        normalise(&mut weights);
        let token = if self.has(Flaw::TellsArgmaxAsDrawn) {
            likeliest(&weights)
        } else {
            chance.draw(&weights)
        };
        if !self.draws_whole_row && !self.has(Flaw::MergesDraws) {
            siblings.left[token] = 0.0;
        }
        let told = draft.rows[siblings.row as usize][token];
        let (token, draw) = (token as u32, DraftDraw::Sampled { row: siblings.row });
        let is_illegal = |(_, target): (Flaw, &World)| {
            let target = target.distribution(text);
            target.is_none_or(|target| target[token as usize] <= 0.0)
        };
        let is_there = draft.tree.child(above, TokenId(token)).is_some();
        if is_there
            || self.has(Flaw::DropsUnlikely) && told < 0.25
            || self.has(Flaw::DropsIllegal) && self.flaw.is_some_and(is_illegal)
        {
            return None;
        }
        Some(draft.tree.push_drawn(above, TokenId(token), draw))
    }
}

/// The likeliest token that no sibling is.
fn choose(draft: &mut Draft, above: Option<u32>, siblings: &mut Siblings) -> Option<u32> {
    let row = &draft.rows[siblings.row as usize];
    let mut weights = row.clone();
    for (token, weight) in weights.iter_mut().enumerate() {
        if draft.tree.child(above, TokenId(token as u32)).is_some() {
            *weight = -1.0;
        }
    }
    let token = likeliest(&weights);
    let is_new = weights[token] >= 0.0;
    is_new.then(|| draft.tree.push(above, TokenId(token as u32)))
}

fn likeliest(weights: &[f64]) -> usize {
    let better = |best: usize, token: usize| {
        if weights[token] > weights[best] {
            token
        } else {
            best
        }
    };
    (0..weights.len()).reduce(better).unwrap()
}

/// The text with the path to a node behind it.
pub(crate) fn text_behind(text: &[u32], tree: &DraftTree, node: Option<u32>) -> Vec<u32> {
    let path = node.map(|node| tree.path(node).collect::<Vec<_>>());
    let path = path.unwrap_or_default().into_iter().rev();
    let tokens = path.map(|node| tree.nodes()[node as usize].token.0);
    text.iter().copied().chain(tokens).collect()
}

#[test]
fn there_are_as_many_shapes_as_ordered_trees() {
    assert_eq!(
        [1, 2, 3, 4, 5].map(|n| all_shapes(n).len()),
        [1, 2, 5, 14, 42]
    );
}
