//! A count of commits, by which a reader knows whether its read transaction still shows everything.
//!
//! LMDB and redb read through transactions that show what was there when they began. A session keeps
//! its own until something was committed since: a read sees every write that was acknowledged before
//! it, and a load of reads alone begins one transaction, as both engines recommend.
//!
//! Invariant: a writer counts its commit after it is visible and before it is acknowledged; a reader
//! reads the count before it begins its transaction.

use std::sync::atomic::{AtomicU64, Ordering};

/// Commits so far.
#[derive(Debug, Default)]
pub(super) struct Commits(AtomicU64);

impl Commits {
    /// Counts a commit that is visible.
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn so_far(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A read transaction that is kept while it shows everything.
pub(super) struct Kept<T> {
    began_at: u64,
    transaction: Option<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { began_at: 0, transaction: None }
    }
}

impl<T> Kept<T> {
    /// The transaction, begun anew if something was committed since.
    pub(super) fn current<E>(
        &mut self,
        commits: &Commits,
        begin: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        let so_far = commits.so_far();
        if self.began_at != so_far {
            self.end();
        }
        let transaction = match self.transaction.take() {
            Some(transaction) => transaction,
            None => {
                self.began_at = so_far;
                begin()?
            }
        };
        Ok(self.transaction.insert(transaction))
    }

    /// Ends it, so that it doesn't keep pages from being used again.
    pub(super) fn end(&mut self) {
        self.transaction = None;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_transaction_is_kept_until_something_is_committed() {
        let commits = Commits::default();
        let mut kept = Kept::default();
        let mut begun = 0;
        let mut read = |kept: &mut Kept<u32>, commits: &Commits| {
            let current = kept.current(commits, || {
                begun += 1;
                Ok::<u32, Infallible>(begun)
            });
            current.copied().unwrap()
        };
        assert_eq!(read(&mut kept, &commits), 1);
        assert_eq!(read(&mut kept, &commits), 1);
        commits.count();
        assert_eq!(read(&mut kept, &commits), 2);
        kept.end();
        assert_eq!(read(&mut kept, &commits), 3);
    }
}
