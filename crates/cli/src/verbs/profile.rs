//! `profile`: asks a running server for a profile of itself.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::admin::Admin;
use crate::arguments::{ProfileArguments, ProfileFormat};
use crate::exit::{Exit, UsageError};
use crate::partial::deliver;
use crate::progress::Countdown;

/// How often the time left is shown.
const SHOW_PERIOD: Duration = Duration::from_millis(200);

/// Takes a profile and writes it to a file, or to standard output.
pub(crate) fn profile(arguments: &ProfileArguments) -> anyhow::Result<Exit> {
    let format = format(arguments)?;
    let page = format!(
        "/debug/profile/{}?seconds={}&format={}&full={}",
        name(arguments.kind),
        arguments.seconds,
        name(format),
        u8::from(arguments.full),
    );
    let admin = Admin::at(&arguments.url, arguments.token_file.as_deref())?;
    let duration = Duration::from_secs(arguments.seconds.into());
    // Where it goes is looked at before it is taken.
    deliver(arguments.output.as_deref(), |out| {
        out.write_all(&fetch_counting_down(admin, page, duration)?)?;
        Ok(out.flush()?)
    })?;
    Ok(Exit::Success)
}

fn fetch_counting_down(admin: Admin, page: String, duration: Duration) -> anyhow::Result<Vec<u8>> {
    let countdown = Countdown::new("profile", duration);
    let started = Instant::now();
    let (finish, finished) = mpsc::channel();
    std::thread::spawn(move || {
        // Whoever waits for it waits to the end.
        let _ = finish.send(admin.fetch(&page, duration));
    });
    loop {
        match finished.recv_timeout(SHOW_PERIOD) {
            Ok(profile) => return profile,
            Err(RecvTimeoutError::Timeout) => countdown.update(started.elapsed()),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the request was not finished"),
        }
    }
}

/// The format asked for, or the one that the file's name tells.
fn format(arguments: &ProfileArguments) -> Result<ProfileFormat, UsageError> {
    if let Some(format) = arguments.format {
        return Ok(format);
    }
    let extension = arguments.output.as_deref().and_then(Path::extension);
    match extension.and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(ProfileFormat::Svg),
        Some("pb" | "pprof" | "proto") => Ok(ProfileFormat::Pprof),
        Some("folded" | "txt") => Ok(ProfileFormat::Folded),
        None if arguments.output.is_none() => Ok(ProfileFormat::Folded),
        _ => Err(UsageError(
            "the file's name tells no format (.svg, .pprof, .pb, .folded, .txt); give --format"
                .to_owned(),
        )),
    }
}

/// The value as it is written on the command line, which is as the server names it.
fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Cli, Command};

    fn format_of(arguments: &[&str]) -> Option<ProfileFormat> {
        let all = [&["tallybook", "profile", "cpu", "http://x"], arguments].concat();
        let Command::Profile(arguments) = Cli::try_parse_from(all).unwrap().command else {
            panic!("another command");
        };
        format(&arguments).ok()
    }

    #[test]
    fn format_is_guessed_from_the_file() {
        for (arguments, expected) in [
            (&["-o", "cpu.svg"][..], Some(ProfileFormat::Svg)),
            (&["-o", "cpu.pb"], Some(ProfileFormat::Pprof)),
            (&["-o", "cpu.folded"], Some(ProfileFormat::Folded)),
            (&["-o", "cpu.png"], None),
            (&["-o", "-"], None),
            (&["-o", "cpu.png", "--format", "svg"], Some(ProfileFormat::Svg)),
            (&[], Some(ProfileFormat::Folded)),
        ] {
            assert_eq!(format_of(arguments), expected, "{arguments:?}");
        }
    }
}
