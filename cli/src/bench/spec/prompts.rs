//! Prompts by class: those that forerun brings, and those of a folder.
//!
//! Neighbours: `mod.rs` chooses among them; the files are in `cli/prompts/spec/`, and stay as they are:
//! what is tuned must not be tuned together with what it is measured on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A prompt: what a user says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompt {
    /// Numbers are told per class.
    pub(super) class: String,
    pub(super) text: String,
    /// What the answer must fit.
    pub(super) schema: Option<Value>,
}

/// The text of a prompt file.
macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../../prompts/spec/", $name))
    };
}

/// Class and text of each prompt, and the schema that its answer must fit.
const SHIPPED: [(&str, &str, Option<&str>); 16] = [
    ("code-edit", text!("code-edit/rename.txt"), None),
    ("code-edit", text!("code-edit/parameter.txt"), None),
    ("code-edit", text!("code-edit/comments.txt"), None),
    ("extraction", text!("extraction/orchard.txt"), None),
    ("extraction", text!("extraction/minutes.txt"), None),
    ("extraction", text!("extraction/log.txt"), None),
    ("chat", text!("chat/houseplant.txt"), None),
    ("chat", text!("chat/interview.txt"), None),
    ("chat", text!("chat/tides.txt"), None),
    ("story", text!("story/clockmaker.txt"), None),
    ("story", text!("story/ferry.txt"), None),
    ("story", text!("story/robot.txt"), None),
    ("json", text!("json/stations.txt"), None),
    ("json", text!("json/table.txt"), None),
    (
        "json-schema",
        text!("json-schema/people.txt"),
        Some(text!("json-schema/people.schema.json")),
    ),
    (
        "json-schema",
        text!("json-schema/timetable.txt"),
        Some(text!("json-schema/timetable.schema.json")),
    ),
];

/// The prompts that forerun brings.
pub(super) fn shipped() -> Vec<Prompt> {
    let prompt = |(class, text, schema): (&str, &str, Option<&str>)| Prompt {
        class: class.to_owned(),
        text: text.to_owned(),
        schema: schema
            .map(|schema| serde_json::from_str(schema).expect("a test has read every schema")),
    };
    SHIPPED.into_iter().map(prompt).collect()
}

/// The prompts of a folder: `CLASS/NAME.txt` and `CLASS.txt`, by name.
pub(super) fn of_dir(dir: &Path) -> Result<Vec<Prompt>> {
    let mut prompts = Vec::new();
    for path in entries(dir)? {
        if path.is_dir() {
            for file in entries(&path)? {
                prompts.extend(of_file(&file, &path)?);
            }
        } else {
            prompts.extend(of_file(&path, &path)?);
        }
    }
    if prompts.is_empty() {
        bail!(
            "{} has no prompts: expected CLASS/NAME.txt or CLASS.txt",
            dir.display()
        );
    }
    Ok(prompts)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut paths = read().with_context(|| format!("cannot read the folder {}", dir.display()))?;
    paths.sort();
    Ok(paths)
}

/// The prompt of a text file, whose class has the name of `class`; none for other files.
fn of_file(file: &Path, class: &Path) -> Result<Option<Prompt>> {
    if file.extension().is_none_or(|extension| extension != "txt") {
        return Ok(None);
    }
    let read = |file: &Path| {
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let schema_file = file.with_extension("schema.json");
    let schema = if schema_file.exists() {
        let schema = serde_json::from_str(&read(&schema_file)?)
            .with_context(|| format!("{} is not JSON", schema_file.display()))?;
        Some(schema)
    } else {
        None
    };
    Ok(Some(Prompt {
        class: class
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        text: read(file)?,
        schema,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_prompts_and_every_schema_is_json() {
        let prompts = shipped();
        for class in [
            "code-edit",
            "extraction",
            "chat",
            "story",
            "json",
            "json-schema",
        ] {
            let count = prompts
                .iter()
                .filter(|prompt| prompt.class == class)
                .count();
            assert!(count >= 2, "{class} has {count}");
        }
        for prompt in prompts {
            assert_eq!(prompt.schema.is_some(), prompt.class == "json-schema");
        }
    }

    #[test]
    fn a_folder_gives_a_class_per_subfolder_and_per_file() {
        let dir = std::env::temp_dir().join(format!("forerun-prompts-{}", std::process::id()));
        fs::create_dir_all(dir.join("poems")).unwrap();
        assert!(of_dir(&dir).unwrap_err().to_string().contains("no prompts"));
        fs::write(dir.join("poems/b.txt"), "second").unwrap();
        fs::write(dir.join("poems/a.txt"), "first").unwrap();
        fs::write(dir.join("poems/a.schema.json"), "{}").unwrap();
        fs::write(dir.join("notes.md"), "no prompt").unwrap();
        fs::write(dir.join("riddle.txt"), "alone").unwrap();
        let prompts = of_dir(&dir).unwrap();
        let told: Vec<_> = prompts
            .iter()
            .map(|prompt| {
                (
                    prompt.class.as_str(),
                    prompt.text.as_str(),
                    prompt.schema.is_some(),
                )
            })
            .collect();
        let expected = [
            ("poems", "first", true),
            ("poems", "second", false),
            ("riddle", "alone", false),
        ];
        assert_eq!(told, expected);
        fs::write(dir.join("poems/a.schema.json"), "{").unwrap();
        assert!(
            of_dir(&dir)
                .unwrap_err()
                .to_string()
                .contains("is not JSON")
        );
        fs::remove_dir_all(&dir).unwrap();
        assert!(of_dir(&dir).is_err());
    }
}
