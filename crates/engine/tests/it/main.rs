//! The engine through its public interface, a file per behaviour.

mod adversity;
mod architecture;
mod basics;
mod checkpoints;
mod collection;
mod disk_full;
mod figures;
mod recently_read;
mod salvage;
mod scans;
mod sharing;
mod snapshots;
mod stages;
