//! The shell of a report's page: policy, styles, script. Nothing in it is fetched from anywhere.

use crate::chart::{Chart, NARROW, STYLE, WIDE, escape};

const PAGE_STYLE: &str = include_str!("page.css");
const READOUT: &str = include_str!("readout.js");
/// SHA-256 of `readout.js` in base 64, by which the page's policy lets it run and nothing else. The
/// browser says what it should be when it isn't, and the test that opens a report fails.
const READOUT_HASH: &str = "Duof/UdkEJfqOGF+x6e34MdECWe23Y/2I0Ac9RXamMQ=";

/// A whole page around a body. Flame graphs bring scripts of their own, so pages with them must let
/// inline scripts run; they are kept in frames of an origin of their own.
pub(super) fn page(title: &str, body: &str, has_flame_graphs: bool) -> String {
    let scripts = match has_flame_graphs {
        true => "'unsafe-inline'".to_owned(),
        false => format!("'sha256-{READOUT_HASH}'"),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src {scripts}; img-src data:; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
         <style>{STYLE}{PAGE_STYLE}</style></head>\n<body>\n{body}\n\
         <script>{READOUT}</script></body></html>\n",
        title = escape(title),
    )
}

/// A chart for wide screens and paper and the same for phones, of which the style sheet shows one.
pub(super) fn figure(title: &str, caption: &str, chart: &dyn Chart) -> String {
    format!(
        "<figure><h3>{}</h3><div class=\"plot\">{}\n{}</div><figcaption>{}</figcaption></figure>\n",
        escape(title),
        chart.draw(WIDE).inline("wide", title),
        chart.draw(NARROW).inline("narrow", title),
        escape(caption)
    )
}

/// A flame graph's SVG in a frame of its own, as high as it says it is.
pub(super) fn flame_frame(title: &str, svg: &str) -> String {
    let declared = svg.split_once("<svg").and_then(|(_, rest)| {
        let head = rest.split('>').next()?;
        head.split(" height=\"").nth(1)?.split('"').next()?.parse::<f64>().ok()
    });
    let height = declared.filter(|height| height.is_finite()).unwrap_or(400.0).clamp(80.0, 1600.0);
    // From the element on: a declaration before it means something in a file only.
    let element = svg.find("<svg").map_or("", |at| &svg[at..]);
    let document = format!(
        "<!doctype html><style>body{{margin:0}}svg{{display:block;width:100%}}</style>{element}"
    );
    format!(
        "<figure><h3>{title}</h3><iframe title=\"{title}\" sandbox=\"allow-scripts\" \
         height=\"{height:.0}\" srcdoc=\"{document}\"></iframe></figure>\n",
        title = escape(title),
        document = escape(&document)
    )
}

/// JSON as it may stand in a script element: no `<` ends it.
pub(super) fn embedded_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_high_as_its_graph_and_holds_it_escaped() {
        let svg =
            "<?xml version=\"1.0\"?><svg width=\"1200\" height=\"342\"><text>\"a\"</text></svg>";
        let frame = flame_frame("CPU <1>", svg);
        assert!(frame.contains("height=\"342\"") && frame.contains("CPU &lt;1&gt;"), "{frame}");
        assert!(!frame.contains("<?xml") && !frame.contains("<text>"), "{frame}");
        assert!(flame_frame("x", "no graph").contains("height=\"400\""));
        assert!(flame_frame("x", "<svg height=\"1e99\">").contains("height=\"1600\""));
    }

    #[test]
    fn scripts_run_by_hash_unless_flame_graphs_bring_theirs() {
        assert!(page("t", "", false).contains(&format!("script-src 'sha256-{READOUT_HASH}'")));
        assert!(page("t", "", true).contains("script-src 'unsafe-inline'"));
        assert_eq!(embedded_json("{\"a\":\"</script>\"}"), "{\"a\":\"\\u003c/script>\"}");
    }
}
