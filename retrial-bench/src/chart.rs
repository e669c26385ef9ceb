//! Charts as SVG: lines, dashes for what theory says, points with their intervals for what was measured or
//! simulated.

use miette::{IntoDiagnostic, Report};
use plotters::coord::Shift;
use plotters::prelude::*;

mod colours;
mod scale;

pub use colours::{colours, rgb};
pub use scale::Scale;

use colours::colour;
use scale::Places;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

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
    /// Of the palette: series of the same subject have the same. See [`colours`].
    pub colour: usize,
    /// By rising x.
    pub points: Vec<Point>,
}

/// Where the names of the series are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legend {
    /// Right of the curves.
    Beside,
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

/// Pixels of a letter in a legend, and of the sign before a name.
const LETTER: u32 = 6;
const SIGN: u32 = 26;

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
        let x = x_scale.of_points(all().map(|point| point.x).chain(ends.into_iter().flatten()));
        let ends = |point: &Point| point.interval.map_or([point.y; 2], |(low, high)| [low, high]);
        let y = y_scale.range(all().flat_map(ends).filter_map(|y| y_scale.place(y)));
        let lowest = y.start;
        let place = |x: f64, y: f64| Some((x_scale.place(x)?, y_scale.place(y)?.max(lowest)));
        let (x, y) = (Places::new(x_scale, x), Places::new(y_scale, y));
        let (ticks, room) = ((x.ticks().len(), y.ticks().len()), y.room_for_labels(y_scale));
        let area = self.draw_legend(area)?;
        let mut context = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(room)
            .build_cartesian_2d(x, y)
            .into_diagnostic()?;
        context
            .configure_mesh()
            .x_desc(&self.x.name)
            .y_desc(&self.y.name)
            .x_labels(ticks.0)
            .y_labels(ticks.1)
            .x_label_formatter(&|x| x_scale.label(*x))
            .y_label_formatter(&|y| y_scale.label(*y))
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
            match series.form {
                Form::Line => context.draw_series(LineSeries::new(points, colour.stroke_width(2))),
                Form::Dashes => context.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2))),
                Form::Points => context.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled()))),
            }
            .into_diagnostic()?;
            if self.legend == Legend::ByNumber {
                let font = ("sans-serif", 11).into_font().color(&colour);
                let number = last.map(|at| Text::new((series.colour + 1).to_string(), at, font));
                context.draw_series(number).into_diagnostic()?;
            }
        }
        Ok(())
    }

    /// Draws the names of the series at the right, where they are to be beside the curves. The area that is left.
    fn draw_legend<'a>(&self, area: &Area<'a>) -> Result<Area<'a>, Report> {
        let named: Vec<&Series> = self.series.iter().filter(|series| !series.name.is_empty()).collect();
        if self.legend != Legend::Beside || named.is_empty() {
            return Ok(area.clone());
        }
        let longest = named.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let (whole, _) = area.dim_in_pixel();
        let width = (u32::try_from(longest).into_diagnostic()? * LETTER + SIGN + 14).min(whole / 3);
        let (curves, legend) = area.split_horizontally(whole - width);
        for (series, y) in named.iter().zip((36..).step_by(16)) {
            let colour = colour(series.colour);
            let sign = if series.form == Form::Points {
                PathElement::new([(9, y), (11, y)], colour.stroke_width(5))
            } else {
                PathElement::new([(0, y), (20, y)], colour.stroke_width(2))
            };
            legend.draw(&sign).into_diagnostic()?;
            let name = Text::new(series.name.as_str(), (26, y - 6), ("sans-serif", 11));
            legend.draw(&name).into_diagnostic()?;
        }
        Ok(curves)
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
            legend: Legend::Beside,
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
        assert!(text.lines().any(|line| line == "20M") && !text.contains("000000\n"), "{text}");
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
}
