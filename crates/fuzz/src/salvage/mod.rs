//! What is whole of damaged files: of a store, of a journal, of a table. It is never what was not there, and
//! never less than what opening, recovery and reading find.

mod history;
mod store;
mod journal;
mod table;

pub(crate) use journal::{journal, seeds as journal_seeds};
pub(crate) use store::{seeds as store_seeds, store};
pub(crate) use table::{seeds as table_seeds, table};
