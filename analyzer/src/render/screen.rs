//! Lines of styled text, wrapped to a width, and a report's sections cut to one screen.
//!
//! Every character enters through [`Line::push`], which escapes it: no renderer can forget to.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::text;

/// What a piece of text means; the colours of the house style.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Error,
    Warning,
    Hint,
    Strong,
    Faint,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Good => AnsiColor::Green.on_default().bold(),
            Tone::Error => AnsiColor::Red.on_default().bold(),
            Tone::Warning => AnsiColor::Yellow.on_default().bold(),
            Tone::Hint => AnsiColor::Cyan.on_default(),
            Tone::Strong => Style::new().bold(),
            Tone::Faint => Style::new().dimmed(),
        }
    }
}

/// One line, in pieces of one tone each.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pieces: Vec<(String, Tone)>,
    width: usize,
}

impl Line {
    /// A line that begins with blanks.
    pub(super) fn indented(blanks: usize) -> Line {
        let mut line = Line::default();
        line.pad_to(blanks);
        line
    }

    /// Appends text, escaped.
    pub(super) fn push(&mut self, tone: Tone, text: &str) -> &mut Line {
        let safe = text::escape(text).into_owned();
        self.width += safe.chars().count();
        self.pieces.push((safe, tone));
        self
    }

    /// Appends blanks up to a column.
    pub(super) fn pad_to(&mut self, column: usize) -> &mut Line {
        let blanks = column.saturating_sub(self.width);
        self.push(Tone::Plain, &" ".repeat(blanks))
    }

    /// Columns so far.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The line broken at blanks to at most `width` columns, later lines indented by `hang`. A word that is longer
    /// stays whole, so that it can still be searched for.
    pub(super) fn wrap(self, width: usize, hang: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut line = Line::default();
        // A word may change its tone in the middle: collect pieces until a blank.
        let mut word = Line::default();
        let mut started = false;
        for (piece, tone) in self.pieces {
            for (at, part) in piece.split(' ').enumerate() {
                if at > 0 {
                    line.append_word(&mut word, width, hang, &mut started, &mut lines);
                    word.push(tone, " ");
                }
                if !part.is_empty() {
                    word.push(tone, part);
                }
            }
        }
        line.append_word(&mut word, width, hang, &mut started, &mut lines);
        lines.push(line);
        lines
    }

    /// Moves a word, with the blank before it, to this line or to a new one.
    fn append_word(&mut self, word: &mut Line, width: usize, hang: usize, started: &mut bool, lines: &mut Vec<Line>) {
        let word = std::mem::take(word);
        let blank_only = word.pieces.iter().all(|(piece, _)| piece == " ");
        let has_blank = word.pieces.first().is_some_and(|(piece, _)| piece == " ");
        if *started && has_blank && !blank_only && self.width + word.width > width {
            lines.push(std::mem::replace(self, Line::indented(hang)));
            self.extend(word.pieces.into_iter().skip(1));
        } else {
            self.extend(word.pieces);
        }
        *started |= !blank_only;
    }

    fn extend(&mut self, pieces: impl IntoIterator<Item = (String, Tone)>) {
        for (piece, tone) in pieces {
            self.width += piece.chars().count();
            match self.pieces.last_mut() {
                Some((last, last_tone)) if *last_tone == tone => last.push_str(&piece),
                _ => self.pieces.push((piece, tone)),
            }
        }
    }

    /// Writes the line and its end; no blanks at the end.
    pub(super) fn write(&self, color: bool, out: &mut dyn Write) -> io::Result<()> {
        let end = self.pieces.iter().rposition(|(piece, _)| !piece.trim_end_matches(' ').is_empty());
        for (at, (piece, tone)) in self.pieces.iter().take(end.map_or(0, |end| end + 1)).enumerate() {
            let piece = if Some(at) == end { piece.trim_end_matches(' ') } else { piece };
            let style = tone.style();
            if color && !piece.is_empty() && *tone != Tone::Plain {
                write!(out, "{style}{piece}{style:#}")?;
            } else {
                out.write_all(piece.as_bytes())?;
            }
        }
        out.write_all(b"\n")
    }
}

/// Lines that are kept or dropped together.
pub(super) type Item = Vec<Line>;

/// Part of a report, whose last items go first when the screen is full.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Items in reading order.
    pub(super) items: Vec<Item>,
    /// Items that are dropped only where nothing else helps; the first one never is.
    pub(super) keep: usize,
    /// Sections with a higher value lose items first; 0: none.
    pub(super) shed: u8,
    /// What an item is, for the line that counts dropped ones.
    pub(super) noun: &'static str,
    dropped: usize,
}

impl Section {
    /// A section that is never cut.
    pub(super) fn fixed(items: Vec<Item>) -> Section {
        Section { keep: items.len(), items, ..Section::default() }
    }

    /// A section that may be cut down to `keep` items.
    pub(super) fn sheddable(items: Vec<Item>, keep: usize, shed: u8, noun: &'static str) -> Section {
        Section { items, keep, shed, noun, dropped: 0 }
    }

    fn height(&self) -> usize {
        self.items.iter().map(Vec::len).sum::<usize>() + usize::from(self.dropped > 0)
    }
}

/// Drops items until the sections fit into `budget` lines: first down to what each wants to keep, then to one item each.
pub(super) fn fit(sections: &mut [Section], budget: usize) {
    for is_last_resort in [false, true] {
        while sections.iter().map(Section::height).sum::<usize>() > budget {
            let is_full = |section: &&mut Section| {
                let keep = if is_last_resort { section.keep.min(1) } else { section.keep };
                section.shed > 0 && section.items.len() > keep
            };
            let Some(section) = sections.iter_mut().filter(is_full).max_by_key(|section| section.shed) else {
                break;
            };
            section.items.pop();
            section.dropped += 1;
        }
    }
}

/// Writes the sections; each says what was dropped from it, and `more` how to see it.
pub(super) fn write(
    sections: &[Section],
    indent: usize,
    more: &str,
    color: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    for section in sections {
        for line in section.items.iter().flatten() {
            line.write(color, out)?;
        }
        if section.dropped > 0 {
            let mut line = Line::indented(indent);
            let dropped = text::counted(section.dropped as u64, section.noun);
            line.push(Tone::Faint, &format!("… and {dropped} more ({more})"));
            line.write(color, out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Line, Section, Tone, fit, write};

    fn line(text: &str) -> Line {
        let mut line = Line::default();
        line.push(Tone::Plain, text);
        line
    }

    fn plain(lines: &[Line]) -> String {
        let mut bytes = Vec::new();
        for line in lines {
            line.write(false, &mut bytes).expect("a vector takes everything");
        }
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn wraps_at_blanks_and_keeps_long_words() {
        assert_eq!(plain(&line("one two three").wrap(9, 2)), "one two\n  three\n");
        assert_eq!(plain(&line("0,2,4,6,8,10,12 x").wrap(5, 2)), "0,2,4,6,8,10,12\n  x\n");
        assert_eq!(plain(&line("  one two").wrap(5, 4)), "  one\n    two\n");
        assert_eq!(plain(&line("").wrap(5, 4)), "\n");
    }

    #[test]
    fn a_word_of_two_tones_is_not_broken() {
        let mut two = line("aaa b");
        two.push(Tone::Error, "cc dd");
        assert_eq!(plain(&two.wrap(5, 0)), "aaa\nbcc\ndd\n");
    }

    #[test]
    fn colour_ends_where_it_began() {
        let mut bytes = Vec::new();
        line("a ").push(Tone::Error, "b\x1b[0m").write(true, &mut bytes).expect("a vector takes everything");
        assert_eq!(String::from_utf8(bytes).expect("text"), "a \x1b[1m\x1b[31mb\\u{1b}[0m\x1b[0m\n");
        let mut phrase = Line::default();
        phrase.push(Tone::Hint, "one two");
        let mut bytes = Vec::new();
        for line in phrase.wrap(80, 0) {
            line.write(true, &mut bytes).expect("a vector takes everything");
        }
        assert_eq!(String::from_utf8(bytes).expect("text"), "\x1b[36mone two\x1b[0m\n");
    }

    #[test]
    fn the_least_important_section_is_cut_first() {
        let section = |n: usize, keep, shed| {
            Section::sheddable((0..n).map(|i| vec![line(&format!("{shed}.{i}"))]).collect(), keep, shed, "fact")
        };
        let mut sections = [section(4, 1, 2), section(4, 1, 1)];
        fit(&mut sections, 6);
        let mut bytes = Vec::new();
        write(&sections, 2, "--verbose", false, &mut bytes).expect("a vector takes everything");
        assert_eq!(
            String::from_utf8(bytes).expect("text"),
            "2.0\n  … and 3 facts more (--verbose)\n1.0\n1.1\n1.2\n1.3\n"
        );
        let mut sections = [section(4, 3, 2), section(4, 4, 1)];
        fit(&mut sections, 5);
        assert_eq!(sections.map(|section| section.items.len()), [1, 2]);
    }
}
