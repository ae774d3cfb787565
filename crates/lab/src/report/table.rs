//! A table, as HTML, as Markdown and as plain text. Cells are text: each form escapes them its own way.

use std::fmt::Write as _;

use crate::chart::escape;

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<(&'static str, Vec<String>)>,
}

impl Table {
    /// An empty one with these columns.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Table {
        Table { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// With one more row; cells beyond the columns are left out, missing ones are empty.
    pub fn row<S: Into<String>>(self, cells: impl IntoIterator<Item = S>) -> Table {
        self.row_in("", cells)
    }

    /// With one more row of a CSS class, such as `better`.
    pub fn row_in<S: Into<String>>(
        mut self,
        class: &'static str,
        cells: impl IntoIterator<Item = S>,
    ) -> Table {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push((class, cells));
        self
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As HTML, in a box that scrolls by itself where the table is wider than the page.
    pub fn html(&self) -> String {
        let mut html = String::from("<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
        let numeric = self.numeric_columns();
        let class = |column: usize| if numeric[column] { " class=\"figure\"" } else { "" };
        for (column, name) in self.columns.iter().enumerate() {
            let _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(column), escape(name));
        }
        html.push_str("</tr></thead><tbody>\n");
        for (tone, cells) in &self.rows {
            let _ = write!(html, "<tr class=\"{tone}\">");
            for (column, cell) in cells.iter().enumerate() {
                let _ = write!(html, "<td{}>{}</td>", class(column), escape(cell));
            }
            html.push_str("</tr>\n");
        }
        html + "</tbody></table></div>\n"
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| escape_markdown(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let numeric = self.numeric_columns().into_iter();
        let marks: Vec<&str> =
            numeric.map(|figures| if figures { "---:" } else { "---" }).collect();
        let head = line(&self.columns) + &format!("| {} |\n", marks.join(" | "));
        self.rows.iter().fold(head, |text, (_, cells)| text + &line(cells))
    }

    /// As plain text, in columns.
    pub fn text(&self) -> String {
        let clean = |cell: &String| cell.replace(|c: char| c.is_control(), " ");
        let lines: Vec<Vec<String>> = std::iter::once(&self.columns)
            .chain(self.rows.iter().map(|(_, cells)| cells))
            .map(|cells| cells.iter().map(clean).collect())
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        let numeric = self.numeric_columns();
        let mut text = String::new();
        for cells in &lines {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let width = widths[column];
                let _ = match numeric[column] {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Which columns are of figures, which stand flush right. The first names the row.
    fn numeric_columns(&self) -> Vec<bool> {
        let figure = |cell: &String| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "-+<".contains(c))
        };
        let all_figures = |column: usize| self.rows.iter().all(|(_, cells)| figure(&cells[column]));
        let columns = 0..self.columns.len();
        columns.map(|column| column > 0 && !self.is_empty() && all_figures(column)).collect()
    }
}

/// Text as it may stand in a line of Markdown, HTML in it included.
pub(super) fn escape_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(["case", "rate"]).row(["<b>|x", "1.5 k/s"]).row_in("worse", ["get"])
    }

    #[test]
    fn every_form_escapes_its_own_way() {
        let html = table().html();
        assert!(html.contains("&lt;b&gt;|x") && html.contains("<tr class=\"worse\">"), "{html}");
        assert!(html.contains("<td class=\"figure\">1.5 k/s</td>"), "{html}");
        let markdown = table().markdown();
        assert!(markdown.contains("| &lt;b&gt;\\|x | 1.5 k/s |"), "{markdown}");
        assert!(markdown.contains("| --- | ---: |"), "{markdown}");
        assert_eq!(escape_markdown("[a](b)\n# c"), "\\[a\\](b) \\# c");
    }

    #[test]
    fn plain_text_stands_in_columns() {
        let text = table().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["case      rate", "<b>|x  1.5 k/s", "get"]);
    }
}
