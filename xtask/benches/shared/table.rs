//! A table of results as Markdown, readable in a terminal as well.

use std::fmt;

/// A table under construction.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    /// With these column heads.
    pub(crate) fn new(heads: &[&str]) -> Table {
        Table { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()], notes: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
        for (index, row) in self.rows.iter().enumerate() {
            for column in 0..columns {
                let cell = row.get(column).map_or("", String::as_str);
                // Names to the left, numbers to the right.
                if column == 0 {
                    write!(f, "| {cell:<0$} |", width(column))?;
                } else {
                    write!(f, " {cell:>0$} |", width(column))?;
                }
            }
            writeln!(f)?;
            if index == 0 {
                for column in 0..columns {
                    let line = "-".repeat(width(column) + 1);
                    if column == 0 { write!(f, "|{line}-|")? } else { write!(f, "{line}:|")? }
                }
                writeln!(f)?;
            }
        }
        for note in &self.notes {
            writeln!(f, "\n{note}.")?;
        }
        Ok(())
    }
}
