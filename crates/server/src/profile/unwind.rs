//! Call stacks of running threads, walked by the unwind tables that every build has.
//!
//! A walk may run in a signal handler or inside the allocator: it takes no lock, allocates nothing,
//! and reads only code tables and the walking thread's own stack, between its stack pointer and its
//! end. It needs no compiler flag. What `prepare` sets up stays for good, because a handler may be
//! using it at any time.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder};
#[cfg(target_arch = "aarch64")]
use framehop::{aarch64::CacheAarch64 as Cache, aarch64::UnwinderAarch64 as Tables};
#[cfg(not(target_arch = "aarch64"))]
use framehop::{x86_64::CacheX86_64 as Cache, x86_64::UnwinderX86_64 as Tables};

use super::registers::Registers;

/// Walks at the same moment; one more is given up.
const WALKS_MAX: usize = 8;
/// No thread's stack is larger: a stack pointer farther from its end is on a stack of another kind.
const STACK_BYTES_MAX: usize = 1 << 30;

type Policy = MustNotAllocateDuringUnwind;

/// What walks need.
struct Walker {
    tables: Tables<&'static [u8], Policy>,
    scratch: [Scratch; WALKS_MAX],
    /// The end of the main thread's stack.
    main_stack_end: usize,
}

/// Working memory of one walk at a time.
struct Scratch {
    is_taken: AtomicBool,
    cache: UnsafeCell<Cache<Policy>>,
}

// SAFETY: `tables` and `main_stack_end` are never written after they are made, and `cache` is used
// only by whoever set `is_taken`.
unsafe impl Sync for Walker {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Walker {}

static WALKER: OnceLock<Walker> = OnceLock::new();

/// Makes walks possible in this process; says why not.
pub(super) fn prepare() -> Result<(), String> {
    if !Registers::ARE_KNOWN {
        return Err("call stacks can't be walked on this processor".to_owned());
    }
    if WALKER.get().is_some() {
        return Ok(());
    }
    let mut tables = Tables::new();
    for module in modules() {
        tables.add_module(module);
    }
    if tables.max_known_code_address() == 0 {
        return Err("this program has no unwind tables".to_owned());
    }
    let scratch =
        || Scratch { is_taken: AtomicBool::new(false), cache: UnsafeCell::new(Cache::new_in()) };
    let scratch = std::array::from_fn(|_| scratch());
    // Another thread may have been faster: its walker is as good.
    let _ = WALKER.set(Walker { tables, scratch, main_stack_end: main_stack_end()? });
    Ok(())
}

/// Writes the addresses of the calls under way, innermost first, each inside its call instruction, and
/// answers how many there are. `None` when nothing is prepared or too many walks are under way.
///
/// Async-signal-safe. Requires: `registers` are this thread's.
pub(super) fn walk(registers: &Registers, addresses: &mut [usize]) -> Option<usize> {
    let walker = WALKER.get()?;
    let scratch = walker.scratch.iter().find(|scratch| {
        !scratch.is_taken.load(Ordering::Relaxed) && !scratch.is_taken.swap(true, Ordering::Acquire)
    })?;
    // SAFETY: `is_taken` was set here, so nobody else uses the cache until it is unset below.
    let cache = unsafe { &mut *scratch.cache.get() };
    let stack = stack_of_this_thread(registers.stack_pointer(), walker.main_stack_end);
    let mut read_stack = |address: u64| read_word(&stack, address);
    let mut frames = walker.tables.iter_frames(
        registers.instruction_pointer(),
        registers.for_unwinding(),
        cache,
        &mut read_stack,
    );
    let mut count = 0;
    while count < addresses.len()
        && let Ok(Some(frame)) = frames.next()
    {
        addresses[count] = frame.address_for_lookup() as usize;
        count += 1;
    }
    scratch.is_taken.store(false, Ordering::Release);
    Some(count)
}

/// The used part of the calling thread's stack; empty when it can't be known.
///
/// The C library keeps a thread's descriptor, whose address `pthread_self` is, at the end of its
/// stack. Only the main thread's is elsewhere, below its stack.
fn stack_of_this_thread(stack_pointer: usize, main_stack_end: usize) -> Range<usize> {
    // SAFETY: it only reads a register and is async-signal-safe.
    let descriptor = unsafe { libc::pthread_self() } as usize;
    let end = if stack_pointer < descriptor { descriptor } else { main_stack_end };
    match end.checked_sub(stack_pointer) {
        Some(length) if length <= STACK_BYTES_MAX => stack_pointer..end,
        _ => 0..0,
    }
}

fn read_word(stack: &Range<usize>, address: u64) -> Result<u64, ()> {
    let address = usize::try_from(address).map_err(|_| ())?;
    let end = address.checked_add(size_of::<u64>()).ok_or(())?;
    if address < stack.start || end > stack.end {
        return Err(());
    }
    // SAFETY: the word lies within the used part of this thread's stack, which is mapped and readable
    // and which nobody else writes; it may stand at any alignment.
    Ok(unsafe { (address as *const u64).read_unaligned() })
}

fn main_stack_end() -> Result<usize, String> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|error| format!("cannot read /proc/self/maps: {error}"))?;
    maps.lines()
        .find(|line| line.ends_with("[stack]"))
        .and_then(|line| line.split([' ', '-']).nth(1))
        .and_then(|end| usize::from_str_radix(end, 16).ok())
        .ok_or_else(|| "the main thread's stack is not in /proc/self/maps".to_owned())
}

/// The program and its libraries, with their unwind tables in place.
fn modules() -> Vec<Module<&'static [u8]>> {
    let mut modules: Vec<Module<&'static [u8]>> = Vec::new();
    // SAFETY: `add_module` gets back the pointer to `modules` that is given here, and the vector
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut modules).cast()) };
    modules
}

/// Adds one loaded object to the vector that `modules` points at.
unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    modules: *mut c_void,
) -> libc::c_int {
    // SAFETY: the C library gives a valid description, and `modules` is the vector of `modules()`.
    let (info, modules) = unsafe { (&*info, &mut *modules.cast::<Vec<Module<&'static [u8]>>>()) };
    // SAFETY: the description says where its headers are and how many.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    if let Some(module) = module_of(info.dlpi_addr, headers) {
        modules.push(module);
    }
    0
}

#[expect(clippy::useless_conversion, reason = "the fields are narrower on other targets")]
fn module_of(base: u64, headers: &[libc::Elf64_Phdr]) -> Option<Module<&'static [u8]>> {
    let load = |address: u64| {
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD).find_map(|header| {
            let range = header.p_vaddr..header.p_vaddr + header.p_filesz;
            range.contains(&address).then_some(range)
        })
    };
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loads().map(|header| header.p_vaddr).min()?;
    let end = loads().map(|header| header.p_vaddr + header.p_memsz).max()?;
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    let index = index.p_vaddr..index.p_vaddr + index.p_memsz;
    // SAFETY: the loader mapped the index there, for as long as the object is loaded. Nothing that
    // this program loads is ever unloaded.
    let index_bytes = unsafe { mapped(base, &index) };
    let table = eh_frame_address(index.start, index_bytes)?;
    let table = table..load(table)?.end;
    // SAFETY: as above; the table is in a segment that is mapped to at least this end.
    let table_bytes = unsafe { mapped(base, &table) };
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_hdr_svma: Some(index),
        eh_frame_hdr: Some(index_bytes),
        eh_frame_svma: Some(table),
        eh_frame: Some(table_bytes),
        ..ExplicitModuleSectionInfo::default()
    };
    Some(Module::new(String::new(), base + start..base + end, base.into(), sections))
}

/// Requires: the range is mapped, relative to `base`, for good.
unsafe fn mapped(base: u64, range: &Range<u64>) -> &'static [u8] {
    let start = (base + range.start) as *const u8;
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start, (range.end - range.start) as usize) }
}

/// Where `.eh_frame` is, by the index that linkers write (Linux Standard Base, "`.eh_frame_hdr`"):
/// version 1, then the encodings of the three fields, then the pointer, 4 bytes relative to itself.
fn eh_frame_address(index_address: u64, index: &[u8]) -> Option<u64> {
    const RELATIVE_4_BYTES: u8 = 0x1b;
    let [1, RELATIVE_4_BYTES, _, _, a, b, c, d, ..] = *index else {
        return None;
    };
    let distance = i32::from_le_bytes([a, b, c, d]);
    (index_address + 4).checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn walk_under_a_name(depth: u32, addresses: &mut [usize]) -> usize {
        let count = if depth == 0 {
            let registers = Registers::here();
            walk(&registers, addresses).unwrap()
        } else {
            walk_under_a_name(depth - 1, addresses)
        };
        std::hint::black_box(count)
    }

    fn name_of(address: usize) -> String {
        let mut name = String::new();
        backtrace::resolve((address + 1) as *mut c_void, |symbol| {
            name.push_str(&symbol.name().map(|name| name.to_string()).unwrap_or_default());
        });
        name
    }

    #[test]
    fn stack_is_walked_to_the_root_of_any_thread() {
        prepare().unwrap();
        let mut addresses = [0; 200];
        let count = walk_under_a_name(20, &mut addresses);
        let names: Vec<String> = addresses[..count].iter().map(|&at| name_of(at)).collect();
        let calls = names.iter().filter(|name| name.contains("walk_under_a_name")).count();
        assert_eq!(calls, 21, "{names:#?}");
        let test = "stack_is_walked_to_the_root_of_any_thread";
        assert!(names.iter().any(|name| name.contains(test)), "{names:#?}");
        assert!(names.last().unwrap().contains("clone"), "{names:#?}");
    }

    #[test]
    fn walk_that_finds_no_room_stops_where_the_room_ends() {
        prepare().unwrap();
        let mut addresses = [0; 3];
        assert_eq!(walk_under_a_name(5, &mut addresses), 3);
    }

    #[test]
    fn nothing_outside_the_stack_is_read() {
        let word = 7_u64;
        let at = &raw const word as usize;
        let stack = at..at + 8;
        assert_eq!(read_word(&stack, at as u64), Ok(7));
        for outside in [at - 1, at + 1, 0, usize::MAX, usize::MAX - 7] {
            assert_eq!(read_word(&stack, outside as u64), Err(()));
        }
        assert_eq!(stack_of_this_thread(usize::MAX - 1, 100), 0..0);
    }

    #[test]
    fn damaged_index_names_no_table() {
        assert_eq!(eh_frame_address(100, &[1, 0x1b, 3, 0x3b, 252, 255, 255, 255]), Some(100));
        assert_eq!(eh_frame_address(100, &[2, 0x1b, 3, 0x3b, 0, 0, 0, 0]), None);
        assert_eq!(eh_frame_address(0, &[1, 0x1b, 3, 0x3b, 0, 0, 0, 128]), None);
        assert_eq!(eh_frame_address(100, &[1, 0x1b]), None);
    }
}
