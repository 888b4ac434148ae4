//! How byte-level BPE tokenizers cut text into words before merging, by the name that GGUF files
//! give in `tokenizer.ggml.pre`.
//!
//! Neighbours: [`super::byte_level`] (who merges the words), [`super`] (who reads the name).

use tokenizers::normalizers::NFC;
use tokenizers::utils::SysRegex;
use tokenizers::{NormalizedString, Normalizer as _};

use super::super::error::TextError;

/// The pattern of GPT-2.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The pattern of Llama 3.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// The pattern of Qwen 2: that of Llama 3 with numerals one by one.
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// One numeral, of any script and kind.
const NUMERAL: &str = r"\p{N}";

/// One pre-tokenizer.
struct Recipe {
    names: &'static [&'static str],
    /// Each pattern cuts what the ones before it left; matches and what is between them are words.
    patterns: &'static [&'static str],
    normalization: Normalization,
    whole_words: WholeWords,
    bos: BosDefault,
}

/// Unicode normalisation of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Normalization {
    None,
    Nfc,
}

/// What becomes of a word that is in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WholeWords {
    /// It is merged like any other.
    Merge,
    /// It is taken as it is, also if merging would end elsewhere.
    Take,
}

/// Whether BOS is added where the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BosDefault {
    Add,
    None,
}

const RECIPES: &[Recipe] = &[
    Recipe {
        names: &["smollm"],
        patterns: &[NUMERAL, GPT2],
        normalization: Normalization::None,
        whole_words: WholeWords::Merge,
        bos: BosDefault::None,
    },
    Recipe {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[LLAMA3],
        normalization: Normalization::None,
        whole_words: WholeWords::Take,
        bos: BosDefault::Add,
    },
    Recipe {
        names: &["gpt-2", "default"],
        patterns: &[GPT2],
        normalization: Normalization::None,
        whole_words: WholeWords::Merge,
        bos: BosDefault::None,
    },
    Recipe {
        names: &["qwen2"],
        patterns: &[QWEN2],
        normalization: Normalization::Nfc,
        whole_words: WholeWords::Merge,
        bos: BosDefault::None,
    },
];
/// The names above, for messages.
const SUPPORTED: &str = "smollm, llama-bpe, llama3, llama-v3, gpt-2, default, qwen2";

/// Cuts text into words.
pub(in super::super) struct PreTokenizer {
    recipe: &'static Recipe,
    patterns: Vec<SysRegex>,
}

impl PreTokenizer {
    /// By the name in the file; a file without a name gets `default`.
    pub(super) fn by_name(name: Option<&str>) -> Result<Self, TextError> {
        let name = name.unwrap_or("default");
        let recipe = RECIPES
            .iter()
            .find(|recipe| recipe.names.contains(&name))
            .ok_or_else(|| {
                let what = "tokenizer.ggml.pre";
                TextError::Unsupported {
                    what,
                    found: name.to_owned(),
                    supported: SUPPORTED,
                }
            })?;
        let patterns = recipe
            .patterns
            .iter()
            .map(|pattern| SysRegex::new(pattern))
            .collect::<Result<_, _>>()
            .map_err(|error| TextError::Encode(error.to_string()))?;
        Ok(Self { recipe, patterns })
    }

    pub(super) fn whole_words(&self) -> WholeWords {
        self.recipe.whole_words
    }

    pub(super) fn bos_default(&self) -> BosDefault {
        self.recipe.bos
    }

    /// The text in the form that is tokenized.
    pub(in super::super) fn normalize(&self, text: &str) -> Result<Option<String>, TextError> {
        if self.recipe.normalization == Normalization::None || text.is_ascii() {
            return Ok(None);
        }
        let mut normalized = NormalizedString::from(text);
        NFC.normalize(&mut normalized)
            .map_err(|error| TextError::Encode(error.to_string()))?;
        Ok(Some(normalized.get().to_owned()))
    }

    /// Gives the words of `text` to `visit`, in order; together they are the text.
    ///
    /// # Errors
    /// [`TextError::Encode`] if the pattern matcher gave up (over a million steps in one place).
    pub(super) fn words<'t>(
        &self,
        text: &'t str,
        visit: &mut impl FnMut(&'t str),
    ) -> Result<(), TextError> {
        cut(&self.patterns, text, visit)
    }
}

fn cut<'t>(
    patterns: &[SysRegex],
    text: &'t str,
    visit: &mut impl FnMut(&'t str),
) -> Result<(), TextError> {
    let Some((pattern, rest)) = patterns.split_first() else {
        visit(text);
        return Ok(());
    };
    let mut done = 0;
    for (start, end) in pattern.find_iter(text) {
        if done < start {
            cut(rest, &text[done..start], visit)?;
        }
        cut(rest, &text[start..end], visit)?;
        done = end;
    }
    if done == text.len() {
        return Ok(());
    }
    if rest.is_empty() {
        // The last pattern of every recipe matches any text, so the matcher has stopped early; it
        // does not say why.
        let detail = format!(
            "cutting it into words stopped at byte {done} of {}",
            text.len()
        );
        return Err(TextError::Encode(detail));
    }
    cut(rest, &text[done..], visit)
}
