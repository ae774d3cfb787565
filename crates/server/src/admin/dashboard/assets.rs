//! The files of the page, by path.
//!
//! Invariant: the page's own policy allows scripts, styles and requests of this listener only. The
//! frame of a flame graph runs a script that came with the graph, so it stands alone: an origin of
//! its own, from which nothing can be asked.

/// A file as it is served.
pub(super) struct Asset {
    path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) policy: &'static str,
    pub(super) text: &'static str,
}

const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; frame-src 'self' blob:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";
const FRAME_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; \
     sandbox allow-scripts";
const NO_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

const fn page(path: &'static str, policy: &'static str, text: &'static str) -> Asset {
    Asset { path, content_type: HTML, policy, text }
}

const fn part(path: &'static str, content_type: &'static str, text: &'static str) -> Asset {
    Asset { path, content_type, policy: NO_POLICY, text }
}

static ASSETS: &[Asset] = &[
    page("/", PAGE_POLICY, include_str!("assets/page.html")),
    page("/assets/flame.html", FRAME_POLICY, include_str!("assets/flame.html")),
    part("/assets/page.css", STYLE, include_str!("assets/page.css")),
    part("/assets/card.css", STYLE, include_str!("assets/card.css")),
    part("/assets/colours.css", STYLE, include_str!("assets/colours.css")),
    part("/assets/icon.svg", IMAGE, include_str!("assets/icon.svg")),
    part("/assets/page.js", SCRIPT, include_str!("assets/page.js")),
    part("/assets/units.js", SCRIPT, include_str!("assets/units.js")),
    part("/assets/history.js", SCRIPT, include_str!("assets/history.js")),
    part("/assets/chart.js", SCRIPT, include_str!("assets/chart.js")),
    part("/assets/plot.js", SCRIPT, include_str!("assets/plot.js")),
    part("/assets/panels.js", SCRIPT, include_str!("assets/panels.js")),
    part("/assets/tree.js", SCRIPT, include_str!("assets/tree.js")),
    part("/assets/tiles.js", SCRIPT, include_str!("assets/tiles.js")),
    part("/assets/profile.js", SCRIPT, include_str!("assets/profile.js")),
    part("/assets/theme.js", SCRIPT, include_str!("assets/theme.js")),
    part("/assets/uplot.js", SCRIPT, tallybook_uplot::JS),
    part("/assets/uplot.css", STYLE, tallybook_uplot::CSS),
    part("/assets/uplot-licence.txt", TEXT, tallybook_uplot::LICENSE),
];

/// The file of this path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `"/assets/..."`, `"./..."` and `"#..."` of a text that names a file.
    fn named_files(text: &str) -> impl Iterator<Item = String> {
        text.split('"').filter_map(|word| {
            let name = word.strip_prefix("/assets/").or(word.strip_prefix("./"))?;
            Some(format!("/assets/{name}"))
        })
    }

    #[test]
    fn every_file_that_the_page_names_is_served() {
        let own = || ASSETS.iter().filter(|asset| !asset.path.contains("uplot"));
        let named: Vec<String> = own().flat_map(|asset| named_files(asset.text)).collect();
        assert!(named.len() > 10, "the names were found: {named:?}");
        for name in &named {
            assert!(find(name).is_some(), "{name} is not served");
        }
        for asset in ASSETS.iter().filter(|asset| asset.path != "/") {
            assert!(named.iter().any(|name| name == asset.path), "nothing names {}", asset.path);
        }
    }

    #[test]
    fn the_page_has_nothing_that_its_policy_forbids() {
        for asset in ASSETS.iter().filter(|asset| asset.policy == PAGE_POLICY) {
            for forbidden in ["<style", " style=", " onclick=", " onload=", "javascript:", "://"] {
                assert!(!asset.text.contains(forbidden), "{}: {forbidden}", asset.path);
            }
            for script in asset.text.split("<script").skip(1) {
                let tag = script.split('>').next().unwrap();
                assert!(tag.contains(" src=\"/assets/"), "{}: a script in the page", asset.path);
            }
        }
    }

    #[test]
    fn dark_is_the_same_by_the_button_and_by_the_system() {
        let text = find("/assets/colours.css").unwrap().text;
        let colours = |selector: &str| -> Vec<String> {
            let block = text.split(selector).nth(1).unwrap().split('}').next().unwrap();
            block
                .lines()
                .map(|line| line.trim().to_owned())
                .filter(|line| !line.is_empty())
                .collect()
        };
        let by_button = colours(":root[data-theme=\"dark\"]");
        assert!(by_button.len() > 25, "{by_button:?}");
        assert_eq!(by_button, colours(":root[data-theme=\"auto\"]"));
    }
}
