//! What the C interfaces of RocksDB and LevelDB have in common: paths, errors as strings, and pointers
//! that are owned.
//!
//! Both report an error by setting a `char *` that the caller frees; both take paths that end in a
//! zero byte.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

/// Declares types that are only ever seen behind a pointer.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(super) struct $name {
                _opaque: [u8; 0],
                // Neither Send, nor Sync, nor Unpin: nothing is known of what is behind it.
                _unknown: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
            }
        )*
    };
}
pub(crate) use opaque;

/// How a library frees what it allocated.
pub(crate) type Free = unsafe extern "C" fn(*mut c_void);

/// Makes a call that may set an error, and turns that into text.
///
/// Requires: `call` leaves the pointer null, or sets it to a string that `free` frees.
pub(crate) fn checked<T>(
    free: Free,
    call: impl FnOnce(*mut *mut c_char) -> T,
) -> Result<T, String> {
    let mut error: *mut c_char = ptr::null_mut();
    let answer = call(&mut error);
    if error.is_null() {
        return Ok(answer);
    }
    Err(owned_text(free, error).unwrap_or_default())
}

/// A string that a library allocated, freed after it was copied; `None` for a null pointer.
///
/// Requires: `text` is null, or ends in a zero byte and was allocated for `free`.
pub(crate) fn owned_text(free: Free, text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library hands over a string that ends in a zero byte, ours until it is freed.
    let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: it was allocated by the library whose `free` this is, and isn't used after this.
    unsafe { free(text.cast()) };
    Some(copy)
}

/// A path as C wants it.
pub(crate) fn path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| format!("{}: a path can't hold a zero byte", path.display()))
}

/// An owned pointer, freed by the function that it comes with.
pub(crate) struct Owned<T> {
    raw: NonNull<T>,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Requires: `raw` came from the creator that belongs to `free`; those never return null.
    pub(crate) fn new(raw: *mut T, free: unsafe extern "C" fn(*mut T)) -> Self {
        Owned { raw: NonNull::new(raw).expect("the library allocates or ends the process"), free }
    }

    /// The pointer.
    pub(crate) fn get(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: by `new`, the pointer belongs to this function, and nothing uses it after this.
        unsafe { (self.free)(self.raw.as_ptr()) }
    }
}

/// A slice of what the library owns; empty for a null pointer, which C may use for that.
///
/// # Safety
///
/// `start` is null or points to `bytes` bytes that stay unchanged for `'a`.
pub(crate) unsafe fn borrowed<'a>(start: *const u8, bytes: usize) -> &'a [u8] {
    if start.is_null() || bytes == 0 {
        return &[];
    }
    // SAFETY: by the requirement.
    unsafe { slice::from_raw_parts(start, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn free_c_string(text: *mut c_void) {
        // SAFETY: the tests allocate with `CString::into_raw`.
        drop(unsafe { CString::from_raw(text.cast()) });
    }

    #[test]
    fn an_error_that_was_set_is_told_and_an_answer_without_one_is_passed_on() {
        assert_eq!(checked(free_c_string, |_| 7), Ok(7));
        let failed = checked(free_c_string, |error| {
            let text = CString::new("no such file").unwrap().into_raw();
            // SAFETY: `checked` passes a pointer to a local of its own.
            unsafe { *error = text };
        });
        assert_eq!(failed, Err("no such file".to_owned()));
    }

    #[test]
    fn a_path_with_a_zero_byte_is_refused() {
        assert!(path(Path::new("a\0b")).is_err());
        assert_eq!(path(Path::new("a/b")).unwrap().as_bytes(), b"a/b");
    }
}
