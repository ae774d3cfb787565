//! Follows a chunked body to its end (RFC 9112, section 7.1), stricter than hyper decodes it.
//!
//! Refused: sizes that aren't 1 to 16 hex digits, space around them, bare line feeds, control
//! characters in extensions and trailers, folded trailers. Each byte is looked at once.

use super::lines::{HeadLimits, Violation, is_text};

/// Longest line that announces a chunk, extensions included.
const LINE_BYTES_MAX: usize = 1024;
/// Most digits of a chunk's size.
const SIZE_DIGITS_MAX: usize = 16;

const MALFORMED: Violation = Violation::Malformed("a chunk is malformed");

/// Where in a chunked body.
#[derive(Debug)]
pub(super) struct Chunks {
    part: Part,
    /// Size of the chunk, then what is left of it.
    size: u64,
    /// Bytes of the current line.
    line: usize,
    trailer_bytes: usize,
    trailer_count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    Trailer,
    TrailerLineFeed,
}

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks { part: Part::Size, size: 0, line: 0, trailer_bytes: 0, trailer_count: 0 }
    }

    /// Passes over bytes of the body; answers how many, at least one, and whether the body ended.
    /// Requires: `input` is not empty.
    pub(super) fn pass(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, bool), Violation> {
        if self.part == Part::Data {
            let passed = (input.len() as u64).min(self.size);
            self.size -= passed;
            if self.size == 0 {
                self.part = Part::DataReturn;
            }
            return Ok((passed as usize, false));
        }
        let ended = match self.part {
            Part::Trailer | Part::TrailerLineFeed => self.pass_trailer(input[0], limits)?,
            _ => {
                self.pass_line(input[0])?;
                false
            }
        };
        Ok((1, ended))
    }

    /// The lines around the data.
    fn pass_line(&mut self, byte: u8) -> Result<(), Violation> {
        self.line += 1;
        if self.line > LINE_BYTES_MAX {
            return Err(MALFORMED);
        }
        let digits = self.line - 1;
        self.part = match (self.part, byte) {
            (Part::Size, b';') if digits > 0 => Part::Extension,
            (Part::Size, b'\r') if digits > 0 => Part::SizeLineFeed,
            (Part::Size, digit) if digits < SIZE_DIGITS_MAX => {
                let value = char::from(digit).to_digit(16).ok_or(MALFORMED)?;
                self.size = self.size << 4 | u64::from(value);
                Part::Size
            }
            (Part::Extension, b'\r') => Part::SizeLineFeed,
            (Part::Extension, byte) if is_text(byte) => Part::Extension,
            (Part::SizeLineFeed, b'\n') => {
                self.line = 0;
                if self.size == 0 { Part::Trailer } else { Part::Data }
            }
            (Part::DataReturn, b'\r') => Part::DataLineFeed,
            (Part::DataLineFeed, b'\n') => {
                self.line = 0;
                Part::Size
            }
            _ => return Err(MALFORMED),
        };
        Ok(())
    }

    /// The trailer; true at its end, an empty line.
    fn pass_trailer(&mut self, byte: u8, limits: &HeadLimits) -> Result<bool, Violation> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.header_bytes_max
            || self.trailer_count > limits.header_count_max
        {
            return Err(Violation::HeadersTooLarge);
        }
        match (self.part, byte) {
            (Part::Trailer, b'\r') => self.part = Part::TrailerLineFeed,
            (Part::Trailer, b' ' | b'\t') if self.line == 0 => return Err(MALFORMED),
            (Part::Trailer, byte) if is_text(byte) => self.line += 1,
            (Part::TrailerLineFeed, b'\n') if self.line == 0 => return Ok(true),
            (Part::TrailerLineFeed, b'\n') => {
                (self.part, self.line) = (Part::Trailer, 0);
                self.trailer_count += 1;
            }
            _ => return Err(MALFORMED),
        }
        Ok(false)
    }
}
