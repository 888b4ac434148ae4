//! A block manager together with what each slot of the KV cache would hold, so that a wrong block,
//! a missed copy or a write to a shared block shows.

use super::*;

/// What a slot holds: the keys and values of a token are a function of the tenant and of all tokens
/// up to it, so that is what is kept (hashed). `None`: never written.
type Content = Option<BlockHash>;

/// One sequence.
#[derive(Clone, Debug)]
pub(super) struct SimSequence {
    tenant: usize,
    pub(super) tables: Vec<BlockTable>,
    chain: HashChain,
    tokens: Vec<TokenId>,
    /// Final tokens: only these are published, and a rollback keeps them.
    num_verified: usize,
    num_computed: usize,
    /// Tokens that the step being planned computes.
    num_planned: usize,
}

/// The system under test and its shadow.
pub(super) struct Simulation {
    block_size: usize,
    windows: Vec<Option<usize>>,
    pub(super) blocks: BlockManager,
    /// Per group, one content per slot.
    slots: Vec<Vec<Content>>,
    pub(super) sequences: Vec<Option<SimSequence>>,
    pins: Vec<(Pin, usize, Vec<TokenId>)>,
    /// Tokens found in the cache, for a check that the test does something.
    pub(super) num_hit: usize,
    pub(super) num_copied: usize,
}

fn keys(tenant_number: usize) -> CacheKeys {
    tenant(&tenant_number.to_string())
}

impl Simulation {
    pub(super) fn new(config: &EngineConfig, num_sequences: usize) -> Self {
        let group_slots = |group: &KvGroupConfig| vec![None; group.num_blocks * config.block_size];
        Self {
            block_size: config.block_size,
            windows: config.groups.iter().map(|group| group.window).collect(),
            blocks: BlockManager::new(config),
            slots: config.groups.iter().map(group_slots).collect(),
            sequences: vec![None; num_sequences],
            pins: Vec::new(),
            num_hit: 0,
            num_copied: 0,
        }
    }

    /// What every position of a sequence should hold.
    fn expected(tenant: usize, tokens: &[TokenId]) -> Vec<Content> {
        // Not the root under test: tenants must differ here even if they do not there.
        let mut hash = BlockHash::from_bytes([tenant as u8 + 1; 32]);
        let step = |token: &TokenId| {
            hash = hash.child(&[*token]);
            Some(hash)
        };
        tokens.iter().map(step).collect()
    }

    /// A new sequence, with what the cache has of it. It waits if there is no room.
    pub(super) fn start(&mut self, place: usize, tenant: usize, tokens: &[TokenId]) {
        if self.sequences[place].is_some() || tokens.is_empty() {
            return;
        }
        let chain = self.blocks.new_chain(&keys(tenant));
        self.start_with(place, tenant, tokens, chain);
    }

    /// A sequence loses its blocks and comes back with its verified tokens and its chain.
    pub(super) fn preempt(&mut self, place: usize, publishes: bool) {
        let Some(sequence) = self.sequences[place].clone() else {
            return;
        };
        self.end(place, publishes);
        let tokens = &sequence.tokens[..sequence.num_verified];
        // Publishing may have made it longer.
        let mut chain = sequence.chain;
        chain.extend(tokens);
        self.start_with(place, sequence.tenant, tokens, chain);
    }

    fn start_with(
        &mut self,
        place: usize,
        tenant: usize,
        tokens: &[TokenId],
        mut chain: HashChain,
    ) {
        let mut tables = self.blocks.new_tables();
        let mut hit = self.blocks.lookup(&mut chain, tokens, tokens.len() - 1);
        assert!(hit.num_tokens < tokens.len(), "nothing is left to compute");
        if self
            .blocks
            .check_room(&tables, Some(&hit), tokens.len())
            .is_err()
        {
            hit = hit.without_partial();
            if self
                .blocks
                .check_room(&tables, Some(&hit), tokens.len())
                .is_err()
            {
                return;
            }
        }
        let num_computed = self.blocks.adopt(&mut tables, &hit).unwrap();
        self.num_hit += num_computed;
        self.sequences[place] = Some(SimSequence {
            tenant,
            tables,
            chain,
            tokens: tokens.to_vec(),
            num_verified: tokens.len(),
            num_computed,
            num_planned: 0,
        });
        // It was promised room for all.
        let num_left = tokens.len() - num_computed;
        assert!(self.plan(place, num_left));
    }

    /// Plans up to `num_tokens` of the tokens not computed yet. Returns whether there was room.
    pub(super) fn plan(&mut self, place: usize, num_tokens: usize) -> bool {
        let Some(sequence) = &mut self.sequences[place] else {
            return false;
        };
        let num_left = sequence.tokens.len() - sequence.num_computed;
        let num_planned = num_tokens.min(num_left).max(sequence.num_planned);
        let end = sequence.num_computed + num_planned;
        let before = (sequence.tables.clone(), self.blocks.num_free(0));
        let reserved = self
            .blocks
            .reserve(&mut sequence.tables, sequence.num_computed, end);
        if reserved.is_ok() {
            sequence.num_planned = num_planned;
        } else {
            let after = (sequence.tables.clone(), self.blocks.num_free(0));
            assert_eq!(before, after, "all or nothing");
        }
        reserved.is_ok()
    }

    /// More tokens become known, final or not, and are planned.
    pub(super) fn grow(&mut self, place: usize, tokens: &[TokenId], are_final: bool) {
        let Some(sequence) = &mut self.sequences[place] else {
            return;
        };
        sequence.tokens.extend(tokens);
        if are_final {
            sequence.num_verified = sequence.tokens.len();
        }
        self.plan(place, tokens.len());
    }

    /// The tokens after the verified ones go.
    pub(super) fn roll_back(&mut self, place: usize) {
        if let Some(sequence) = &mut self.sequences[place] {
            sequence.tokens.truncate(sequence.num_verified);
            sequence.num_computed = sequence.num_computed.min(sequence.num_verified);
            sequence.num_planned = 0;
        }
    }

    pub(super) fn fork(&mut self, from: usize, to: usize) {
        let Some(parent) = &self.sequences[from] else {
            return;
        };
        // Not in the middle of planning: what is planned is written in place.
        if self.sequences[to].is_none() && parent.num_planned == 0 {
            let mut fork = parent.clone();
            fork.tables = self.blocks.fork(&parent.tables);
            self.sequences[to] = Some(fork);
        }
    }

    /// The planned step runs: copies, then writes.
    pub(super) fn step(&mut self) {
        for (group, slots) in self.slots.iter_mut().enumerate() {
            for &(source, destination) in self.blocks.copies(group) {
                let start = source.index() * self.block_size;
                let to = destination.index() * self.block_size;
                slots.copy_within(start..start + self.block_size, to);
                self.num_copied += 1;
            }
        }
        let mut is_written: Vec<_> = self.slots.iter().map(|s| vec![false; s.len()]).collect();
        for sequence in self.sequences.iter().flatten() {
            let contents = Self::expected(sequence.tenant, &sequence.tokens);
            let planned = sequence.num_computed..sequence.num_computed + sequence.num_planned;
            for (group, table) in sequence.tables.iter().enumerate() {
                for position in planned.clone() {
                    let slot = table.slot_of(crate::Position(position as u32)).0 as usize;
                    self.check_write(group, slot / self.block_size);
                    assert!(!is_written[group][slot], "two writes to slot {slot}");
                    is_written[group][slot] = true;
                    self.slots[group][slot] = contents[position];
                }
            }
        }
        self.blocks.release_copy_sources();
        for sequence in self.sequences.iter_mut().flatten() {
            sequence.num_computed += std::mem::take(&mut sequence.num_planned);
        }
        self.check_contents();
    }

    fn check_write(&self, group: usize, block: usize) {
        assert!(block != 0, "the null block is written");
        let block = BlockId(block as u32);
        let tables = self.sequences.iter().flatten().map(|s| &s.tables[group]);
        let num_holders = tables.filter(|t| t.held_blocks().contains(&block)).count();
        let mut pins = self.blocks.pins.iter();
        let is_pinned = pins.any(|pin| pin.blocks(group).contains(&block));
        assert!(
            num_holders == 1 && !is_pinned,
            "block {block} is written, {num_holders} hold it"
        );
    }

    /// Every computed position that can still be seen holds what it should.
    fn check_contents(&self) {
        for sequence in self.sequences.iter().flatten() {
            let contents = Self::expected(sequence.tenant, &sequence.tokens);
            for (group, table) in sequence.tables.iter().enumerate() {
                let window = self.windows[group].unwrap_or(usize::MAX);
                let end = sequence.num_computed;
                let first = (end + 1).saturating_sub(window).min(end);
                for (position, content) in (first..).zip(&contents[first..end]) {
                    let slot = table.slot_of(crate::Position(position as u32)).0 as usize;
                    assert_eq!(
                        self.slots[group][slot], *content,
                        "group {group}, position {position} of {end}, slot {slot}"
                    );
                }
            }
        }
    }

    pub(super) fn publish(&mut self, place: usize) {
        if let Some(sequence) = &mut self.sequences[place] {
            let num_verified = sequence.num_verified.min(sequence.num_computed);
            let SimSequence {
                tables,
                chain,
                tokens,
                ..
            } = sequence;
            self.blocks.publish(tables, chain, tokens, num_verified);
        }
    }

    pub(super) fn release_outside_windows(&mut self, place: usize) {
        if let Some(sequence) = &mut self.sequences[place] {
            let num_committed = sequence.num_verified.min(sequence.num_computed);
            self.blocks
                .release_outside_windows(&mut sequence.tables, num_committed);
        }
    }

    pub(super) fn end(&mut self, place: usize, publishes: bool) {
        let Some(mut sequence) = self.sequences[place].take() else {
            return;
        };
        if publishes {
            let num_verified = sequence.num_verified.min(sequence.num_computed);
            self.blocks.release_published(
                &mut sequence.tables,
                &mut sequence.chain,
                &sequence.tokens,
                num_verified,
            );
        } else {
            self.blocks.release(&mut sequence.tables);
        }
    }

    pub(super) fn pin(&mut self, place: usize) {
        if let Some(sequence) = &self.sequences[place] {
            let tokens = sequence.tokens.clone();
            let keys = keys(sequence.tenant);
            if let Ok(pin) = self.blocks.pin(&keys, &tokens, None) {
                self.pins.push((pin, sequence.tenant, tokens));
            }
        }
    }

    pub(super) fn unpin(&mut self) {
        if let Some((pin, ..)) = self.pins.pop() {
            assert!(self.blocks.unpin(pin.id));
        }
    }

    pub(super) fn reset(&mut self) {
        self.blocks.reset_cache();
        self.pins.clear();
    }

    /// Counts, indexes, and that pinned prefixes can be found.
    pub(super) fn check(&self) {
        let sequences = self.sequences.iter().flatten();
        let all: Vec<_> = sequences.map(|s| s.tables.as_slice()).collect();
        self.blocks.check_integrity(&all).unwrap();
        for (pin, tenant, tokens) in &self.pins {
            let mut chain = self.blocks.new_chain(&keys(*tenant));
            let hit = self.blocks.lookup(&mut chain, tokens, pin.num_tokens);
            assert_eq!(hit.num_tokens, pin.num_tokens, "a pinned prefix is lost");
        }
    }
}
