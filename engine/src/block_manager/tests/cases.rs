//! What the prefix cache finds, case by case.

use super::*;

// CASES B34.
#[test]
fn a_prompt_that_is_cached_whole_leaves_a_token_to_compute() {
    for (num_tokens, whole_blocks, to_the_token) in [(4, 0, 3), (8, 4, 7), (9, 8, 8)] {
        let prompt = tokens(10..10 + num_tokens);
        let base = config(4, &[(20, None)]);
        for (config, expected) in [
            (by_blocks(base.clone()), whole_blocks),
            (base, to_the_token),
        ] {
            let mut blocks = BlockManager::new(&config);
            let keys = CacheKeys::default();
            assert_eq!(serve(&mut blocks, &keys, &prompt).num_tokens, 0);
            let hit = serve(&mut blocks, &keys, &prompt);
            assert_eq!((hit.num_tokens, hit.miss), (expected, MissReason::None));
        }
    }
}

// CASES B38. Contents are compared in `random.rs`.
#[test]
fn the_same_prompt_again_and_again_hits_the_same_length_and_the_same_blocks() {
    let mut blocks = BlockManager::new(&config(4, &[(30, None)]));
    let keys = CacheKeys::default();
    let (a, b) = (tokens(0..11), tokens(20..37));
    serve(&mut blocks, &keys, &a);
    serve(&mut blocks, &keys, &b);
    let first = serve(&mut blocks, &keys, &a);
    assert_eq!(first.num_tokens, 10);
    for _ in 0..5 {
        assert_eq!(serve(&mut blocks, &keys, &b).num_tokens, 16);
        let again = serve(&mut blocks, &keys, &a);
        assert_eq!((again.num_tokens, &again.blocks), (10, &first.blocks));
    }
    assert_eq!(blocks.num_free(0), 29);
    assert_eq!(blocks.num_cached(0), 2 + 1 + 4 + 1, "no duplicates pile up");
}

// CASES B39.
#[test]
fn a_long_conversation_then_its_own_beginning_is_a_hit_of_the_beginning() {
    let mut blocks = BlockManager::new(&by_blocks(config(4, &[(30, None)])));
    let keys = CacheKeys::default();
    let long = tokens(0..49);
    serve(&mut blocks, &keys, &long);
    assert_eq!(serve(&mut blocks, &keys, &long[..13]).num_tokens, 12);
}

#[test]
fn generated_text_is_reused_by_the_next_turn_to_the_token() {
    let mut blocks = BlockManager::new(&config(16, &[(30, None)]));
    let keys = CacheKeys::default();
    serve(&mut blocks, &keys, &tokens(0..37));
    let hit = serve(&mut blocks, &keys, &tokens((0..37).chain(90..99)));
    assert_eq!((hit.num_tokens, hit.num_full_blocks), (37, 2));
    let hit = serve(&mut blocks, &keys, &tokens((0..20).chain(50..60)));
    assert_eq!((hit.num_tokens, hit.num_full_blocks), (20, 1));
}

#[test]
fn the_child_with_the_longest_common_beginning_is_copied() {
    let mut blocks = BlockManager::new(&config(8, &[(30, None)]));
    let keys = CacheKeys::default();
    for tail in [vec![1], vec![1, 2, 3, 4, 9], vec![1, 2, 3], vec![1, 2, 7]] {
        serve(&mut blocks, &keys, &tokens((20..28).chain(tail)));
    }
    let hit = serve(
        &mut blocks,
        &keys,
        &tokens((20..28).chain([1, 2, 3, 4, 5, 6])),
    );
    assert_eq!(hit.num_tokens, 12);
    let source = hit.partial.unwrap().sources[0];
    assert_eq!(blocks.groups[0].cache.num_valid(source), 5);
}

#[test]
fn tenants_never_meet_and_a_miss_says_why() {
    let mut blocks = BlockManager::new(&config(4, &[(12, None)]));
    let (a, b) = (tenant("a"), tenant("b"));
    let prompt = tokens(0..10);
    assert_eq!(serve(&mut blocks, &a, &prompt).miss, MissReason::FirstSeen);
    let hit = serve(&mut blocks, &b, &prompt);
    assert_eq!((hit.num_tokens, hit.miss), (0, MissReason::OtherKeys));
    let longer = tokens((0..8).chain(30..38));
    let hit = serve(&mut blocks, &a, &longer);
    let differs = MissReason::Tokens {
        first_differing_block: 2,
    };
    assert_eq!((hit.num_tokens, hit.miss), (8, differs));
    // Fills the pool.
    serve(&mut blocks, &b, &tokens(50..94));
    let hit = serve(&mut blocks, &a, &prompt);
    assert_eq!(
        (hit.num_tokens, hit.miss),
        (0, MissReason::Evicted { block: 0 })
    );
}

#[test]
fn without_a_prefix_cache_nothing_is_found_or_kept() {
    let mut config = config(4, &[(12, None)]);
    config.prefix_cache.enabled = false;
    let mut blocks = BlockManager::new(&config);
    for _ in 0..2 {
        let hit = serve(&mut blocks, &CacheKeys::default(), &tokens(0..10));
        assert_eq!((hit.num_tokens, hit.miss), (0, MissReason::Disabled));
        assert_eq!(blocks.num_cached(0), 0);
    }
}

#[test]
fn eviction_takes_the_tail_of_the_oldest_first() {
    let mut blocks = BlockManager::new(&by_blocks(config(4, &[(8, None)])));
    let keys = CacheKeys::default();
    let (old, new) = (tokens(0..16), tokens(20..32));
    serve(&mut blocks, &keys, &old);
    serve(&mut blocks, &keys, &new);
    // Two blocks for something else: the last two of the oldest sequence go.
    serve(&mut blocks, &keys, &tokens(40..48));
    let mut chain = blocks.new_chain(&keys);
    let hit = blocks.lookup(&mut chain, &old, 15);
    assert_eq!(
        (hit.num_tokens, hit.miss),
        (8, MissReason::Evicted { block: 2 })
    );
    let mut chain = blocks.new_chain(&keys);
    assert_eq!(blocks.lookup(&mut chain, &new, 11).num_tokens, 8);
}

#[test]
fn a_window_group_hits_when_the_last_blocks_before_the_cut_are_cached() {
    // Window 6, blocks of 4: the query after the cut sees 5 tokens before it, 2 blocks.
    let mut blocks = BlockManager::new(&by_blocks(config(4, &[(30, None), (30, Some(6))])));
    let keys = CacheKeys::default();
    let long = tokens(0..33);
    serve(&mut blocks, &keys, &long);
    let mut chain = blocks.new_chain(&keys);
    let hit = blocks.lookup(&mut chain, &long, 32);
    assert_eq!(hit.num_full_blocks, 8);
    let num_null = hit.blocks[1].iter().filter(|block| block.is_null()).count();
    assert_eq!((num_null, hit.blocks[0][0].is_null()), (6, false));
    // Block 5 of the window group is lost: cuts after 6 and 7 blocks need it, one after 8 does not.
    let lost = blocks
        .find(&blocks.groups[1], &chain, &long, 5)
        .expect("published");
    blocks.groups[1].cache.unpublish(lost);
    for (num_tokens_max, expected) in [(32, 8), (31, 5), (24, 5), (20, 5), (19, 4)] {
        let hit = blocks.lookup(&mut chain, &long, num_tokens_max);
        assert_eq!(hit.num_full_blocks, expected, "at most {num_tokens_max}");
    }
    let mut tables = blocks.new_tables();
    let hit = blocks.lookup(&mut chain, &long, 32);
    blocks.adopt(&mut tables, &hit).unwrap();
    blocks.check_integrity(&[&tables]).unwrap();
    blocks.release_outside_windows(&mut tables, 32);
    assert_eq!(tables[1].held_blocks().len(), 2, "they are all needed");
}

#[test]
fn a_partial_hit_is_as_long_as_every_group_can_serve() {
    let mut blocks = BlockManager::new(&config(4, &[(30, None), (30, Some(5))]));
    let keys = CacheKeys::default();
    let prompt = tokens(0..12);
    serve(&mut blocks, &keys, &prompt);
    let mut chain = blocks.new_chain(&keys);
    assert_eq!(blocks.lookup(&mut chain, &prompt, 11).num_tokens, 11);
    let last = blocks.find_partial(&chain, &prompt, 2).unwrap().sources[1];
    blocks.groups[1].cache.unpublish(last);
    let hit = blocks.lookup(&mut chain, &prompt, 11);
    assert_eq!((hit.num_tokens, &hit.partial), (8, &None));
}

#[test]
fn a_hit_takes_its_blocks_from_the_free_list_when_room_is_checked() {
    let mut blocks = BlockManager::new(&config(4, &[(5, None)]));
    let keys = CacheKeys::default();
    let prompt = tokens(0..10);
    serve(&mut blocks, &keys, &prompt);
    let mut chain = blocks.new_chain(&keys);
    let tables = blocks.new_tables();
    let hit = blocks.lookup(&mut chain, &prompt, 9);
    assert_eq!((hit.num_tokens, hit.num_full_blocks), (9, 2));
    blocks.check_room(&tables, Some(&hit), 12).unwrap();
    // The copied block and its source are both needed for now: the pool has no fifth block.
    let error = blocks.check_room(&tables, Some(&hit), 16).unwrap_err();
    assert_eq!((error.num_needed, error.num_free), (2, 1));
    let hit = hit.without_partial();
    assert_eq!(hit.num_tokens, 8);
    blocks.check_room(&tables, Some(&hit), 16).unwrap();
}

#[test]
#[should_panic(expected = "look up again")]
fn a_hit_from_before_an_eviction_is_a_bug() {
    let mut blocks = BlockManager::new(&config(4, &[(5, None)]));
    let keys = CacheKeys::default();
    serve(&mut blocks, &keys, &tokens(0..10));
    let mut chain = blocks.new_chain(&keys);
    let hit = blocks.lookup(&mut chain, &tokens(0..10), 9);
    serve(&mut blocks, &keys, &tokens(20..36));
    let mut tables = blocks.new_tables();
    let _ = blocks.adopt(&mut tables, &hit);
}

#[test]
fn forks_share_blocks_until_they_write_and_only_the_part_that_counts_is_copied() {
    let mut blocks = BlockManager::new(&config(4, &[(12, None)]));
    let mut tables = blocks.new_tables();
    blocks.reserve(&mut tables, 0, 10).unwrap();
    let mut forks: Vec<_> = (0..2).map(|_| blocks.fork(&tables)).collect();
    assert_eq!(blocks.num_referenced(0), 3);
    let shared = tables[0].blocks()[2];
    for fork in &mut forks {
        blocks.reserve(fork, 10, 11).unwrap();
    }
    // The last holder writes in place, in the same step as the others copy from it.
    blocks.reserve(&mut tables, 10, 11).unwrap();
    let own: Vec<_> = forks.iter().map(|fork| fork[0].blocks()[2]).collect();
    assert_eq!(blocks.copies(0), [(shared, own[0]), (shared, own[1])]);
    assert_eq!(tables[0].blocks()[2], shared);
    // A fork of a fork, before its copy is made, copies from where that copy reads.
    let mut grandchild = blocks.fork(&forks[0]);
    blocks.reserve(&mut grandchild, 10, 11).unwrap();
    assert_eq!(blocks.copies(0)[2], (shared, grandchild[0].blocks()[2]));
    let all: Vec<_> = [&tables, &forks[0], &forks[1], &grandchild]
        .map(Vec::as_slice)
        .to_vec();
    blocks.check_integrity(&all).unwrap();
    blocks.release_copy_sources();
    // Nothing before position 8 is in block 2: a fork gets a new one, and no copy.
    let mut fork = blocks.fork(&tables);
    blocks.reserve(&mut fork, 8, 12).unwrap();
    assert_ne!(fork[0].blocks()[2], shared);
    assert!(blocks.copies(0).is_empty());
}

#[test]
fn both_ends_of_a_copy_stay_until_it_is_made_even_if_the_sequences_end() {
    let mut blocks = BlockManager::new(&config(4, &[(6, None)]));
    let mut tables = blocks.new_tables();
    blocks.reserve(&mut tables, 0, 6).unwrap();
    let mut fork = blocks.fork(&tables);
    blocks.reserve(&mut fork, 6, 7).unwrap();
    blocks.release(&mut tables);
    blocks.release(&mut fork);
    assert_eq!((blocks.num_free(0), blocks.num_referenced(0)), (3, 2));
    let mut other = blocks.new_tables();
    assert!(blocks.reserve(&mut other, 0, 16).is_err());
    blocks.check_integrity(&[]).unwrap();
    blocks.release_copy_sources();
    assert_eq!(blocks.num_free(0), 5);
}

#[test]
fn what_is_written_again_is_not_found_by_its_old_tokens() {
    let mut blocks = BlockManager::new(&config(4, &[(12, None)]));
    let keys = CacheKeys::default();
    let prompt = tokens(0..9);
    let mut chain = blocks.new_chain(&keys);
    let mut tables = blocks.new_tables();
    blocks.reserve(&mut tables, 0, 9).unwrap();
    blocks.publish(&mut tables, &mut chain, &prompt, 9);
    assert_eq!(blocks.num_cached(0), 2);
    blocks.reserve(&mut tables, 7, 9).unwrap();
    assert_eq!(blocks.num_cached(0), 1);
    // The block is offered again when it is computed again.
    chain.truncate(7);
    let other = tokens((0..7).chain([50, 51]));
    blocks.publish(&mut tables, &mut chain, &other, 9);
    let mut chain = blocks.new_chain(&keys);
    assert_eq!(blocks.lookup(&mut chain, &other, 8).num_tokens, 8);
    let mut chain = blocks.new_chain(&keys);
    assert_eq!(blocks.lookup(&mut chain, &prompt, 8).num_tokens, 7);
    blocks.check_integrity(&[&tables]).unwrap();
}

#[test]
fn after_a_reset_nothing_old_is_found_and_sequences_from_before_publish_nothing() {
    let mut blocks = BlockManager::new(&config(4, &[(20, None)]));
    let keys = CacheKeys::default();
    let prompt = tokens(0..9);
    let mut chain = blocks.new_chain(&keys);
    let mut tables = blocks.new_tables();
    blocks.reserve(&mut tables, 0, 9).unwrap();
    blocks.publish(&mut tables, &mut chain, &prompt, 9);
    blocks.reset_cache();
    assert_eq!((blocks.num_cached(0), blocks.num_referenced(0)), (0, 3));
    let longer = tokens(0..14);
    blocks.reserve(&mut tables, 9, 14).unwrap();
    blocks.release_published(&mut tables, &mut chain, &longer, 14);
    assert_eq!(blocks.num_cached(0), 0);
    assert_eq!(
        serve(&mut blocks, &keys, &prompt).miss,
        MissReason::FirstSeen
    );
    assert_eq!(serve(&mut blocks, &keys, &prompt).num_tokens, 8);
}
