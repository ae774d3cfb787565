//! The seeds of the fuzz targets, replayed as they are and changed, without libFuzzer.

mod random;
mod replay;
