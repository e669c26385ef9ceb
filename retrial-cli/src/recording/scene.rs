//! What one query sees: each instance at one moment, and where differences are wanted at an earlier one.

use super::period::Period;
use super::snapshot::Snapshot;
use retrial::Observer;
use std::sync::Arc;

/// An instance over a period.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Nothing: since it was created.
    pub from: Option<Snapshot>,
    pub to: Snapshot,
}

impl Span {
    pub fn period(&self) -> Period<'_> {
        self.from.as_ref().map_or(Period::since_creation(&self.to), |from| Period::between(from, &self.to))
    }
}

/// Instances over a period.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// With their numbers in the recording.
    pub spans: Vec<(i64, Span)>,
    /// The live instance whose caches are looked at when a query asks for them: the one of the first span.
    pub observer: Option<Arc<Observer>>,
}

impl Scene {
    /// The instance of this number.
    pub fn span(&self, instance: i64) -> Option<&Span> {
        self.spans.iter().find(|(id, _)| *id == instance).map(|(_, span)| span)
    }
}
