//! The errors in source: those that types declare with `thiserror`, and those that a command makes with `miette!`.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::Path;

/// Type, what it is, and its errors: name, message and meaning.
pub(crate) type Declared = (String, String, Vec<[String; 3]>);

#[derive(Default)]
pub(crate) struct Errors {
    pub(crate) declared: Vec<Declared>,
    /// Code, message and what to type.
    pub(crate) of_commands: BTreeSet<[String; 3]>,
}

impl Errors {
    /// Those of all sources below a directory.
    pub(crate) fn of(directory: &Path) -> Self {
        let mut errors = Self::default();
        let mut directories = vec![directory.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    errors.add(std::fs::read_to_string(path).unwrap().parse().unwrap());
                }
            }
        }
        errors.declared.sort();
        errors
    }

    fn add(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut attributes = Attributes::default();
        for (i, token) in tokens.iter().enumerate() {
            let next = |ahead: usize| tokens.get(i + ahead);
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => attributes.add(next(1)),
                TokenTree::Ident(word) if word == "enum" || word == "struct" => {
                    let of = std::mem::take(&mut attributes);
                    let name = next(1).unwrap().to_string();
                    let rows = match (of.error, next(2)) {
                        (Some(message), _) => vec![[String::new(), message, String::new()]],
                        (None, Some(TokenTree::Group(body))) if word == "enum" => variants(body),
                        _ => Vec::new(),
                    };
                    if !rows.is_empty() {
                        self.declared.push((name, of.doc, rows));
                    }
                }
                TokenTree::Ident(word) if word == "fn" || word == "mod" || word == "impl" => {
                    attributes = Attributes::default();
                }
                TokenTree::Ident(word) if word == "miette" => {
                    if let Some(TokenTree::Group(arguments)) = next(2) {
                        self.of_commands.extend(of_command(arguments));
                    }
                }
                TokenTree::Group(group) => self.add(group.stream()),
                _ => {}
            }
        }
    }
}

/// What the attributes of an item or a variant say.
#[derive(Default)]
struct Attributes {
    doc: String,
    error: Option<String>,
}

impl Attributes {
    /// `doc = "…"`, as which a comment comes, or `error("…", …)`; of a transparent error nothing is kept.
    fn add(&mut self, brackets: Option<&TokenTree>) {
        let Some(TokenTree::Group(brackets)) = brackets else { return };
        match &brackets.stream().into_iter().collect::<Vec<_>>()[..] {
            [TokenTree::Ident(name), _, text] if name == "doc" => {
                let line = literal(text).unwrap();
                let line = line.replace("[`", "`").replace("`]", "`"); // a link of rustdoc
                let space = if self.doc.is_empty() { "" } else { " " };
                self.doc = format!("{}{space}{}", self.doc, line.trim());
            }
            [TokenTree::Ident(name), TokenTree::Group(arguments)] if name == "error" => {
                self.error =
                    arguments.stream().into_iter().next().and_then(|text| literal(&text)).map(|text| message(&text));
            }
            _ => {}
        }
    }
}

/// The variants of an error that have messages.
fn variants(body: &Group) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    let mut attributes = Attributes::default();
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => attributes.add(tokens.get(i + 1)),
            TokenTree::Ident(name) => {
                let of = std::mem::take(&mut attributes);
                rows.extend(of.error.map(|message| [format!("`{name}`"), message, of.doc]));
            }
            _ => {}
        }
    }
    rows
}

/// `code = "…", help = "…" or format!("…"), "the message", …`.
fn of_command(arguments: &Group) -> Option<[String; 3]> {
    let tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
    let mut found: [Option<String>; 3] = [const { None }; 3];
    for argument in tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',')) {
        let (place, value) = match argument {
            [TokenTree::Ident(name), _, value @ ..] if name == "code" => (0, value),
            [TokenTree::Ident(name), _, value @ ..] if name == "help" => (2, value),
            value => (1, value),
        };
        if found[place].is_none() {
            found[place] = first_literal(value);
        }
    }
    let [code, text, help] = found;
    let [code, text, help] = [code?, text.unwrap_or_default(), help.unwrap_or_default()].map(|text| message(&text));
    // Without a word it passes on what the library or the system says.
    text.contains(char::is_alphabetic).then(|| [format!("`{code}`"), text, help])
}

fn first_literal(tokens: &[TokenTree]) -> Option<String> {
    tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            first_literal(&group.stream().into_iter().collect::<Vec<_>>())
        }
        token => literal(token),
    })
}

/// The text of a literal.
fn literal(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    let source = literal.to_string();
    let (marks, text) = source.strip_suffix(['"', '#']).and_then(|_| source.split_once('"'))?;
    let text = text.trim_end_matches('#').strip_suffix('"')?;
    if marks.starts_with('r') {
        return Some(text.to_owned());
    }
    let mut parts = text.split("\\\n");
    let mut text = parts.next().unwrap().to_owned();
    text.extend(parts.map(str::trim_start));
    Some(text.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// A message with `…` for what is put into it.
fn message(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        shown += before;
        rest = if let Some(after) = after.strip_prefix('{') {
            shown.push('{');
            after
        } else {
            shown.push('…');
            after.split_once('}').unwrap().1
        };
    }
    (shown + rest).replace("}}", "}").replace('\n', " ")
}
