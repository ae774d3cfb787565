//! What can be said of repeated runs: medians, how sure they are, and whether two sets differ.
//!
//! Invariant: every function is pure, and the same samples and seed give the same figures on any machine
//! and in any later version, so that a report redrawn from its runs says what it said before.
//! It knows nothing of records, metrics or units.

mod sample;
mod bootstrap;
mod welch;
mod pairs;
mod mann_whitney;
mod effect;
mod holm;

pub use bootstrap::{Bootstrap, Interval};
pub use effect::{Magnitude, cliffs_delta, hedges_g, magnitude};
pub use holm::holm;
pub use mann_whitney::{MannWhitney, mann_whitney, smallest_p};
pub use pairs::{smallest_of_pairs, student, swapped};
pub use sample::{mean, median, quantile, variance};
pub use welch::{Welch, welch};
