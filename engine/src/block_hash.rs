//! Names for the contents of KV blocks: a hash over a block's tokens, everything before them, and
//! whatever else decides their keys and values.
//!
//! Neighbours: `prefix_cache/` finds blocks by these hashes; `block_manager/` makes chains and
//! extends them.

use std::fmt;

use blake3::Hasher;

use crate::TokenId;

/// Tokens per block that one stack buffer takes, the largest block size there is.
const BLOCK_SIZE_MAX: usize = 256;

/// Separates these hashes from any other use of BLAKE3. Changes whenever the layout of what is
/// hashed changes.
const ROOT_CONTEXT: &str = "forerun 2026-11-30 prefix cache root, layout 1";

/// A collision-resistant name (BLAKE3, 256 bits) for a run of whole blocks from position 0, under
/// given [`CacheKeys`]. Two runs share it only if tokens and keys are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockHash([u8; 32]);

/// What decides a sequence's keys and values besides its tokens. Sequences with unequal keys never
/// share a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheKeys {
    /// Who may share: a request's `cache_salt`. Requests without one share among themselves.
    pub tenant: Option<String>,
    /// Name of the adapter that the weights are changed by.
    pub adapter: Option<String>,
    /// Anything else, as name and value: the content hash of an image, say. The order counts.
    pub extra: Vec<(String, Vec<u8>)>,
}

/// The hashes of a sequence's full blocks, grown as its tokens become known, so that a step hashes
/// only when a block fills.
#[derive(Clone, Debug)]
pub struct HashChain {
    root: BlockHash,
    block_size: usize,
    hashes: Vec<BlockHash>,
}

impl BlockHash {
    /// Hash of what comes before the first block: the keys of the sequence, the keys that hold for
    /// the whole model (`model_keys`, the data type of the KV cache, say), and the block size.
    ///
    /// Every field carries a tag, every string its length, every list its count: no field can
    /// imitate another.
    pub fn root(keys: &CacheKeys, model_keys: &[(String, Vec<u8>)], block_size: usize) -> Self {
        let mut hasher = Hasher::new_derive_key(ROOT_CONTEXT);
        let optional = |hasher: &mut Hasher, tag: &str, value: Option<&String>| {
            put(hasher, tag.as_bytes());
            hasher.update(&[u8::from(value.is_some())]);
            put(hasher, value.map_or(&[], |value| value.as_bytes()));
        };
        let list = |hasher: &mut Hasher, tag: &str, entries: &[(String, Vec<u8>)]| {
            put(hasher, tag.as_bytes());
            hasher.update(&(entries.len() as u64).to_le_bytes());
            for (name, value) in entries {
                put(hasher, name.as_bytes());
                put(hasher, value);
            }
        };
        optional(&mut hasher, "tenant", keys.tenant.as_ref());
        optional(&mut hasher, "adapter", keys.adapter.as_ref());
        list(&mut hasher, "extra", &keys.extra);
        list(&mut hasher, "model", model_keys);
        put(&mut hasher, b"block_size");
        hasher.update(&(block_size as u64).to_le_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// Hash of the block that holds `tokens` and follows the blocks that `self` names.
    ///
    /// The parent goes in as BLAKE3's key: one compression for a block of 16 tokens, where
    /// hashing parent and tokens as one message would take two.
    ///
    /// # Panics
    /// If there are more tokens than the largest block holds.
    #[must_use]
    pub fn child(&self, tokens: &[TokenId]) -> Self {
        let mut bytes = [0; BLOCK_SIZE_MAX * size_of::<u32>()];
        let (chunks, _) = bytes.as_chunks_mut::<4>();
        assert!(tokens.len() <= chunks.len(), "EngineConfig limits blocks");
        for (chunk, token) in chunks.iter_mut().zip(tokens) {
            *chunk = token.0.to_le_bytes();
        }
        let message = &bytes[..size_of_val(tokens)];
        Self(*blake3::keyed_hash(&self.0, message).as_bytes())
    }

    /// The first eight bytes, as a key for an index that compares the whole hash afterwards.
    pub fn index_key(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// All bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A parent that no sequence has: names a first block by its tokens alone.
    pub(crate) const WITHOUT_KEYS: Self = Self([0; 32]);

    /// A hash with given bytes, to force collisions.
    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Length and bytes.
fn put(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.index_key().swap_bytes())
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockHash({self}..)")
    }
}

impl HashChain {
    /// A chain of no blocks after `root`, over blocks of `block_size` tokens.
    pub fn new(root: BlockHash, block_size: usize) -> Self {
        Self {
            root,
            block_size,
            hashes: Vec::new(),
        }
    }

    /// Hashes the full blocks of `tokens`, the sequence from position 0, that are not hashed yet,
    /// and returns the hashes of all full blocks of `tokens`.
    ///
    /// Tokens hashed before must not have changed: [`HashChain::truncate`] before changing one.
    pub fn extend(&mut self, tokens: &[TokenId]) -> &[BlockHash] {
        let num_blocks = tokens.len() / self.block_size;
        while self.hashes.len() < num_blocks {
            let start = self.hashes.len() * self.block_size;
            let block = &tokens[start..start + self.block_size];
            let hash = self.parent_of(self.hashes.len()).child(block);
            self.hashes.push(hash);
        }
        &self.hashes[..num_blocks]
    }

    /// Forgets the blocks that hold positions from `num_tokens` on.
    pub fn truncate(&mut self, num_tokens: usize) {
        self.hashes.truncate(num_tokens / self.block_size);
    }

    /// Makes room for a sequence of `num_tokens`, so that extending allocates nothing until then.
    pub fn reserve(&mut self, num_tokens: usize) {
        let missing = (num_tokens / self.block_size).saturating_sub(self.hashes.len());
        self.hashes.reserve(missing);
    }

    /// Hashes of the full blocks so far, in order of position.
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// Hash of everything before block `block`: the root for block 0.
    ///
    /// # Panics
    /// If a block before it is not hashed.
    pub fn parent_of(&self, block: usize) -> BlockHash {
        match block.checked_sub(1) {
            Some(previous) => self.hashes[previous],
            None => self.root,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn a_chain_grown_token_by_token_equals_one_hashed_at_once_and_truncation_undoes_it() {
        let root = BlockHash::root(&CacheKeys::default(), &[], 4);
        let tokens = tokens(&[5, 1, 4, 2, 9, 9, 9, 9, 3, 0, 0, 0, 7]);
        let mut whole = HashChain::new(root, 4);
        whole.extend(&tokens);
        let mut grown = HashChain::new(root, 4);
        for num_tokens in 0..=tokens.len() {
            grown.extend(&tokens[..num_tokens]);
            assert_eq!(grown.hashes().len(), num_tokens / 4);
        }
        assert_eq!(whole.hashes(), grown.hashes());
        grown.truncate(11);
        assert_eq!(grown.hashes(), &whole.hashes()[..2]);
        let mut other = tokens.clone();
        other[8] = TokenId(4);
        assert_ne!(grown.extend(&other)[2], whole.hashes()[2]);
    }

    #[test]
    fn equal_tokens_after_different_prefixes_have_different_hashes() {
        let root = BlockHash::root(&CacheKeys::default(), &[], 2);
        let hash = |ids: &[u32]| *HashChain::new(root, 2).extend(&tokens(ids)).last().unwrap();
        assert_ne!(hash(&[1, 2, 3, 4]), hash(&[1, 1, 3, 4]));
        assert_ne!(hash(&[1, 2, 1, 2]), hash(&[1, 2]));
        assert_eq!(hash(&[1, 2, 3, 4]), hash(&[1, 2, 3, 4, 5]));
    }

    // CASES B36.
    #[test]
    fn no_key_can_imitate_another() {
        let text = |value: &str| Some(value.to_owned());
        let pair = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        let keys = |tenant: Option<String>, adapter: Option<String>, extra| CacheKeys {
            tenant,
            adapter,
            extra,
        };
        let all = [
            keys(None, None, vec![]),
            keys(text(""), None, vec![]),
            keys(text("X"), None, vec![]),
            keys(None, text("X"), vec![]),
            keys(None, text(""), vec![]),
            keys(text("X"), text("Y"), vec![]),
            keys(text("XY"), None, vec![]),
            keys(text("XY"), text(""), vec![]),
            keys(None, None, vec![pair("X", "")]),
            keys(None, None, vec![pair("", "X")]),
            keys(None, None, vec![pair("tenant", "X")]),
            keys(None, None, vec![pair("X", ""), pair("", "")]),
            keys(None, None, vec![pair("X", ""), pair("", "X")]),
        ];
        let models = [
            vec![],
            vec![pair("kv_dtype", "f16")],
            vec![pair("kv_dtype", "fp8")],
            vec![pair("kv_dtype", "f16"), pair("rope", "yarn")],
            vec![pair("X", "")],
        ];
        let mut roots = Vec::new();
        for keys in &all {
            for model in &models {
                for block_size in [4, 16] {
                    roots.push(BlockHash::root(keys, model, block_size));
                }
            }
        }
        let num_roots = roots.len();
        roots.sort_unstable();
        roots.dedup();
        assert_eq!(roots.len(), num_roots);
    }
}
