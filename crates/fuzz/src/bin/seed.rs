//! Writes the seeds of every target to `fuzz/seeds/TARGET/made-NN`. Other files there, such as what once
//! broke a decoder, are left alone.

use std::path::Path;

use tallybook_fuzz::TARGETS;

fn main() -> std::io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for target in TARGETS {
        let dir = seeds.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("made-") {
                std::fs::remove_file(entry.path())?;
            }
        }
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("made-{number:02}")), seed)?;
        }
    }
    Ok(())
}
