"""The processes of a judgement: started, stopped, watched and ended by the parent, with all that they start."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UnavailableError
from harness.judge.messages import ANSWERS, Failed, JudgeMessage, channel_of
from harness.judge.sandbox import ARCHITECTURES, NUMBERS
from harness.records.reasons import Reason
from harness.worker.channel import BadMessageError, Channel
from harness.worker.own_process import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG

ROOT = Path(__file__).parents[2]
MOST_PROCESSES = 64 + 8 * (os.cpu_count() or 1)  # a build starts several for each CPU
FIRST_LOOK_S = 0.5  # a stretch that is shorter is not disturbed by reading /proc
LOOK_S = 0.1
STOP_LIMIT_S, END_LIMIT_S = 3.0, 30.0  # a GPU takes its time to end a kernel
_LIBC = ctypes.CDLL(None)
DEAD = frozenset("ZX")  # states in /proc
STOPPED = DEAD | frozenset("Tt")
PR_GET_CHILD_SUBREAPER = 37  # linux/prctl.h
OWN_FOLDERS = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CC"),
    *("CXX", "USER", "LOGNAME", "TZ", "CPATH", "LIBRARY_PATH", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST"),
    *("TRITON_INTERPRET", "OMP_NUM_THREADS", "NVIDIA_VISIBLE_DEVICES", "TRITON_PTXAS_PATH"),
)


class JudgedError(Exception):
    """The judged implementation ended its judgement: its status and why."""

    def __init__(self, status: str, reason: Reason) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Process:
    """What /proc says of a process."""

    pid: int
    state: str
    parent: int
    session: int
    started: int


def processes() -> dict[int, Process]:
    """All processes that can be seen, by number."""
    found: dict[int, Process] = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(entry)] = Process(int(entry), fields[0], int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def end_with_parent() -> None:
    """Let the kernel end this process when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A process in a session and a scratch folder of its own, at the other end of a channel."""

    def __init__(self, pid: int, channel: Channel[Any], scratch: Path) -> None:
        self.pid = pid
        self.channel = channel
        self.scratch = scratch
        self._code: int | None = None
        _OWN.add(pid)
        self._started = next((each.started for each in processes().values() if each.pid == pid), 0)

    def _status(self) -> int | None:
        """The code that it exited with, the negative number of the signal that killed it, or None while it is there."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def family(self) -> list[Process]:
        """Itself, its session, descendants and younger orphans of the parent, unless all of their threads are dead."""
        everyone = processes()
        mine = everyone.get(self.pid)
        family = {self.pid} if mine and mine.started == self._started else set[int]()  # numbers come again
        me = os.getpid()

        def belongs(each: Process) -> bool:
            orphan = each.parent == me and each.session != os.getsid(0) and each.pid == each.session
            young = orphan and each.started > self._started and each.pid not in _OWN
            return each.session == self.pid or each.parent in family or young

        while more := {pid for pid, each in everyone.items() if pid not in family and pid != me and belongs(each)}:
            family |= more
        return [everyone[pid] for pid in family if pid in everyone and not _thread_states(pid) <= DEAD]

    def stop(self) -> None:
        """Stop it and its group, and note when, as `settle` does again for what still runs."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGSTOP)
        self.stopped_ns = time.perf_counter_ns()
        _stop_threads(self.pid)

    def settle(self) -> None:
        """Wait until each of its threads and descendants stands still; raises JudgedError for one that does not.

        The last of a thread's time on a CPU is counted after it shows as stopped, so two looks have to agree.
        """
        ends_s, seen_ns = time.monotonic() + STOP_LIMIT_S, None
        while True:
            family = self.family()
            running = [each.pid for each in family if _runs(each.pid)]
            self._stopped_at_ns = _ran_ns(family)
            if not running and self._stopped_at_ns == seen_ns:
                return
            if time.monotonic() > ends_s:
                raise JudgedError("tampered", Reason("does_not_stop"))
            for pid in running:
                _stop_threads(pid)
            if running or seen_ns is not None:
                self.stopped_ns = time.perf_counter_ns()
            seen_ns = self._stopped_at_ns

    def check_stood_still(self) -> None:
        """Raise JudgedError where it ran since `settle`: a timer, say, can send the signal to go on."""
        if _ran_ns(self.family()) != self._stopped_at_ns:
            raise JudgedError("tampered", Reason("ran_while_stopped"))

    def go_on(self) -> None:
        """Let it go on."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGCONT)

    def ask(self, request: JudgeMessage, timeout_s: float, stage: str) -> Any:
        """Send a request and return the answer; raises JudgedError where there is none, or another than expected."""
        self.tell(request, stage)
        return self.answer(timeout_s, stage)

    def tell(self, request: JudgeMessage, stage: str) -> None:
        """Send a request; raises JudgedError where the other end is closed."""
        try:
            self.channel.send(request)
        except OSError:
            raise JudgedError("crashed", self._death(stage)) from None

    def answer(self, timeout_s: float, stage: str, stop: bool = False) -> Any:
        """The next message, while its processes are counted now and then.

        With `stop` it is stopped before its message is read, so that it does nothing meanwhile.
        """
        began_s, look_s = time.monotonic(), FIRST_LOOK_S
        while (left_s := began_s + timeout_s - time.monotonic()) > 0:
            try:
                message = self._message(min(left_s, look_s), stop)
            except EOFError:
                raise JudgedError("crashed", self._death(stage)) from None
            except BadMessageError:
                raise JudgedError("tampered", Reason("bad_message", {"stage": stage})) from None
            if isinstance(message, Failed):
                raise JudgedError(message.status, printable(message.reason))
            if message is not None:
                return message
            look_s = LOOK_S
            if self._status() is not None:
                raise JudgedError("crashed", self._death(stage))
            if (many := len(self.family())) > MOST_PROCESSES:
                raise JudgedError("crashed", Reason("too_many_processes", {"most": MOST_PROCESSES, "seen": many}))
        raise JudgedError("timeout", Reason("no_answer", {"stage": stage, "seconds": timeout_s}))

    def _message(self, timeout_s: float, stop: bool) -> JudgeMessage | None:
        if not stop:
            return self.channel.receive(timeout_s)
        if self.channel.is_silent(timeout_s):
            return None
        self.stop()
        if (message := self.channel.receive(0.0)) is None:
            raise BadMessageError("the rest of it did not come")
        return message

    def end(self) -> None:
        """Kill it with all its descendants, and remove its scratch folder."""
        self.channel.close()
        self.stop()  # all at once: no list of processes has those that fork and end within a moment
        for number, limit_s in ((signal.SIGSTOP, STOP_LIMIT_S), (signal.SIGKILL, END_LIMIT_S)):
            ends_s = time.monotonic() + limit_s
            while (family := self.family()) and time.monotonic() < ends_s:
                for each in family:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(each.pid, number)
                if number == signal.SIGSTOP and not any(_runs(each.pid) for each in self.family()):
                    break
                time.sleep(0.002)
        self._status()
        _OWN.discard(self.pid)
        for each in processes().values():  # orphans that ended
            if each.parent == os.getpid() and each.state == "Z" and each.session == self.pid:
                with suppress(ChildProcessError):
                    os.waitpid(each.pid, os.WNOHANG)
        # Not by Python, which ends in a stranger's folder of a thousand levels; one made without rights would stay.
        remove = ["sh", "-c", 'chmod -R u+rwX "$0"; rm -rf "$0"', self.scratch]
        subprocess.run(remove, stderr=subprocess.DEVNULL, check=False)

    def _death(self, stage: str) -> Reason:
        ends_s = time.monotonic() + 1.0
        while (code := self._status()) is None and time.monotonic() < ends_s:
            time.sleep(0.01)
        how = "the process closed its connection" if code is None else f"the process exited with status {code}"
        if code is not None and code < 0:
            how = f"the process was killed by signal {-code}"
        return Reason("died", {"how": how, "stage": stage})


_OWN: set[int] = set()  # children of the judge that no candidate started


class Nursery:
    """A process that has imported torch and no implementation; all others are forked from it and adopted by the parent.

    A fork inherits its end of a channel and the descriptors that it is given, and nothing else.
    """

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        self._scratch = _folder()
        with theirs, (self._scratch / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "-P", "-m", "harness.judge.nursery", str(theirs.fileno())],
                cwd=self._scratch,
                env=_environment(self._scratch),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                close_fds=True,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def fork(self, program: str, descriptors: Sequence[int] = ()) -> Child:
        """A process that runs a program of this package, `runner` or `reference`."""
        scratch, (mine, theirs) = _folder(), socket.socketpair()
        with theirs, (scratch / "log").open("wb") as log:
            request = f"{program} {scratch}".encode()
            socket.send_fds(self._channel, [request], [theirs.fileno(), log.fileno(), *descriptors])
            if not (pid := self._channel.recv(16)):
                raise UnavailableError(f"the judge's own process failed: {last_line(self._scratch / 'log')}")
        return Child(int(pid), channel_of(mine, ANSWERS), scratch)

    def end(self) -> None:
        """End it; what was forked from it goes on."""
        self._channel.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


@contextmanager
def nursery() -> Generator[Nursery]:
    """A nursery; meanwhile orphaned descendants become children of this process, which can find and end them."""
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    opened = Nursery()
    try:
        yield opened
    finally:
        opened.end()
        libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(before.value))


def last_line(log: Path) -> str:
    """The last line of what a process printed."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "none")


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="normbwd-judge-")).resolve()


def printable(reason: Reason) -> Reason:
    """A stranger's reason without what a terminal obeys, and of bounded length."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return "".join(letter if letter.isprintable() else " " for letter in value[:400])
        return [clean(item) for item in value[:16]] if isinstance(value, list) else value

    fields = {clean(name): clean(value) for name, value in list(reason.fields.items())[:8]}
    return Reason(clean(reason.code), fields, [printable(part) for part in reason.parts[:4]])


def _ran_ns(family: Iterable[Process]) -> int:
    """How long the threads of processes have been on a CPU."""
    return sum(int(line.split()[0]) for each in family for line in _of_threads(each.pid, "schedstat"))


def _runs(pid: int) -> bool:
    """Whether any thread of a process is neither stopped nor dead."""
    return not _thread_states(pid) <= STOPPED


def _stop_threads(pid: int) -> None:
    """A process's own SIGSTOP waits for one thread, whose long call into the kernel would let the others go on."""
    with suppress(OSError, KeyError):  # it has ended, or nobody knows this processor's numbers
        tgkill = NUMBERS["tgkill"][ARCHITECTURES[platform.machine()][1]]
        for thread in os.listdir(f"/proc/{pid}/task"):
            _LIBC.syscall(tgkill, pid, int(thread), signal.SIGSTOP)


def _thread_states(pid: int) -> set[str]:
    return {line.rpartition(")")[2].split()[0] for line in _of_threads(pid, "stat")}


def _of_threads(pid: int, file: str) -> list[str]:
    """A file of /proc for each thread of a process."""
    lines: list[str] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                lines.append(Path(f"/proc/{pid}/task/{thread}/{file}").read_text(errors="replace"))
    return list(filter(None, lines))


def _environment(scratch: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    own = dict.fromkeys(OWN_FOLDERS, str(scratch))
    # Pools of compilers need semaphores outside of the scratch folder, and a process with a CUDA context cannot fork.
    settings = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return passed | own | settings | {"PYTHONPATH": paths, "PYTHONUSERBASE": site.getuserbase()}
