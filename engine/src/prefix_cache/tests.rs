//! Tests of the prefix cache alone: collisions, and damage.

use super::*;

const ROOT: BlockHash = BlockHash::WITHOUT_KEYS;

fn tokens(ids: [u32; 4]) -> [TokenId; 4] {
    ids.map(TokenId)
}

fn content(parent: BlockHash, index: usize, tokens: &[TokenId]) -> BlockContent<'_> {
    BlockContent {
        parent,
        index,
        tokens,
    }
}

/// A hash of which eight bits are left.
fn short(hash: BlockHash) -> BlockHash {
    let mut bytes = [0; 32];
    bytes[0] = hash.as_bytes()[0];
    BlockHash::from_bytes(bytes)
}

// CASES B37.
#[test]
fn prompts_whose_short_hashes_collide_never_get_each_others_blocks() {
    let mut cache = PrefixCache::new(600, 4);
    let prompts: Vec<_> = (0..599).map(|number| tokens([number, 1, 2, 3])).collect();
    let mut num_found = 0;
    for (block, prompt) in (1..).map(BlockId).zip(&prompts) {
        cache.publish_full(block, short(ROOT.child(prompt)), content(ROOT, 0, prompt));
    }
    for prompt in &prompts {
        if let Some(block) = cache.find(&short(ROOT.child(prompt)), &ROOT, prompt) {
            assert_eq!(cache.valid_tokens(block), prompt);
            num_found += 1;
        }
    }
    // Of those with one name the first is kept: there are 256 names.
    assert!((100..=256).contains(&num_found), "{num_found} are found");
    assert_eq!(cache.num_cached(), num_found);
}

// CASES B37.
#[test]
fn an_index_of_eight_bits_finds_every_block_and_no_wrong_one() {
    let mut cache = PrefixCache::new(600, 4);
    for index in [
        &mut cache.by_hash,
        &mut cache.by_parent,
        &mut cache.by_first_tokens,
    ] {
        *index = BlockIndex::with_key_mask(600, 0xff);
    }
    let prompts: Vec<_> = (0..599).map(|number| tokens([number, 1, 2, 3])).collect();
    for (block, prompt) in (1..).map(BlockId).zip(&prompts) {
        cache.publish_full(block, ROOT.child(prompt), content(ROOT, 0, prompt));
    }
    cache.check_integrity().unwrap();
    for (block, prompt) in (1..).map(BlockId).zip(&prompts) {
        assert_eq!(cache.find(&ROOT.child(prompt), &ROOT, prompt), Some(block));
        let other = tokens([prompt[0].0, 1, 2, 4]);
        assert_eq!(cache.find(&ROOT.child(&other), &ROOT, &other), None);
        let other_parent = ROOT.child(&other);
        assert_eq!(cache.find(&ROOT.child(prompt), &other_parent, prompt), None);
        assert!(cache.best_child(&other_parent, prompt).is_none());
        assert!(cache.any_begins_with(prompt) && !cache.any_begins_with(&other));
    }
}

#[test]
fn a_partial_block_that_another_serves_is_not_published_and_a_full_one_replaces_it() {
    let mut cache = PrefixCache::new(8, 4);
    let full = tokens([1, 2, 3, 4]);
    cache.publish_partial(BlockId(1), content(ROOT, 0, &full[..2]));
    cache.publish_partial(BlockId(2), content(ROOT, 0, &full[..1]));
    cache.publish_partial(BlockId(3), content(ROOT, 0, &[]));
    assert_eq!(cache.num_cached(), 1);
    cache.publish_partial(BlockId(2), content(ROOT, 0, &full[..3]));
    assert_eq!(cache.best_child(&ROOT, &full), Some((BlockId(2), 3)));
    cache.publish_full(BlockId(1), ROOT.child(&full), content(ROOT, 0, &full));
    assert_eq!(cache.num_cached(), 2);
    assert_eq!(cache.best_child(&ROOT, &full), Some((BlockId(1), 4)));
    cache.check_integrity().unwrap();
    assert_eq!(cache.unpublish(BlockId(2)), None, "it had no name");
    assert_eq!(cache.unpublish(BlockId(1)), Some(ROOT.child(&full)));
    assert_eq!(
        (cache.num_cached(), cache.best_child(&ROOT, &full)),
        (0, None)
    );
}

#[test]
fn a_popular_parent_costs_a_bounded_number_of_comparisons() {
    let mut cache = PrefixCache::new(1000, 4);
    for number in 1..1000 {
        let block = tokens([7, number, 0, 0]);
        cache.publish_full(
            BlockId(number),
            ROOT.child(&block),
            content(ROOT, 0, &block),
        );
    }
    // The newest are compared; of an older one only the common first token is found.
    assert_eq!(
        cache.best_child(&ROOT, &tokens([7, 990, 0, 0])),
        Some((BlockId(990), 4))
    );
    assert_eq!(
        cache.best_child(&ROOT, &tokens([7, 3, 0, 0])),
        Some((BlockId(999), 1))
    );
}

#[test]
fn each_kind_of_damage_is_found() {
    type Damage = fn(&mut PrefixCache);
    let sound = || {
        let mut cache = PrefixCache::new(8, 4);
        let (first, second) = (tokens([1, 2, 3, 4]), tokens([5, 6, 7, 8]));
        let parent = ROOT.child(&first);
        cache.publish_full(BlockId(1), parent, content(ROOT, 0, &first));
        cache.publish_full(
            BlockId(2),
            parent.child(&second),
            content(parent, 1, &second),
        );
        cache.publish_partial(BlockId(3), content(parent, 1, &second[1..]));
        cache
    };
    sound().check_integrity().unwrap();
    let damages: [(Damage, &str); 12] = [
        (|c| c.by_hash.remove(BlockId(1)), "by_hash"),
        (|c| c.by_parent.remove(BlockId(3)), "by_parent"),
        (|c| c.by_first_tokens.remove(BlockId(1)), "by_first_tokens"),
        (|c| c.by_hash.insert(BlockId(3), 5), "by_hash"),
        (
            |c| c.by_first_tokens.insert(BlockId(2), 5),
            "by_first_tokens",
        ),
        (|c| c.by_parent.insert(BlockId(5), 5), "by_parent"),
        (
            |c| c.by_parent.node_mut(BlockId(2)).prev = BlockId(2),
            "linked",
        ),
        (|c| c.entries[2].num_valid = 0, "wrongly filed"),
        (|c| c.entries[3].num_valid = 4, "wrongly filed"),
        (|c| c.tokens[2 * 4 + 3] = TokenId(9), "its tokens make"),
        (|c| c.entries[0].num_valid = 1, "null block"),
        (|c| c.num_cached = 2, "counted as published"),
    ];
    for (number, (damage, message)) in damages.into_iter().enumerate() {
        let mut cache = sound();
        damage(&mut cache);
        let error = cache.check_integrity().unwrap_err().to_string();
        assert!(error.contains(message), "damage {number}: {error}");
    }
    let mut twice = sound();
    let (first, parent) = (tokens([1, 2, 3, 4]), ROOT.child(&tokens([1, 2, 3, 4])));
    twice.insert(BlockId(6), parent, content(ROOT, 0, &first));
    twice.by_hash.insert(BlockId(6), parent.index_key());
    let key = BlockHash::WITHOUT_KEYS.child(&first).index_key();
    twice.by_first_tokens.insert(BlockId(6), key);
    let error = twice.check_integrity().unwrap_err();
    assert!(matches!(error, CacheIntegrityError::SameName { .. }));
}

impl PrefixCache {
    /// Changes the first token of a published block behind the indexes' back.
    pub(crate) fn damage_token(&mut self, block: BlockId) {
        self.tokens[block.index() * self.block_size].0 += 50;
    }

    /// Counts one block too many.
    pub(crate) fn damage_count(&mut self) {
        self.num_cached += 1;
    }
}
