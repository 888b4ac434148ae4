//! Damage to the manager's own state is found by `check_integrity`.

use super::*;

#[test]
fn each_kind_of_damage_is_found() {
    type Damage = fn(&mut BlockManager);
    let sound = || {
        let mut blocks = BlockManager::new(&config(4, &[(12, None)]));
        let keys = CacheKeys::default();
        serve(&mut blocks, &keys, &tokens(0..10));
        blocks.pin(&keys, &tokens(0..10), None).unwrap();
        let mut tables = blocks.new_tables();
        blocks.reserve(&mut tables, 0, 6).unwrap();
        let mut fork = blocks.fork(&tables);
        blocks.reserve(&mut fork, 6, 7).unwrap();
        (blocks, tables, fork)
    };
    let (blocks, tables, fork) = sound();
    blocks.check_integrity(&[&tables, &fork]).unwrap();
    assert!(blocks.check_integrity(&[&tables]).is_err());
    assert!(blocks.check_integrity(&[&tables, &fork, &fork]).is_err());
    let damages: [(Damage, &str); 8] = [
        (|b| b.pins.clear(), "references"),
        (|b| b.groups[0].copies.clear(), "references"),
        (
            |b| {
                let (source, destination) = b.groups[0].copies[0];
                b.groups[0].copies[0] = (destination, source);
                b.groups[0].copies.push((source, destination));
                b.groups[0].pool.touch(source);
                b.groups[0].pool.touch(destination);
            },
            "depends on another copy",
        ),
        (|b| b.groups[0].pool.touch(BlockId(9)), "references"),
        (
            |b| {
                b.groups[0].pool.allocate();
            },
            "references",
        ),
        (|b| b.groups[0].cache.damage_token(BlockId(1)), "by_parent"),
        (|b| b.groups[0].cache.damage_token(BlockId(2)), "by_parent"),
        (|b| b.groups[0].cache.damage_count(), "counted as published"),
    ];
    for (number, (damage, message)) in damages.into_iter().enumerate() {
        let (mut blocks, tables, fork) = sound();
        damage(&mut blocks);
        let error = blocks.check_integrity(&[&tables, &fork]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(message), "damage {number}: {error}");
    }
}
