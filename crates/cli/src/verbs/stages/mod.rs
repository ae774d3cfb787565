//! `stages`: where a running server spends its time, as a table, once or again and again.

mod screen;
mod table;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::admin::Admin;
use crate::arguments::StagesArguments;
use crate::exit::Exit;
use crate::output::Output;
use screen::Screen;

/// Prints the stages of a server.
pub(crate) fn stages(arguments: &StagesArguments) -> anyhow::Result<Exit> {
    let admin = Admin::at(&arguments.url, arguments.token_file.as_deref())?;
    let mut screen =
        (arguments.watch.is_some() && std::io::stdout().is_terminal() && !arguments.json)
            .then(Screen::default);
    for round in 0u64.. {
        let page = admin.get("/stages")?;
        let mut out = Output::new();
        if arguments.json {
            out.json(&page)?;
        } else {
            let text = table::text(&page, admin.url(), arguments.interval)?;
            match &mut screen {
                Some(screen) => out.write_all(screen.frame(&text).as_bytes())?,
                None if round > 0 => write!(out, "\n{text}")?,
                None => out.write_all(text.as_bytes())?,
            }
        }
        out.flush()?;
        drop(out);
        match arguments.watch {
            Some(seconds) => std::thread::sleep(Duration::from_secs(seconds)),
            None => break,
        }
    }
    Ok(Exit::Success)
}
