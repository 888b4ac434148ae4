//! A draft: guesses for the tokens after a sequence's last one, as a tree.
//!
//! Neighbours: made by drafters, clipped by `scheduler.rs`, laid out by `step_batch/`, walked by
//! `commit.rs`. A chain is a tree with one branch.

use crate::TokenId;

/// A token tree under the anchor, the last committed token. Nodes have indices; a parent's index is
/// below its children's. Siblings have different tokens.
///
/// Drafters push the node they trust most first, so that a draft cut to its first nodes keeps the
/// best of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftTree {
    nodes: Vec<DraftNode>,
}

/// One guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftNode {
    /// The token.
    pub token: TokenId,
    /// Index of the node before it; `None` after the anchor.
    pub parent: Option<u32>,
    /// How it came about, which decides how it is verified.
    pub draw: DraftDraw,
}

/// How a draft token was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftDraw {
    /// Without chance: its draft distribution has all mass on it.
    Deterministic,
    /// Drawn from a distribution that the executor keeps until the step is verified: this row of
    /// all rows of the draft passes since the last step. Siblings share a row and were drawn from
    /// it without replacement, in the order of their indices.
    Sampled {
        /// Row of the kept distributions.
        row: u32,
    },
}

impl DraftTree {
    /// No guesses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a deterministic guess after `parent` and returns its index; the sibling that has this
    /// token already, if there is one.
    pub fn push(&mut self, parent: Option<u32>, token: TokenId) -> u32 {
        self.push_drawn(parent, token, DraftDraw::Deterministic)
    }

    /// Adds a guess after `parent` and returns its index; the sibling that has this token already,
    /// if there is one.
    ///
    /// # Panics
    /// If there is no such parent.
    pub fn push_drawn(&mut self, parent: Option<u32>, token: TokenId, draw: DraftDraw) -> u32 {
        if let Some(index) = self.child(parent, token) {
            return index;
        }
        let index = self.nodes.len() as u32;
        assert!(
            parent.is_none_or(|parent| parent < index),
            "a node comes after its parent"
        );
        self.nodes.push(DraftNode {
            token,
            parent,
            draw,
        });
        index
    }

    /// Adds tokens one after another behind `parent`; returns the last one's index.
    pub fn push_chain(
        &mut self,
        parent: Option<u32>,
        tokens: impl IntoIterator<Item = TokenId>,
    ) -> Option<u32> {
        tokens
            .into_iter()
            .fold(parent, |parent, token| Some(self.push(parent, token)))
    }

    /// In order of index.
    pub fn nodes(&self) -> &[DraftNode] {
        &self.nodes
    }

    /// Nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no guess.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Forgets all guesses.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Keeps the first `num_nodes` nodes.
    pub fn truncate(&mut self, num_nodes: usize) {
        self.nodes.truncate(num_nodes);
    }

    /// The child of `parent` with this token.
    pub fn child(&self, parent: Option<u32>, token: TokenId) -> Option<u32> {
        let first = parent.map_or(0, |parent| parent as usize + 1);
        let mut later = self.nodes.iter().enumerate().skip(first);
        later
            .find(|(_, node)| node.parent == parent && node.token == token)
            .map(|(index, _)| index as u32)
    }

    /// Children of `parent`, in the order of their indices.
    pub fn children(&self, parent: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(move |(index, node)| (node.parent == parent).then_some(index as u32))
    }

    /// Tokens between the anchor and the node, itself counted: 1 for a child of the anchor.
    pub fn depth(&self, node: u32) -> usize {
        self.path(node).count()
    }

    /// The node and its ancestors, from the node up.
    pub fn path(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(node), |&node| self.nodes[node as usize].parent)
    }

    /// Whether `ancestor` is the node itself or lies on the way to it: the ancestor mask.
    pub fn is_ancestor(&self, ancestor: u32, node: u32) -> bool {
        self.path(node).any(|on_path| on_path == ancestor)
    }

    /// Whether each node is the child of the one before it.
    pub fn is_chain(&self) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.all(|(index, node)| node.parent == (index as u32).checked_sub(1))
    }

    /// Puts the nodes into depth-first order, in which each branch is a run of nodes that follow
    /// their parents. Children keep their order.
    pub fn sort_depth_first(&mut self) {
        if self.is_chain() {
            return;
        }
        let mut sorted = Vec::with_capacity(self.nodes.len());
        // Of nodes yet to be placed: old index, and the new index of the parent.
        let mut open: Vec<(u32, Option<u32>)> = Vec::new();
        let push_children = |open: &mut Vec<_>, old: Option<u32>, new: Option<u32>| {
            let first = open.len();
            open.extend(self.children(old).map(|child| (child, new)));
            open[first..].reverse();
        };
        push_children(&mut open, None, None);
        while let Some((old, parent)) = open.pop() {
            let new = sorted.len() as u32;
            sorted.push(DraftNode {
                parent,
                ..self.nodes[old as usize]
            });
            push_children(&mut open, Some(old), Some(new));
        }
        self.nodes = sorted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32) -> TokenId {
        TokenId(id)
    }

    #[test]
    fn a_tree_sorted_depth_first_keeps_its_paths_and_the_order_of_children() {
        let mut tree = DraftTree::new();
        let a = tree.push(None, token(1));
        let b = tree.push(None, token(2));
        let c = tree.push(Some(a), token(3));
        let d = tree.push(Some(b), token(4));
        tree.push(Some(a), token(5));
        tree.push(Some(c), token(6));
        assert_eq!(tree.push(Some(b), token(4)), d, "siblings differ");
        assert!(!tree.is_chain());
        tree.sort_depth_first();
        let found: Vec<_> = tree.nodes().iter().map(|n| (n.token.0, n.parent)).collect();
        let expected = [
            (1, None),
            (3, Some(0)),
            (6, Some(1)),
            (5, Some(0)),
            (2, None),
            (4, Some(4)),
        ];
        assert_eq!(found, expected);
        assert_eq!(tree.path(2).collect::<Vec<_>>(), [2, 1, 0]);
        assert!(tree.is_ancestor(0, 2) && !tree.is_ancestor(2, 0));
        assert_eq!(tree.children(Some(0)).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(tree.depth(5), 2);
    }

    #[test]
    fn a_chain_is_a_tree_with_one_branch() {
        let mut tree = DraftTree::new();
        tree.push_chain(None, [7, 7, 8].map(TokenId));
        assert!(tree.is_chain());
        tree.truncate(2);
        assert_eq!((tree.len(), tree.depth(1)), (2, 2));
    }
}
