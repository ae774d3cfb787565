//! The registers that a walk of a call stack begins with, here or where a signal struck.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;
use std::ffi::c_void;

/// The registers a walk begins with.
pub(super) struct Registers {
    instruction_pointer: u64,
    stack_pointer: u64,
    frame_pointer: u64,
    #[cfg(target_arch = "aarch64")]
    link: u64,
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// Whether this processor's registers are known.
    pub(super) const ARE_KNOWN: bool = true;

    /// Those of the calling function.
    #[inline(always)]
    pub(super) fn here() -> Registers {
        let (instruction_pointer, stack_pointer, frame_pointer);
        // SAFETY: it only reads registers.
        unsafe {
            asm!(
                "lea {}, [rip]",
                "mov {}, rsp",
                "mov {}, rbp",
                out(reg) instruction_pointer,
                out(reg) stack_pointer,
                out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers { instruction_pointer, stack_pointer, frame_pointer }
    }

    /// Those of the code that a signal interrupted. Requires: `context` is the third argument of a
    /// handler that was installed with `SA_SIGINFO`.
    pub(super) unsafe fn interrupted(context: *mut c_void) -> Registers {
        // SAFETY: as the caller promises.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let register = |number: libc::c_int| registers[number as usize] as u64;
        Registers {
            instruction_pointer: register(libc::REG_RIP),
            stack_pointer: register(libc::REG_RSP),
            frame_pointer: register(libc::REG_RBP),
        }
    }

    pub(super) fn for_unwinding(&self) -> framehop::x86_64::UnwindRegsX86_64 {
        framehop::x86_64::UnwindRegsX86_64::new(
            self.instruction_pointer,
            self.stack_pointer,
            self.frame_pointer,
        )
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// Whether this processor's registers are known.
    pub(super) const ARE_KNOWN: bool = true;

    /// Those of the calling function.
    #[inline(always)]
    pub(super) fn here() -> Registers {
        let (instruction_pointer, stack_pointer, frame_pointer, link);
        // SAFETY: it only reads registers.
        unsafe {
            asm!(
                "adr {}, .",
                "mov {}, sp",
                "mov {}, x29",
                "mov {}, x30",
                out(reg) instruction_pointer,
                out(reg) stack_pointer,
                out(reg) frame_pointer,
                out(reg) link,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers { instruction_pointer, stack_pointer, frame_pointer, link }
    }

    /// Those of the code that a signal interrupted. Requires: `context` is the third argument of a
    /// handler that was installed with `SA_SIGINFO`.
    pub(super) unsafe fn interrupted(context: *mut c_void) -> Registers {
        // SAFETY: as the caller promises.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        Registers {
            instruction_pointer: machine.pc,
            stack_pointer: machine.sp,
            frame_pointer: machine.regs[29],
            link: machine.regs[30],
        }
    }

    pub(super) fn for_unwinding(&self) -> framehop::aarch64::UnwindRegsAarch64 {
        framehop::aarch64::UnwindRegsAarch64::new(self.link, self.stack_pointer, self.frame_pointer)
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Registers {
    /// Whether this processor's registers are known.
    pub(super) const ARE_KNOWN: bool = false;

    /// None: no walk gets anywhere.
    pub(super) fn here() -> Registers {
        Registers { instruction_pointer: 0, stack_pointer: 0, frame_pointer: 0 }
    }

    /// None: no walk gets anywhere.
    pub(super) unsafe fn interrupted(_context: *mut c_void) -> Registers {
        Registers::here()
    }

    pub(super) fn for_unwinding(&self) -> framehop::x86_64::UnwindRegsX86_64 {
        framehop::x86_64::UnwindRegsX86_64::new(0, 0, self.frame_pointer)
    }
}

impl Registers {
    pub(super) fn instruction_pointer(&self) -> u64 {
        self.instruction_pointer
    }

    pub(super) fn stack_pointer(&self) -> usize {
        self.stack_pointer as usize
    }
}
