//! Hits of whole request lists against those of a trusted implementation.

use serde_json::Value;

use super::*;

const GOLDEN: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/fixtures/algo/prefix_cache.json"
));

fn ids(value: &Value) -> Vec<TokenId> {
    let ids = value.as_array().unwrap().iter();
    tokens(ids.map(|id| id.as_u64().unwrap() as u32))
}

/// Serves one list; returns each request's hit, and what it should be with whole blocks.
fn hits(set: &Value, granularity: PrefixGranularity) -> Vec<(usize, usize)> {
    let block_size = set["block_size"].as_u64().unwrap() as usize;
    let mut config = config(block_size, &[(4000, None)]);
    config.prefix_cache.granularity = granularity;
    let mut blocks = BlockManager::new(&config);
    let requests = set["requests"].as_array().unwrap().iter();
    requests
        .map(|request| {
            let keys = request["salt"]
                .as_str()
                .map_or_else(CacheKeys::default, tenant);
            let (mut tokens, generated) = (ids(&request["prompt"]), ids(&request["generated"]));
            let num_prompt = tokens.len();
            let mut chain = blocks.new_chain(&keys);
            let mut tables = blocks.new_tables();
            let hit = blocks.lookup(&mut chain, &tokens, num_prompt - 1);
            let num_computed = blocks.adopt(&mut tables, &hit).unwrap();
            tokens.extend(&generated);
            // The last generated token is never computed.
            let num_verified = tokens.len() - usize::from(!generated.is_empty());
            for end in num_prompt..=num_verified {
                let first_written = if end == num_prompt {
                    num_computed
                } else {
                    end - 1
                };
                blocks.reserve(&mut tables, first_written, end).unwrap();
                blocks.release_copy_sources();
                blocks.publish(&mut tables, &mut chain, &tokens, end);
            }
            blocks.release_published(&mut tables, &mut chain, &tokens, num_verified);
            blocks.check_integrity(&[]).unwrap();
            let expected = request["hit_tokens"].as_u64().unwrap() as usize;
            (hit.num_tokens, expected)
        })
        .collect()
}

#[test]
fn hits_by_blocks_equal_the_golden_ones_and_hits_to_the_token_are_never_shorter() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let sets = golden["sets"].as_array().unwrap();
    assert_eq!(sets.len(), 4);
    for set in sets {
        for (request, (found, expected)) in
            hits(set, PrefixGranularity::Block).into_iter().enumerate()
        {
            assert_eq!(found, expected, "request {request}");
        }
        let to_the_token = hits(set, PrefixGranularity::Token);
        assert!(to_the_token.iter().all(|(found, least)| found >= least));
        let (found, least) = to_the_token
            .iter()
            .fold((0, 0), |(a, b), (found, least)| (a + found, b + least));
        assert!(
            found > least,
            "{found} tokens to the token, {least} by blocks"
        );
    }
}
