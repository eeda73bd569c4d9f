"""What a process that runs a stranger's code may do: Linux's Landlock, seccomp, capabilities and limits, by ctypes.

Each layer says whether it is in force; the verdict shows it. A process enters the sandbox before it has threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from signal import SIGCHLD, SIGCONT

import psutil

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
SECCOMP_MODE_FILTER = 2

# Landlock, linux/landlock.h: the rights that change something, by the version that brought them.
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # the same on all architectures
WRITE_FILE, TRUNCATE, DEVICES = 1 << 1, 1 << 14, 1 << 15  # 0x1FF0: remove or make anything; 1 << 13: rename
WRITES = {1: WRITE_FILE | 0x1FF0, 2: 1 << 13, 3: TRUNCATE, 5: DEVICES}  # of devices, ioctl
TCP, TCP_SINCE = 0b11, 4
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS, SCOPES_SINCE = 1, 2, 6
WRITABLE_DEVICES = ("null", "zero", "full", "nvidia*", "nvidia-caps/*", "dri/*", "kfd")

# Seccomp. Names of system calls to their numbers on x86-64 and 64-bit ARM.
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def _numbers(table: str) -> dict[str, tuple[int, int]]:
    return {name: (int(x86), int(arm)) for name, x86, arm in map(str.split, table.split(","))}


DENIED = _numbers("""
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_open 434 434,
    pidfd_getfd 438 438, pidfd_send_signal 424 424, io_uring_setup 425 425, bpf 321 280,
    perf_event_open 298 241, userfaultfd 323 282, unshare 272 97, tkill 200 130, timer_create 222 107
""")
# Allowed for process 0, which is the caller, and for its number.
OF_ITSELF = _numbers("""
    sched_setaffinity 203 122, sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274,
    move_pages 279 239, migrate_pages 256 238, prlimit64 302 261
""")
# Say that they worked, as OF_FILES do: libraries and linkers ask for it.
PRETENDED = _numbers("setsid 112 157, setpgid 109 154, setpriority 141 140, ioprio_set 251 30")
OTHERS = _numbers("""
    kill 62 129, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, socket 41 198,
    fcntl 72 25, ioctl 16 29, clone 56 220, clone3 435 435, prctl 157 167
""")
NUMBERS = DENIED | OF_ITSELF | PRETENDED | OTHERS
# Without names, as no test of a single one is needed: System V's and POSIX's memory, semaphores and messages, keys and
# queues of reads, all of which outlive a process or work while it is stopped.
OUTLIVING = {
    "x86_64": (29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 206, 220, 240, 241, 248, 249, 250),
    "aarch64": (0, 180, 181, *range(186, 197), 217, 218, 219),
}
# Modes, owners, times and attributes of files, which Landlock leaves to all: chmod, chown, utime, setxattr, ...
OF_FILES = {
    "x86_64": (*range(90, 95), 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466, 469),
    "aarch64": (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88, 452, 463, 466, 469),
}
ENOSYS, EPERM = 38, 1
AF_UNIX = 1
CLONE_NEWUSER = 0x10000000
SIGCONT_BIT = SIGCONT & ~SIGCHLD  # of what a clone signals when it ends, long after a stop if it has much to free
X32 = 0x40000000  # the other numbering of x86-64
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENT_AT, SECOND_ARGUMENT_AT, THIRD_ARGUMENT_AT = 0, 4, 16, 24, 32
# Of fcntl: who is signalled of a descriptor, and how; leases and hints of files. Of ioctl: a terminal of its own, whose
# end sends SIGCONT, and modes and size of others; who is signalled; attributes of files; userfaultfd, kvm, vhost.
FCNTLS = (8, 10, 15, 1024, 1036, 1038)
TERMINALS = (*range(0x5402, 0x540F), 0x5412, 0x5414, 0x5422, 0x5423, *range(0x402C542B, 0x402C542E), 0x40045431)
IOCTLS = (*TERMINALS, 0x8901, 0x8902, 0x40086602, 0x40087602, 0x401C5820, 0x40806685, 0xAA00, 0xAE01, 0xAF01)


def enter(scratch: Path, protected: Sequence[int], gpu: bool, without: Iterable[str] = ()) -> dict[str, bool]:
    """Give up all rights but to read, to compute and to write in `scratch`; which layers are now in force, by name.

    `protected` are the processes of the judge. `without` leaves layers out, for tests of the others.
    """
    signals_are_scoped = landlock_version() >= SCOPES_SINCE and "landlock" not in without
    layers: dict[str, Callable[[], bool]] = {
        "limits": lambda: limit(gpu),
        "no_new_privileges": lambda: _prctl(PR_SET_NO_NEW_PRIVS, 1),
        "landlock": lambda: restrict_files(scratch, gpu),
        "no_capabilities": drop_capabilities,
        "seccomp": lambda: filter_calls(protected, signals_are_scoped, gpu),
    }
    return {name: name not in without and layer() for name, layer in layers.items()}


def limit(gpu: bool) -> bool:
    """Limit processes, files, CPU time and (without a GPU, whose driver maps all memory) the address space."""
    import resource

    limits = {
        resource.RLIMIT_NPROC: 4096,  # of the user, not of this process; none for root: the parent counts
        resource.RLIMIT_FSIZE: 1 << 30,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: 1800 * (os.cpu_count() or 1),  # of all threads
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if not gpu:
        limits[resource.RLIMIT_AS] = psutil.virtual_memory().available * 4 // 5
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory is short, this process ends first
    return True


def drop_capabilities() -> bool:
    """Give up what root may do; a process that had nothing has nothing to lose."""
    for capability in range(64):
        _prctl(PR_CAPBSET_DROP, capability)
    header, nothing = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6)
    return _libc.capset(header, nothing) == 0


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 for none."""
    return max(0, _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)) if platform.system() == "Linux" else 0


def restrict_files(scratch: Path, gpu: bool) -> bool:
    """Let this process change files in `scratch` and a few devices alone, and reach no network and no other process.

    CUDA's IPC may use abstract sockets, so that these stay open on a GPU.
    """
    if not (version := landlock_version()):
        return False
    writes = sum(right for since, right in WRITES.items() if version >= since)
    scopes = SCOPE_SIGNALS if gpu else SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS
    rules = struct.pack("QQQ", writes, TCP if version >= TCP_SINCE else 0, scopes if version >= SCOPES_SINCE else 0)
    size = 24 if version >= SCOPES_SINCE else 16 if version >= TCP_SINCE else 8
    ruleset = _libc.syscall(LANDLOCK_CREATE, rules, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    devices = [path for pattern in WRITABLE_DEVICES for path in Path("/dev").glob(pattern) if not path.is_dir()]
    of_files = writes & (WRITE_FILE | TRUNCATE | DEVICES)
    files = [*devices, *([Path("/proc/self")] if gpu else [])]  # CUDA names its threads there, or does not start
    for path, rights in [(scratch, writes), *((file, of_files) for file in files)]:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        _libc.syscall(LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, opened), 0)
        os.close(opened)
    restricted = _libc.syscall(LANDLOCK_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return restricted


def filter_calls(protected: Sequence[int], signals_are_scoped: bool, gpu: bool) -> bool:
    """Refuse system calls that reach into other processes, or leave the group that the parent stops."""
    if platform.machine() not in ARCHITECTURES:
        return False
    program = b"".join(struct.pack("HBBI", *each) for each in instructions(protected, signals_are_scoped, gpu))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    return _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header))


def instructions(protected: Sequence[int], signals_are_scoped: bool, gpu: bool) -> list[Instruction]:
    """The filter, as a program for the kernel."""
    architecture, column = ARCHITECTURES[platform.machine()]
    numbers = {name: both[column] for name, both in NUMBERS.items()}
    refuse = _return(ERROR | EPERM)
    program = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, architecture),
        refuse,
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, X32),
        refuse,
    ]
    for number in (*(numbers[name] for name in DENIED), *OUTLIVING[platform.machine()]):
        program += _when(number, refuse)
    for number in (*(numbers[name] for name in PRETENDED), *OF_FILES[platform.machine()]):
        program += _when(number, _return(ERROR))
    program += _when(numbers["clone3"], _return(ERROR | ENOSYS))  # its flags cannot be read; libraries then use clone
    program += _when(numbers["clone"], *_argument((ANY_BIT, CLONE_NEWUSER | SIGCONT_BIT)), refuse, _return(ALLOW))
    for name in OF_ITSELF:
        itself = [(EQUAL, 0), (EQUAL, os.getpid())]
        program += _when(numbers[name], *_any_argument(itself, _return(ALLOW)), refuse)
    local = [*_argument((EQUAL, AF_UNIX)), _return(ALLOW)] if gpu else []  # CUDA opens sockets of this host
    program += _when(numbers["socket"], *local, refuse)
    program += _when(numbers["prctl"], *_argument((EQUAL, PR_SET_PDEATHSIG)), _return(ERROR), _return(ALLOW))
    for name in ("kill", "rt_sigqueueinfo", "tgkill", "rt_tgsigqueueinfo"):  # nobody wakes what is stopped
        at = THIRD_ARGUMENT_AT if "tg" in name else SECOND_ARGUMENT_AT
        program += _when(numbers[name], *_any_argument([(EQUAL, SIGCONT)], refuse, at), (LOAD, 0, 0, NUMBER_AT))
    if not signals_are_scoped:  # an older kernel: a thread's number would do for its process's
        mine = [(EQUAL, 0), (EQUAL, os.getpid())]
        program += _when(numbers["kill"], *_any_argument(mine, _return(ALLOW)), refuse)
        for name in ("tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            theirs = [(EQUAL, each) for each in protected]
            program += _when(numbers[name], *_any_argument(theirs, refuse), _return(ALLOW))
    for name, commands in (("fcntl", FCNTLS), ("ioctl", IOCTLS)):
        checks = [(EQUAL, each) for each in commands]
        program += _when(numbers[name], *_any_argument(checks, refuse, SECOND_ARGUMENT_AT), _return(ALLOW))
    return [*program, _return(ALLOW)]


def _return(what: int) -> Instruction:
    return RETURN, 0, 0, what


def _when(number: int, *then: Instruction) -> list[Instruction]:
    return [(EQUAL, 0, len(then), number), *then]


def _argument(test: tuple[int, int]) -> list[Instruction]:
    """Load the first argument, and skip the next instruction unless the test holds."""
    return [(LOAD, 0, 0, ARGUMENT_AT), (test[0], 0, 1, test[1])]


def _any_argument(tests: Sequence[tuple[int, int]], then: Instruction, at: int = ARGUMENT_AT) -> list[Instruction]:
    checks = [each for code, value in tests for each in ((code, 0, 1, value), then)]
    return [(LOAD, 0, 0, at), *checks]


def _prctl(option: int, *arguments: int | ctypes.c_char_p) -> bool:
    longs = [each if isinstance(each, ctypes.c_char_p) else ctypes.c_ulong(each) for each in arguments]
    return _libc.prctl(option, *longs, *[ctypes.c_ulong(0)] * (4 - len(longs))) == 0
