//! What a file store does, through its public interface. `support` has the stores and the bytes.

mod support;

mod architecture;
mod round_trips;
mod names;
mod holding;
mod totals;
mod unknown_names;
mod crashes;
mod damage;
mod description;
mod failing_bucket;
mod disks;
mod newer_formats;
mod kfs;
mod kills;
mod limits;
mod reaper;
mod power_loss;
mod mutations;
