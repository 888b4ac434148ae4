//! Pools that fill, and windows that let go.

use super::*;

#[test]
fn a_full_pool_says_which_group_lacks_how_much_and_takes_nothing() {
    let mut blocks = BlockManager::new(&config(4, &[(9, None), (4, None)]));
    let mut tables = blocks.new_tables();
    let error = blocks.reserve(&mut tables, 0, 15).unwrap_err();
    assert_eq!(
        error,
        OutOfBlocks {
            group: 1,
            num_needed: 4,
            num_free: 3
        }
    );
    assert_eq!(
        error.to_string(),
        "KV group 1 needs 4 more blocks, 3 are free"
    );
    assert_eq!((blocks.num_free(0), blocks.num_free(1)), (8, 3));
}

#[test]
fn a_window_lets_go_of_exactly_the_blocks_that_the_next_query_cannot_see() {
    // Blocks of 4, window 6: the query at position p sees [p - 5, p].
    for num_computed in 0..40_usize {
        let mut blocks = BlockManager::new(&config(4, &[(20, Some(6))]));
        let mut tables = blocks.new_tables();
        blocks.reserve(&mut tables, 0, 40).unwrap();
        blocks.release_outside_windows(&mut tables, num_computed);
        let num_released = tables[0]
            .blocks()
            .iter()
            .filter(|block| block.is_null())
            .count();
        let invisible = num_computed.saturating_sub(5);
        assert_eq!(num_released, invisible / 4, "{num_computed} computed");
        assert_eq!(blocks.num_free(0), 19 - 10 + num_released);
        blocks.release(&mut tables);
        assert_eq!(blocks.num_free(0), 19);
    }
}

#[test]
fn a_table_that_names_a_block_without_holding_it_is_found() {
    let mut blocks = BlockManager::new(&config(4, &[(9, None)]));
    let mut tables = blocks.new_tables();
    blocks.reserve(&mut tables, 0, 9).unwrap();
    let copy = tables.clone();
    let both = [tables.as_slice(), copy.as_slice()];
    assert!(blocks.check_integrity(&both).is_err());
    assert!(blocks.check_integrity(&[]).is_err());
    blocks.check_integrity(&[tables.as_slice()]).unwrap();
}
