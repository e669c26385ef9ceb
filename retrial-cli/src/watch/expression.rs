//! Expressions over figures: `wait_ms_per_s("Cursor Pin") > 500 and not deaths > 0`.
//!
//! By precedence climbing (V. Pratt, *Top down operator precedence*, 1973). Numbers are in SI units, `5s` and
//! `20%` too. A value that is not known makes what depends on it unknown, which is not true.

use super::values::Name;
use crate::duration;
use std::fmt;

/// A condition, or a number.
#[derive(Clone, PartialEq, Debug)]
pub enum Expression {
    Number(f64),
    Value(Value),
    Negative(Box<Self>),
    Not(Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
}

/// A figure, of the instance or of what the name in brackets means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    pub name: Name,
    pub of: Option<String>,
    /// As it was typed, and where.
    pub text: String,
    pub at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Different,
    Plus,
    Minus,
    Times,
    Over,
}

/// Operators as they are typed, longest first; how closely each binds; whether it compares.
const OPERATORS: &[(&str, Operator, u8)] = &[
    ("and", Operator::And, 2),
    ("&&", Operator::And, 2),
    ("||", Operator::Or, 1),
    ("<=", Operator::LessOrEqual, 3),
    (">=", Operator::GreaterOrEqual, 3),
    ("==", Operator::Equal, 3),
    ("!=", Operator::Different, 3),
    ("or", Operator::Or, 1),
    ("<", Operator::Less, 3),
    (">", Operator::Greater, 3),
    ("+", Operator::Plus, 4),
    ("-", Operator::Minus, 4),
    ("*", Operator::Times, 5),
    ("/", Operator::Over, 5),
];

/// Expressions may be nested so deep.
const NESTED: usize = 100;

/// Maximum number of numbers and figures in an expression. Each look evaluates all of them.
const TERMS: usize = 1000;

/// Characters of an expression that are shown on each side of what is wrong.
const AROUND: usize = 40;

/// A word of an expression, as errors repeat it.
pub fn brief(word: &str) -> String {
    let cut = word.char_indices().nth(AROUND).map_or(word, |(at, _)| &word[..at]);
    format!("{cut}{}", if cut.len() < word.len() { "…" } else { "" })
}

/// What is wrong, and where: the message shows it below the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    text: String,
    at: usize,
    what: String,
}

impl Wrong {
    pub fn new(text: &str, at: usize, what: impl Into<String>) -> Self {
        Self { text: text.to_owned(), at, what: what.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |text: &str| text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect::<Vec<_>>();
        let (before, after) = (place(&self.text[..self.at]), place(&self.text[self.at..]));
        let (left, right) = (before.len().min(AROUND), after.len().min(AROUND));
        let shown: String = before[before.len() - left..].iter().chain(&after[..right]).collect();
        let cut = |is_cut| if is_cut { "…" } else { "" };
        let (begin, end) = (cut(left < before.len()), cut(right < after.len()));
        let column = left + begin.chars().count();
        write!(f, "{}\n  {begin}{shown}{end}\n  {:column$}^", self.what, "")
    }
}

impl Expression {
    /// The condition that a text says.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let mut parser = Parser { text, at: 0, depth: 0, terms: 0 };
        let expression = parser.binary(0)?;
        parser.skip();
        if parser.at < text.len() {
            return Err(parser.wrong("expected an operator (and or < <= > >= == != + - * /) or the end"));
        }
        if !expression.is_condition() {
            return Err(Wrong::new(
                text,
                text.len(),
                "a number, expected a condition: compare it with one, as in `… > 5`",
            ));
        }
        Ok(expression)
    }

    /// Whether it is true or false; `None` where it depends on what is not known.
    pub fn holds(&self, value: &mut dyn FnMut(&Value) -> Option<f64>) -> Option<bool> {
        self.evaluate(value).map(|x| x != 0.0)
    }

    /// Its value; of a condition 1 or 0.
    fn evaluate(&self, value: &mut dyn FnMut(&Value) -> Option<f64>) -> Option<f64> {
        let truth = |is: bool| f64::from(u8::from(is));
        Some(match self {
            Self::Number(x) => *x,
            Self::Value(of) => value(of)?,
            Self::Negative(x) => -x.evaluate(value)?,
            Self::Not(x) => truth(x.evaluate(value)? == 0.0),
            Self::Binary(operator @ (Operator::And | Operator::Or), a, b) => {
                // Both are asked, so that all values are told.
                let (a, b) = (a.holds(value), b.holds(value));
                let decides = *operator == Operator::Or;
                match (a, b) {
                    (Some(x), _) | (_, Some(x)) if x == decides => truth(decides),
                    (Some(_), Some(_)) => truth(!decides),
                    _ => return None,
                }
            }
            Self::Binary(operator, a, b) => {
                let (a, b) = (a.evaluate(value), b.evaluate(value));
                // What is divided by 0 is not known.
                Some(operator.of(a?, b?)).filter(|x| x.is_finite())?
            }
        })
    }

    /// Every figure in it.
    pub fn values(&self) -> Vec<&Value> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Value(value) => vec![value],
            Self::Negative(x) | Self::Not(x) => x.values(),
            Self::Binary(_, a, b) => [a.values(), b.values()].concat(),
        }
    }

    const fn is_condition(&self) -> bool {
        match self {
            Self::Number(_) | Self::Value(_) | Self::Negative(_) => false,
            Self::Not(_) => true,
            Self::Binary(operator, ..) => operator.gives_condition(),
        }
    }
}

impl Operator {
    const fn gives_condition(self) -> bool {
        !matches!(self, Self::Plus | Self::Minus | Self::Times | Self::Over)
    }

    const fn takes_conditions(self) -> bool {
        matches!(self, Self::And | Self::Or)
    }

    #[allow(clippy::float_cmp)] // what was typed
    fn of(self, a: f64, b: f64) -> f64 {
        let is = match self {
            Self::Plus => return a + b,
            Self::Minus => return a - b,
            Self::Times => return a * b,
            Self::Over => return a / b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
            Self::Equal => a == b,
            Self::Different => a != b,
            Self::And | Self::Or => unreachable!("taken care of where both sides may be unknown"),
        };
        f64::from(u8::from(is))
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    terms: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// What is there, and what was expected instead.
    fn wrong(&self, expected: &str) -> Wrong {
        let found: String = self.rest().split_whitespace().next().unwrap_or("").chars().take(20).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
        Wrong::new(self.text, self.at, format!("{found}, {expected}"))
    }

    fn operator(&mut self) -> Option<(Operator, u8, usize)> {
        self.skip();
        let is_next = |word: &str| {
            let after = self.rest().strip_prefix(word)?;
            let is_word = word.starts_with(char::is_alphabetic);
            (!is_word || !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some(())
        };
        let (word, operator, binds) = OPERATORS.iter().find(|(word, ..)| is_next(word).is_some())?;
        Some((*operator, *binds, word.len()))
    }

    fn deeper(&mut self) -> Result<(), Wrong> {
        self.depth += 1;
        let is_too_deep = self.depth > NESTED;
        if is_too_deep { Err(self.wrong("nested too deep, expected at most 100 levels")) } else { Ok(()) }
    }

    /// Operands with the operators between them that bind at least so closely.
    fn binary(&mut self, least: u8) -> Result<Expression, Wrong> {
        self.deeper()?;
        self.skip();
        let start = self.at;
        let mut left = self.operand()?;
        while let Some((operator, binds, len)) = self.operator() {
            if binds < least {
                break;
            }
            let at = self.at;
            self.check(&left, start, operator)?;
            self.at += len;
            self.skip();
            let right_at = self.at;
            let right = self.binary(binds + 1)?;
            self.check(&right, right_at, operator)?;
            if operator == Operator::Over && right.evaluate(&mut |_| None) == Some(0.0) {
                return Err(Wrong::new(self.text, right_at, "a division by 0, expected another number"));
            }
            if binds == 3 && self.operator().is_some_and(|(_, next, _)| next == 3) {
                return Err(Wrong::new(self.text, at, "two comparisons in a row, expected `and` between them"));
            }
            left = Expression::Binary(operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn check(&self, side: &Expression, at: usize, operator: Operator) -> Result<(), Wrong> {
        match (operator.takes_conditions(), side.is_condition()) {
            (true, false) => Err(Wrong::new(self.text, at, "a number beside `and` or `or`, expected a condition")),
            (false, true) => Err(Wrong::new(self.text, at, "a condition, expected a number here")),
            _ => Ok(()),
        }
    }

    fn operand(&mut self) -> Result<Expression, Wrong> {
        self.skip();
        let at = self.at;
        self.terms += 1;
        if self.terms > TERMS {
            return Err(self.wrong(&format!("expected the end: an expression has at most {TERMS} numbers and figures")));
        }
        if let Some(rest) = self.rest().strip_prefix('(') {
            self.at = self.text.len() - rest.len();
            let inner = self.binary(0)?;
            self.skip();
            return if self.take(')') { Ok(inner) } else { Err(self.wrong("expected `)`")) };
        }
        if self.take('-') {
            self.deeper()?;
            let (inner_at, inner) = (self.at, self.operand()?);
            self.check(&inner, inner_at, Operator::Minus)?;
            self.depth -= 1;
            return Ok(Expression::Negative(Box::new(inner)));
        }
        let word = self.word();
        if word == "not" || word.is_empty() && self.rest().starts_with('!') && !self.rest().starts_with("!=") {
            self.at += word.len().max(1);
            self.skip();
            // It binds less than comparisons and more than `and`.
            let (inner_at, inner) = (self.at, self.binary(3)?);
            self.check(&inner, inner_at, Operator::And)?;
            return Ok(Expression::Not(Box::new(inner)));
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) || self.rest().starts_with('.') {
            return self.number();
        }
        if word.is_empty() {
            return Err(self.wrong("expected a number, a figure such as miss_ratio(\"m\"), `not` or `(`"));
        }
        self.value(at, word)
    }

    fn take(&mut self, c: char) -> bool {
        let is_next = self.rest().starts_with(c);
        self.at += if is_next { c.len_utf8() } else { 0 };
        is_next
    }

    fn word(&self) -> &'t str {
        let rest = self.rest();
        &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())]
    }

    fn number(&mut self) -> Result<Expression, Wrong> {
        let at = self.at;
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        self.at += digits;
        let unit = self.word();
        self.at += unit.len();
        let number: Option<f64> = rest[..digits].parse().ok();
        let x = match (number, unit) {
            (Some(x), "") if self.take('%') => Some(x / 100.0),
            (Some(x), "") => Some(x),
            _ => duration::parse(&rest[..digits + unit.len()]).ok().map(|time| time.as_secs_f64()),
        };
        let expected = "expected a number, as it is or with one of ns us ms s min %";
        x.map(Expression::Number).ok_or_else(|| {
            self.at = at;
            self.wrong(expected)
        })
    }

    fn value(&mut self, at: usize, word: &str) -> Result<Expression, Wrong> {
        let name = Name::find(word).map_err(|what| Wrong::new(self.text, at, what))?;
        self.at += word.len();
        let mut of = None;
        if self.take('(') {
            self.skip();
            let quote = self.rest().chars().next().filter(|c| matches!(c, '"' | '\''));
            let Some(quote) = quote else {
                return Err(self.wrong("expected the name of a mutex or a mutex type in quotes"));
            };
            self.at += 1;
            let Some(len) = self.rest().find(quote) else {
                return Err(Wrong::new(self.text, self.at - 1, format!("a quote that does not end, expected {quote}")));
            };
            of = Some(self.rest()[..len].to_owned());
            self.at += len + 1;
            self.skip();
            if !self.take(')') {
                return Err(self.wrong("expected `)`"));
            }
        }
        Ok(Expression::Value(Value { name, of, text: self.text[at..self.at].to_owned(), at }))
    }
}

#[cfg(test)]
#[path = "expression_tests.rs"]
mod tests;
