//! Pictures are kept with the documents: what a renderer writes, in fewer bytes.

use std::fmt::Write;

/// The same picture: lines of one style become one path, also where only words are between them, which then
/// lie below it; what is the default is left out.
pub fn compact(svg: &str) -> String {
    let mut text = String::new();
    let mut path: Option<(String, String)> = None;
    for element in svg.split_inclusive('\n') {
        let Some((style, points)) = stroke(element.trim()) else {
            let is_word = element.starts_with("<text") || element.starts_with("</text") || !element.starts_with('<');
            if !is_word {
                flush(&mut path, &mut text);
            }
            text.push_str(&plain(element));
            continue;
        };
        match &mut path {
            Some((known, so_far)) if *known == style => so_far.push_str(&points),
            _ => {
                flush(&mut path, &mut text);
                path = Some((style, points));
            }
        }
    }
    flush(&mut path, &mut text);
    // The size of most words.
    let text = text.replace(&format!(" font-size=\"{SIZE}\""), "");
    text.replacen("<svg ", &format!("<svg font-family=\"sans-serif\" font-size=\"{SIZE}\" "), 1)
}

/// Of the labels of the axes, in pixels.
const SIZE: &str = "9.7";

/// Attributes that say what holds anyway.
const DEFAULTS: [&str; 5] =
    [" opacity=\"1\"", " font-family=\"sans-serif\"", " stroke=\"none\"", " stroke-width=\"1\"", " fill=\"#000000\""];

fn plain(element: &str) -> String {
    let skipped = if element.starts_with("<text") { &DEFAULTS[..] } else { &DEFAULTS[..1] };
    let mut text = skipped.iter().fold(element.to_owned(), |text, default| text.replace(default, ""));
    // A tenth of a pixel is enough for letters.
    if let Some((before, rest)) = text.split_once("font-size=\"")
        && let Some((size, after)) = rest.split_once('"')
        && let Ok(size) = size.parse::<f64>()
    {
        text = format!("{before}font-size=\"{size:.1}\"{after}");
    }
    text
}

/// Style and path of an element that is lines only, or a dot: a line without length that has round ends.
fn stroke(element: &str) -> Option<(String, String)> {
    let attribute = |name: &str| {
        let start = element.find(&format!(" {name}=\""))? + name.len() + 3;
        element[start..].split('"').next()
    };
    let points = if element.starts_with("<polyline ") {
        let points: Vec<&str> = attribute("points")?.split_whitespace().collect();
        let (first, others) = points.split_first()?;
        others.iter().fold(format!("M{first}"), |mut path, point| {
            let _ = write!(path, "L{point}");
            path
        })
    } else if element.starts_with("<line ") {
        let (x1, y1, x2, y2) = (attribute("x1")?, attribute("y1")?, attribute("x2")?, attribute("y2")?);
        format!("M{x1},{y1}L{x2},{y2}")
    } else if element.starts_with("<circle ") {
        let (x, y, radius) = (attribute("cx")?, attribute("cy")?, attribute("r")?.parse::<f64>().ok()?);
        let ends = format!("stroke-width=\"{}\" stroke-linecap=\"round\"", 2.0 * radius);
        return Some((format!("fill=\"none\" stroke=\"{}\" {ends}", attribute("fill")?), format!("M{x},{y}h0")));
    } else {
        return None;
    };
    let opacity = attribute("opacity")
        .filter(|value| *value != "1")
        .map_or(String::new(), |value| format!(" opacity=\"{value}\""));
    let width = attribute("stroke-width")
        .filter(|value| *value != "1")
        .map_or(String::new(), |value| format!(" stroke-width=\"{value}\""));
    Some((format!("fill=\"none\"{opacity} stroke=\"{}\"{width}", attribute("stroke")?), points))
}

fn flush(path: &mut Option<(String, String)>, text: &mut String) {
    if let Some((style, points)) = path.take() {
        let _ = writeln!(text, "<path {style} d=\"{points}\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_style_become_one_path() {
        let svg = "<svg width=\"9\">\n\
            <polyline fill=\"none\" opacity=\"1\" stroke=\"#AA1818\" stroke-width=\"2\" points=\"1,2 3,4 \"/>\n\
            <polyline fill=\"none\" opacity=\"1\" stroke=\"#AA1818\" stroke-width=\"2\" points=\"5,6 7,8 9,9 \"/>\n\
            <line opacity=\"0.2\" stroke=\"#000000\" stroke-width=\"1\" x1=\"8\" y1=\"3\" x2=\"9\" y2=\"4\"/>\n\
            <text x=\"2\" font-family=\"sans-serif\" font-size=\"12.0967\" opacity=\"1\" fill=\"#000000\">\nopacity &amp; ρ\n</text>\n\
            <line opacity=\"0.2\" stroke=\"#000000\" stroke-width=\"1\" x1=\"1\" y1=\"1\" x2=\"2\" y2=\"2\"/>\n\
            <circle cx=\"9\" cy=\"8\" r=\"3\" opacity=\"1\" fill=\"#AA1818\" stroke=\"none\" stroke-width=\"1\"/>\n\
            </svg>\n";
        let expected = "<svg font-family=\"sans-serif\" font-size=\"9.7\" width=\"9\">\n\
            <path fill=\"none\" stroke=\"#AA1818\" stroke-width=\"2\" d=\"M1,2L3,4M5,6L7,8L9,9\"/>\n\
            <text x=\"2\" font-size=\"12.1\">\nopacity &amp; ρ\n</text>\n\
            <path fill=\"none\" opacity=\"0.2\" stroke=\"#000000\" d=\"M8,3L9,4M1,1L2,2\"/>\n\
            <path fill=\"none\" stroke=\"#AA1818\" stroke-width=\"6\" stroke-linecap=\"round\" d=\"M9,8h0\"/>\n\
            </svg>\n";
        assert_eq!(compact(svg), expected);
    }
}
