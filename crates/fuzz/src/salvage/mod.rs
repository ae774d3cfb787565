//! What is whole of damaged files: of a store, of a table. It is never what was not there, and
//! never less than what opening and reading find.

mod history;
mod store;
mod table;

pub(crate) use store::{seeds as store_seeds, store};
pub(crate) use table::{seeds as table_seeds, table};
