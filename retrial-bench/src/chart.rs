//! Charts as SVG: lines, dashes for what theory says, points with their intervals for what was measured or
//! simulated.

use crate::output::short;
use miette::{IntoDiagnostic, Report};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// How the values of an axis lie on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0 on.
    Linear,
    /// By powers of 2: numbers of sessions.
    Binary,
    /// By powers of 10.
    Decimal,
    /// Names for 1, 2, 3 and so on.
    Names(&'static [&'static str]),
    /// The same as `Decimal` for so many decades below the greatest value; what is lower lies at the bottom.
    Decades(u8),
}

impl Scale {
    /// Where a value lies; nowhere when it has no logarithm.
    fn place(self, value: f64) -> Option<f64> {
        let place = match self {
            Self::Linear | Self::Names(_) => value,
            Self::Binary => value.log2(),
            Self::Decimal | Self::Decades(_) => value.log10(),
        };
        Some(place).filter(|place| place.is_finite())
    }

    /// The value at a place.
    fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear | Self::Names(_) => place,
            Self::Binary => place.exp2(),
            Self::Decimal | Self::Decades(_) => 10f64.powf(place),
        }
    }

    /// The name of a value, where values have names and this is one of them.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a whole number from 1 on
    pub fn name(self, value: f64) -> Option<&'static str> {
        let Self::Names(names) = self else { return None };
        let is_one = value >= 0.5 && (value - value.round()).abs() < 1e-6;
        is_one.then(|| names.get(value.round() as usize - 1).copied()).flatten()
    }

    /// The axis for these places.
    fn range(self, places: impl Iterator<Item = f64>) -> Range<f64> {
        let ends = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if ends.0 <= ends.1 { ends } else { (0.0, 1.0) };
        let low = match self {
            Self::Names(names) => return 0.5..names.len() as f64 + 0.5,
            Self::Linear => return low.min(0.0)..(high * 1.05).max(low + 0.01),
            Self::Decades(decades) => low.max(high - f64::from(decades)),
            _ => low,
        };
        let room = ((high - low) * 0.05).max(0.05);
        low - room..high + room
    }

    /// The axis for these values; a linear one begins at the lowest of them, as the others do.
    fn of_points(self, values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
        let ends = |pick: fn(f64, f64) -> f64, start| values.clone().fold(start, pick);
        let (low, high) = (ends(f64::min, f64::INFINITY), ends(f64::max, f64::NEG_INFINITY));
        if self == Self::Linear && low < high {
            return low..high + (high - low) * 0.03;
        }
        self.range(values.filter_map(|value| self.place(value)))
    }

    /// Pixels beside a y axis for its labels and its name.
    fn width(self, range: &Range<f64>) -> u32 {
        // A label low on the axis has more digits behind the point than that at its end.
        let lengths = [range.start, range.end * 0.3, range.end].map(|place| label(self, place).len());
        if lengths.iter().any(|length| *length > 5) { 66 } else { 52 }
    }

    /// How many labels an axis has: on logarithmic ones none between whole numbers, but when these are few.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few decades
    fn labels(self, range: &Range<f64>) -> usize {
        let whole = (range.end - range.start) as usize + 1;
        match self {
            Self::Linear => 6,
            Self::Names(names) => names.len() + 1,
            Self::Binary => whole.clamp(2, 16),
            _ if whole < 4 => 6,
            _ => whole.min(12),
        }
    }
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    pub scale: Scale,
    /// Its ends where they are not those of the values.
    pub ends: Option<(f64, f64)>,
}

impl Axis {
    pub fn new(name: impl Into<String>, scale: Scale) -> Self {
        Self { name: name.into(), scale, ends: None }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Line,
    Dashes,
    Points,
}

/// A value, and the ends of its interval where it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, interval: None }
    }
}

/// What is drawn in one colour and form.
#[derive(Clone, Debug)]
pub struct Series {
    /// For the legend; with an empty one it has no entry there.
    pub name: String,
    pub form: Form,
    /// Of the palette: series of the same subject have the same.
    pub colour: usize,
    /// By rising x.
    pub points: Vec<Point>,
}

/// Where the names of the series are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legend {
    Within,
    /// Elsewhere, by the number of the colour, counted from 1, which is at the end of a line.
    ByNumber,
    /// Elsewhere, by the colour alone.
    ByColour,
}

/// A chart of one figure.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub legend: Legend,
}

const WIDTH: u32 = 580;
const HEIGHT: u32 = 400;

/// A colour, as far from those before it as can be.
fn colour(index: usize) -> HSLColor {
    let hue = (index as f64 * 0.381_966) % 1.0;
    HSLColor(hue, 0.75, if index.is_multiple_of(2) { 0.38 } else { 0.5 })
}

/// The same for a legend elsewhere: red, green, blue.
pub fn rgb(index: usize) -> (u8, u8, u8) {
    colour(index).to_backend_color().rgb
}

/// Charts side by side, `columns` in a row, as one SVG document.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn svg(charts: &[Chart], columns: usize) -> Result<String, Report> {
    let columns = columns.clamp(1, charts.len().max(1));
    let rows = charts.len().div_ceil(columns).max(1);
    let size = (WIDTH * u32::try_from(columns).into_diagnostic()?, HEIGHT * u32::try_from(rows).into_diagnostic()?);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).into_diagnostic()?;
        for (chart, part) in charts.iter().zip(area.split_evenly((rows, columns))) {
            chart.draw(&part)?;
        }
        area.present().into_diagnostic()?;
    }
    Ok(svg)
}

/// One chart to be put into a page: without a background, its words and axes in the colour of the page's text.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn inline(chart: &Chart, size: (u32, u32)) -> Result<String, Report> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        chart.draw(&area)?;
        area.present().into_diagnostic()?;
    }
    Ok(svg.replace("\"#000000\"", "\"currentColor\"").replace("fill=\"#FFFFFF\"", "fill=\"none\""))
}

impl Chart {
    fn draw(&self, area: &Area) -> Result<(), Report> {
        let (x_scale, y_scale) = (self.x.scale, self.y.scale);
        let all = || self.series.iter().flat_map(|series| &series.points);
        let ends = self.x.ends.map(|(low, high)| [low, high]);
        let x_range = x_scale.of_points(all().map(|point| point.x).chain(ends.into_iter().flatten()));
        let ends = |point: &Point| point.interval.map_or([point.y; 2], |(low, high)| [low, high]);
        let y_range = y_scale.range(all().flat_map(ends).filter_map(|y| y_scale.place(y)));
        let lowest = y_range.start;
        let place = |x: f64, y: f64| Some((x_scale.place(x)?, y_scale.place(y)?.max(lowest)));
        let mut context = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(y_scale.width(&y_range))
            .build_cartesian_2d(x_range.clone(), y_range.clone())
            .into_diagnostic()?;
        context
            .configure_mesh()
            .x_desc(&self.x.name)
            .y_desc(&self.y.name)
            .x_labels(x_scale.labels(&x_range))
            .y_labels(y_scale.labels(&y_range))
            .x_label_formatter(&|x| label(x_scale, *x))
            .y_label_formatter(&|y| label(y_scale, *y))
            .light_line_style(TRANSPARENT)
            .draw()
            .into_diagnostic()?;
        for series in &self.series {
            let colour = colour(series.colour);
            let points: Vec<(f64, f64)> = series.points.iter().filter_map(|p| place(p.x, p.y)).collect();
            let last = points.last().copied();
            let intervals = series.points.iter().filter_map(|p| Some((p, p.interval?)));
            let bars = intervals.filter_map(|(p, (low, high))| Some((place(p.x, low)?, place(p.x, high)?)));
            context.draw_series(bars.map(|(low, high)| PathElement::new([low, high], colour))).into_diagnostic()?;
            let drawn = match series.form {
                Form::Line => context.draw_series(LineSeries::new(points, colour.stroke_width(2))),
                Form::Dashes => context.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2))),
                Form::Points => context.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled()))),
            }
            .into_diagnostic()?;
            if self.legend == Legend::ByNumber {
                let font = ("sans-serif", 11).into_font().color(&colour);
                let number = last.map(|at| Text::new((series.colour + 1).to_string(), at, font));
                context.draw_series(number).into_diagnostic()?;
            } else if self.legend == Legend::Within && !series.name.is_empty() {
                let form = series.form;
                drawn.label(&series.name).legend(move |(x, y)| {
                    let ends = if form == Form::Points { [(x + 9, y), (x + 11, y)] } else { [(x, y), (x + 20, y)] };
                    PathElement::new(ends, colour.stroke_width(if form == Form::Points { 5 } else { 2 }))
                });
            }
        }
        if self.legend == Legend::Within {
            context
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .label_font(("sans-serif", 11))
                .draw()
                .into_diagnostic()?;
        }
        Ok(())
    }
}

fn label(scale: Scale, place: f64) -> String {
    let value = scale.value(place);
    match scale {
        Scale::Binary => format!("{value:.0}"),
        Scale::Names(_) => scale.name(value).unwrap_or_default().to_owned(),
        _ if value >= 1e6 => format!("{}M", short(value / 1e6)),
        _ => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: &[(f64, f64)]) -> Chart {
        let series = Series {
            name: "orbit & others".to_owned(),
            form: Form::Line,
            colour: 0,
            points: points.iter().copied().map(Point::from).collect(),
        };
        Chart {
            title: "throughput".to_owned(),
            x: Axis::new("sessions", Scale::Binary),
            y: Axis::new("1/s", scale),
            series: vec![series],
            legend: Legend::Within,
        }
    }

    #[test]
    fn a_chart_has_its_words_and_its_line() {
        let text = svg(&[chart(Scale::Linear, &[(1.0, 5.0), (64.0, 9.0)])], 1).unwrap();
        for word in ["throughput", "sessions", "orbit &amp; others", "polyline"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn a_chart_in_a_page_has_the_colours_of_the_page() {
        let chart = chart(Scale::Linear, &[(1.0, 5.0), (64.0, 9.0)]);
        assert!(svg(std::slice::from_ref(&chart), 1).unwrap().contains("#FFFFFF"));
        let text = inline(&chart, (300, 200)).unwrap();
        assert!(text.contains("currentColor") && !text.contains("#FFFFFF") && !text.contains("#000000"), "{text}");
    }

    #[test]
    fn millions_are_short() {
        let text = svg(&[chart(Scale::Linear, &[(1.0, 0.0), (2.0, 25e6)])], 1).unwrap();
        assert!(text.lines().any(|line| line == "20.0M") && !text.contains("000000\n"), "{text}");
    }

    #[test]
    fn places_with_names_are_called_by_them() {
        let named = Chart {
            x: Axis::new("run", Scale::Names(&["before", "after"])),
            ..chart(Scale::Linear, &[(1.0, 5.0), (2.0, 9.0)])
        };
        let text = svg(&[named], 1).unwrap();
        let labels: Vec<&str> = text.lines().filter(|line| ["before", "after", "1.5"].contains(line)).collect();
        assert_eq!(labels, ["before", "after"], "{text}");
    }

    #[test]
    fn what_has_no_logarithm_is_left_out() {
        let text = svg(&[chart(Scale::Decimal, &[(0.0, 1.0), (1.0, 0.0), (2.0, 5.0)])], 1).unwrap();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn a_series_without_points_is_no_trouble() {
        assert!(svg(&[chart(Scale::Decades(2), &[]), chart(Scale::Linear, &[(3.0, 3.0)])], 2).is_ok());
        for points in [&[][..], &[(3.0, 3.0)]] {
            let windows = Chart { x: Axis::new("window", Scale::Linear), ..chart(Scale::Linear, points) };
            assert!(svg(&[windows], 1).is_ok());
        }
    }

    #[test]
    fn values_far_below_the_top_lie_at_the_bottom() {
        let range = Scale::Decades(2).range([-7.0, 3.0].into_iter());
        assert!(range.start > 0.8 && range.end > 3.0, "{range:?}");
    }
}
