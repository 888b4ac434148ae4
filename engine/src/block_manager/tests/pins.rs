//! Pins keep prefixes, within limits.

use super::*;

#[test]
fn a_pinned_prefix_outlives_any_pressure_until_its_pin_is_gone() {
    let mut blocks = BlockManager::new(&config(4, &[(12, None), (12, Some(6))]));
    let keys = tenant("a");
    let prompt = tokens(0..15);
    serve(&mut blocks, &keys, &prompt);
    let pin = blocks.pin(&keys, &prompt, Some(10)).unwrap();
    assert_eq!(pin.num_tokens, 12);
    assert_eq!((blocks.num_referenced(0), blocks.num_referenced(1)), (3, 2));
    let cached = |blocks: &BlockManager| {
        let mut chain = blocks.new_chain(&keys);
        blocks.lookup(&mut chain, &prompt, 14).num_tokens
    };
    for round in 0..5 {
        serve(&mut blocks, &tenant("b"), &tokens(20 + round..50 + round));
        assert!(cached(&blocks) >= 12, "round {round}");
    }
    assert_eq!((blocks.expire_pins(9), blocks.expire_pins(10)), (0, 1));
    assert!(!blocks.unpin(pin.id));
    blocks.check_integrity(&[]).unwrap();
    serve(&mut blocks, &tenant("b"), &tokens(40..84));
    assert_eq!(cached(&blocks), 0);
}

#[test]
fn a_pin_beyond_the_quota_or_of_nothing_is_refused_with_the_numbers() {
    let mut blocks = BlockManager::new(&config(4, &[(30, None)]));
    let (a, b) = (tenant("a"), tenant("b"));
    let prompt = tokens(0..20);
    let error = blocks.pin(&a, &prompt, None).unwrap_err();
    assert_eq!(error, PinError::NotCached { num_tokens: 20 });
    for keys in [&a, &b] {
        serve(&mut blocks, keys, &prompt);
        assert_eq!(blocks.pin(keys, &prompt, None).unwrap().num_tokens, 20);
    }
    let error = blocks.pin(&a, &prompt, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a has 5 blocks pinned and asks for 5 more, the limit is 8: take off a pin, or raise the \
         limit"
    );
    assert_eq!(blocks.pin(&a, &prompt[..12], None).unwrap().num_tokens, 12);
    assert_eq!(blocks.num_pinned_blocks(Some("a")), 8);
    blocks.check_integrity(&[]).unwrap();
    for num_left in [8, 3, 0] {
        assert!(blocks.break_oldest_pin());
        assert_eq!(
            blocks.num_pinned_blocks(Some("a")) + blocks.num_pinned_blocks(Some("b")),
            num_left
        );
    }
    assert!(!blocks.break_oldest_pin());
    assert_eq!(blocks.num_referenced(0), 0);
}

#[test]
fn a_reset_takes_off_all_pins_and_no_cache_means_no_pins() {
    let mut config = config(4, &[(30, None)]);
    let mut blocks = BlockManager::new(&config);
    let keys = CacheKeys::default();
    serve(&mut blocks, &keys, &tokens(0..20));
    let pin = blocks.pin(&keys, &tokens(0..20), None).unwrap();
    blocks.reset_cache();
    assert_eq!((blocks.num_referenced(0), blocks.unpin(pin.id)), (0, false));
    blocks.check_integrity(&[]).unwrap();
    config.prefix_cache.enabled = false;
    let mut blocks = BlockManager::new(&config);
    let error = blocks.pin(&keys, &tokens(0..20), None).unwrap_err();
    assert_eq!(error, PinError::Disabled);
}
