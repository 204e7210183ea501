"""Confine this process to what its job needs: Landlock, seccomp, capabilities and limits of Linux.

`enter` is called before any untrusted file is opened and before any native library of a model is loaded, in
a process with one thread. It cannot be undone: the kernel keeps the rules for this process and for all that
it starts. A second call narrows the rules further. Standard library only, so that it runs in every runtime.

Sources: the kernel's `landlock.h`, `seccomp.h`, `filter.h`, `audit.h`, and its tables of system calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import re
import site
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import core
from core.wire.errors import TunerError, WorkerError
from core.wire.files import ROOT, home
from core.wire.limits import memory_limit
from core.wire.sandbox import Offer, Rules, is_off

if sys.platform != "win32":
    import resource

# --- what every process reads -------------------------------------------------------------------------------

_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/nix/store", "/sys", "/proc")
_FILES = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone"),
    *("/etc/os-release", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),  # not /etc/ssl/private
    *("/etc/OpenCL", "/etc/alternatives"),
    *("/dev/urandom", "/dev/random"),  # not /dev/zero: mapped, it is memory without a limit
)
_NETWORK_FILES = (
    *("/etc/debian_version", "/etc/lsb-release", "/etc/redhat-release", "/etc/xdg/pip", "/etc/uv"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/ca-certificates", "/etc/pki", "/etc/pip.conf", "/run/systemd/resolve"),
)
_WRITABLE = ("/dev/null", "/proc/self/clear_refs")  # not oom_score_adj: it is the first victim of full memory
_SOURCES = [str(Path(core.__file__).parents[1])]  # its names are read where a program imports `core`
_GPU = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/nvidia-caps")


@cache
def _shared() -> frozenset[str]:
    """What every worker reads; read once, so that processes which a fork server forks need not."""
    private = _private()
    return frozenset(part for one in (*_SYSTEM, *_code()) for part in _without_private(one, private))


def _code() -> set[str]:
    """The interpreter, its packages and the worker's own sources; not the folder around the sources."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found |= {*site.getsitepackages(), site.getusersitepackages(), *core.__path__}
    found.add(str(Path(os.path.realpath(sys.executable)).parent.parent))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found |= {one for one in named if one and any(Path(one).glob("*.dist-info"))}  # a folder of packages
    script = str(Path(sys.argv[0]).absolute().parent)
    found |= set(sys.path) - {*named, "", script, str(ROOT)}  # also what editable installs add
    found |= set(filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    found |= {one for folder in [*found] if folder.endswith("-packages") for one in _linked(folder)}
    return found


def _linked(folder: str) -> Iterator[str]:
    """The packages that lie elsewhere and are linked here."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from (os.path.realpath(one.path) for one in entries if one.is_symlink())


def _private() -> list[str]:
    """The user's home, ORTune's own folder and the secrets of its server: never readable as code."""
    found = (os.path.expanduser("~"), home(), ROOT / ".streamlit")  # noqa: PTH111 - texts
    return [real for one in found if (real := os.path.realpath(one)) != "/"]


def _without_private(folder: str, private: Sequence[str], depth: int = 4) -> Iterator[str]:
    """A folder, or where it holds a private one, its contents without that one."""
    real = os.path.realpath(folder)
    if not any(one == real or one.startswith(f"{real.rstrip('/')}/") for one in private):
        yield real
    elif real not in ("/", *private) and depth:
        with contextlib.suppress(OSError), os.scandir(real) as entries:
            for entry in entries:
                if not entry.is_symlink():
                    yield from _without_private(entry.path, private, depth - 1)


# --- system calls -------------------------------------------------------------------------------------------

_X86_64, _AARCH64 = 0xC000003E, 0xC00000B7
_MACHINES = {"x86_64": (_X86_64, 0), "aarch64": (_AARCH64, 1)}
_X32_BIT = 0x40000000
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    # name -> number on x86_64, on aarch64
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440)},
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51)},
    **{"open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431)},
    **{"fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280)},
    **{"perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425)},
    **{"io_uring_enter": (426, 426), "io_uring_register": (427, 427), "fanotify_init": (300, 262)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170), "acct": (163, 89)},
    **{"clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266)},
    **{"sethostname": (170, 161), "setdomainname": (171, 162), "quotactl": (179, 60), "syslog": (103, 116)},
    **{"iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "vhangup": (153, 58)},
    # of System V: shared with every process of this user
    **{"shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190)},
    **{"semctl": (66, 191), "semop": (65, 193), "semtimedop": (220, 192)},
    **{"msgget": (68, 186), "msgctl": (71, 187), "msgsnd": (69, 189), "msgrcv": (70, 188)},
    **{"mq_open": (240, 180), "mq_unlink": (241, 181)},
    **{"pidfd_send_signal": (424, 424), "process_mrelease": (448, 448)},
}
_LEAVES = {"setsid": (112, 157), "setpgid": (109, 154)}  # a process that leaves its group could outlive it
_ATTRIBUTES: dict[str, tuple[int | None, int | None]] = {
    # Landlock does not cover them
    **{"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16)},
    **{"removexattrat": (466, 466), "file_setattr": (469, 469)},
    **{"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)},
}
_OF_A_PROCESS = {
    # name -> numbers, argument that holds a process id; 0 is the caller
    "prlimit64": ((302, 261), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
    "sched_setparam": ((142, 118), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setattr": ((314, 274), 0),
    "migrate_pages": ((256, 238), 0),
    "move_pages": ((279, 239), 0),
}
_STARTS = {"fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281)}
_SOCKET, _CLONE, _CLONE3, _PRCTL = (41, 198), (56, 220), (435, 435), (157, 167)
_ADDRESSES = {"connect": (42, 203), "bind": (49, 200)}
_SOCKETPAIR, _MMAP, _SET_AFFINITY = (53, 199), (9, 222), (203, 122)
_NOT_A_STREAM = 0xE  # bits of the other types of sockets, of which one end can send to any address
_MEMORY_FILES: dict[str, tuple[int | None, int | None]] = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
_OF_A_GROUP = {
    # name -> numbers, bits of the first argument: a group, or every process of the user
    "setpriority": ((141, 140), 0b11),
    "ioprio_set": ((251, 30), 0b10),
}
_MAP_SHARED, _MAP_ANONYMOUS = 1, 0x20
_CLONE_THREAD, _CLONE_NEW = 0x00010000, 0x7E020080  # namespaces of every kind, NEWTIME included
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 1, 38, 24, 47
_PR_SET_DUMPABLE = 4

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Filter:
    """Instructions of a seccomp filter; each rule ends in a verdict or falls through to the next."""

    def __init__(self, machine: int) -> None:
        self._machine = machine
        self._code: list[tuple[int, int, int, int]] = []

    def _add(self, code: int, value: int, true: int = 0, false: int = 0) -> None:
        self._code.append((code, true, false, value))

    def refuse_other_machines(self, audit: int) -> None:
        """Refuse calls of another machine type, such as those of 32-bit programs and of x32."""
        self._add(_LD, 4)
        self._add(_JEQ, audit, 1, 0)
        self._add(_RET, _ERRNO | errno.EPERM)
        self._add(_LD, 0)
        self._add(_JGE, _X32_BIT, 0, 1)
        self._add(_RET, _ERRNO | errno.EPERM)

    def refuse(self, numbers: tuple[int | None, int | None], error: int = errno.EPERM) -> None:
        """Refuse a system call."""
        if (number := numbers[self._machine]) is not None:
            self._add(_JEQ, number, 0, 1)
            self._add(_RET, _ERRNO | error)

    def refuse_unless(self, numbers: tuple[int, int], argument: int, bits: int) -> None:
        """Refuse a system call unless one of `bits` is set in its argument."""
        self._on_argument(numbers, argument, (_JSET, bits, 1, 0))

    def refuse_if(self, numbers: tuple[int, int], argument: int, bits: int) -> None:
        """Refuse a system call if one of `bits` is set in its argument."""
        self._on_argument(numbers, argument, (_JSET, bits, 0, 1))

    def refuse_equal(self, numbers: tuple[int, int], argument: int, value: int) -> None:
        """Refuse a system call if its argument is `value`."""
        self._on_argument(numbers, argument, (_JEQ, value, 0, 1))

    def refuse_other_processes(self, numbers: tuple[int, int], argument: int) -> None:
        """Refuse a system call on another process: its argument is not 0."""
        self._on_argument(numbers, argument, (_JEQ, 0, 1, 0))

    def _on_argument(self, numbers: tuple[int, int], argument: int, test: tuple[int, int, int, int]) -> None:
        self._add(_JEQ, numbers[self._machine], 0, 4)
        self._add(_LD, 16 + 8 * argument)
        self._add(*test)
        self._add(_RET, _ERRNO | errno.EPERM)
        self._add(_LD, 0)  # further rules compare the number again

    def refuse_shared_memory(self) -> None:
        """Refuse memory that is shared with no file: no limit of a process counts it."""
        self._add(_JEQ, _MMAP[self._machine], 0, 5)
        self._add(_LD, 16 + 8 * 3)
        self._add(_JSET, _MAP_ANONYMOUS, 0, 2)
        self._add(_JSET, _MAP_SHARED, 0, 1)
        self._add(_RET, _ERRNO | errno.EPERM)
        self._add(_RET, _ALLOW)

    def refuse_earlier_processes(self, numbers: tuple[int, int]) -> None:
        """Refuse a system call on a process that is older than this one; own threads are younger."""
        self._add(_JEQ, numbers[self._machine], 0, 5)
        self._add(_LD, 16)
        self._add(_JEQ, 0, 2, 0)
        self._add(_JGE, os.getpid(), 1, 0)
        self._add(_RET, _ERRNO | errno.EPERM)
        self._add(_RET, _ALLOW)

    def refuse_other_death_signals(self) -> None:
        """Refuse to change the signal at the parent's end to another than SIGKILL."""
        self._add(_JEQ, _PRCTL[self._machine], 0, 6)
        self._add(_LD, 16)
        self._add(_JEQ, _PR_SET_PDEATHSIG, 0, 3)
        self._add(_LD, 24)
        self._add(_JEQ, 9, 1, 0)
        self._add(_RET, _ERRNO | errno.EPERM)
        self._add(_RET, _ALLOW)

    def bytes(self) -> bytes:
        """Return the program, which allows what no rule has refused."""
        code = [*self._code, (_RET, 0, 0, _ALLOW)]
        return b"".join(struct.pack("=HBBI", *one) for one in code)


def _program(rules: Rules, audit: int, machine: int) -> bytes:
    made = _Filter(machine)
    made.refuse_other_machines(audit)
    refused = dict(_FORBIDDEN)
    if rules["restricts_files"]:  # a fork server makes a group for each contestant
        refused |= _LEAVES
    if not rules["attributes"]:
        refused |= _ATTRIBUTES
    for numbers in refused.values():
        made.refuse(numbers)
    _refuse_other_processes(made)
    made.refuse(_CLONE3, errno.ENOSYS)  # its flags cannot be read here; the C library falls back to `clone`
    _refuse_network(made, rules)
    _refuse_unbounded_memory(made, rules)
    if rules["processes"]:
        made.refuse_if(_CLONE, 0, _CLONE_NEW)
    else:
        made.refuse_unless(_CLONE, 0, _CLONE_THREAD)
        for numbers in _STARTS.values():
            made.refuse(numbers)
    made.refuse_equal(_PRCTL, 0, _PR_SET_DUMPABLE)  # it would hide open files from the parent
    made.refuse_other_death_signals()
    return made.bytes()


def _refuse_other_processes(made: _Filter) -> None:
    for of_a_group, bits in _OF_A_GROUP.values():
        made.refuse_if(of_a_group, 0, bits)
    for of_a_process, argument in _OF_A_PROCESS.values():
        made.refuse_other_processes(of_a_process, argument)
    made.refuse_earlier_processes(_SET_AFFINITY)


def _refuse_network(made: _Filter, rules: Rules) -> None:
    if not rules["network"]:
        made.refuse(_SOCKET, errno.EACCES)
        for numbers in _ADDRESSES.values():
            made.refuse(numbers, errno.EACCES)
    else:  # programs of this machine answer there, some with the rights of the superuser
        made.refuse_equal(_SOCKET, 0, socket.AF_UNIX)
    made.refuse_if(_SOCKETPAIR, 1, _NOT_A_STREAM)


def _refuse_unbounded_memory(made: _Filter, rules: Rules) -> None:
    if _has_bounded_memory(rules):
        made.refuse_shared_memory()
        for numbers in _MEMORY_FILES.values():
            made.refuse(numbers)


# --- entering -----------------------------------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SECCOMP, _SECCOMP_OF = 1, (317, 277)
_CAPSET = (126, 91)
_KEPT_CAPABILITIES = 1 << 2  # of the superuser: read files of other users; Landlock names the files

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READS = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGES = sum(1 << one for one in (4, 5, 7, 8, 13))  # remove folders and files, make them, move them
_WRITES = _WRITE_FILE | _READ_FILE | _READ_DIR | _TRUNCATE | _CHANGES  # no devices, sockets, pipes, links
_LINKS = 1 << 12  # a link may lead whoever follows it elsewhere
_RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of rights; later versions have these
_MOST_THREADS = 32_768  # of this user, beyond which a worker starts none; the kernel exempts root
_OF_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect of TCP; abstract sockets and signals


def offer() -> Offer:
    """What this system offers to confine a process."""
    if _LIBC is None:
        return {"landlock": 0, "seccomp": False, "lacks": [f"{platform.system()} has no sandbox for workers"]}
    version = max(0, _LIBC.syscall(_CREATE_RULESET, None, 0, 1))
    seccomp = platform.machine() in _MACHINES and Path("/proc/sys/kernel/seccomp").is_dir()
    lacks = []
    if version < 1:
        lacks.append("files: this kernel has no Landlock")
    elif version < 3:
        lacks.append("truncation of files")
    if version < 4:
        lacks.append("TCP in Landlock")
    if version < 6:
        lacks.append("signals and abstract sockets")
    if not seccomp:
        lacks.append("system calls: no seccomp filter for this machine")
    return {"landlock": version, "seccomp": seccomp, "lacks": lacks}


def described() -> Offer:
    """Return what confines workers here, or that the operator turned it off."""
    return {**offer(), "off": True} if is_off() else offer()


def enter_required(rules: Rules | None) -> None:
    """Confine this process by the rules that came with a request; only the operator may leave them out.

    Raises:
        WorkerError: there are no rules, although workers run in a sandbox here; or as for `enter`.
    """
    if rules is not None:
        enter(rules)
    elif not is_off():
        raise WorkerError(
            "The worker was sent no rules of its sandbox.", hint="Start it through ORTune's commands."
        )


@contextlib.contextmanager
def refusals(rules: Rules | None) -> Iterator[None]:
    """Tell in words where the sandbox refuses a file."""
    try:
        yield
    except PermissionError as error:
        if rules is None:
            raise
        raise WorkerError(_refused(str(error.filename or "a file")), hint=_REFUSED_HINT) from error
    except TunerError as error:
        if rules is not None and _REFUSED.search(error.message):
            error.hint = f"{error.hint} {_REFUSED_HINT}".strip()
        raise


_REFUSED = re.compile(r"Permission denied|Operation not permitted", re.IGNORECASE)
_REFUSED_HINT = (
    "A worker's sandbox opens only the files that its request names: put the file beside the model or the "
    "data that need it, without links to other places, or use `--no-sandbox` if you trust the model."
)


def _refused(path: str) -> str:
    return f"The sandbox of this worker refused to open `{path[:300]}`."


def enter(rules: Rules) -> None:
    """Confine this process, for ever.

    Args:
        rules: what it may do.

    Raises:
        WorkerError: the system offers a means, but it could not be used.
    """
    if _LIBC is None:
        return
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - Landlock holds for the calling thread
        raise WorkerError(
            "The sandbox of this worker could not be entered: a thread runs already.",
            hint="Look for a library or a sitecustomize file that starts threads when Python starts.",
        )
    _use_scratch(rules["scratch"])
    there = offer()
    if not rules["restricts_files"]:  # a fork server: what the processes that it forks would read again
        _shared()
        _memory_limit()
    _check(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _limit(rules)
    if there["landlock"]:
        _landlock(rules, there["landlock"])
    _drop_capabilities()
    if there["seccomp"]:
        _seccomp(rules)


def _use_scratch(folder: str) -> None:
    """Let libraries put their temporary files into a folder."""
    if folder:
        os.environ["TMPDIR"] = folder
        if (loaded := sys.modules.get("tempfile")) is not None:
            loaded.tempdir = None  # type: ignore[attr-defined]


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise WorkerError(
            f"The sandbox of this worker could not be entered: {what} answered {os.strerror(number)}.",
            hint="Report it with `ortune machine`, or use `--no-sandbox` and trust the model.",
        )
    return result


def _limit(rules: Rules) -> None:
    most_of = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": rules["files"], "RLIMIT_FSIZE": rules["file_bytes"]}
    most_of["RLIMIT_NPROC"] = _MOST_THREADS
    if _has_bounded_memory(rules):
        most_of["RLIMIT_DATA"] = _memory_limit()
    for name, most in most_of.items():
        number = getattr(resource, name)
        now = resource.getrlimit(number)
        soft, hard = (most if one == resource.RLIM_INFINITY else min(one, most) for one in now)
        resource.setrlimit(number, (soft, hard))


_memory_limit = cache(memory_limit)


def _has_bounded_memory(rules: Rules) -> bool:
    """Whether a limit of memory can be set; drivers of GPUs and PyTorch reserve address space."""
    return not (rules["gpu"] or rules["processes"] or rules["network"])


def _landlock(rules: Rules, version: int) -> None:
    assert _LIBC is not None
    files = (1 << _RIGHTS_OF_VERSION.get(version, 16)) - 1 if rules["restricts_files"] else 0
    network = _OF_NETWORK if version >= 4 and not rules["network"] else 0
    scopes = _SCOPES if version >= 6 else 0
    if not (files or network or scopes):
        return
    packed = struct.pack("=QQQ", files, network, scopes)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _check(_LIBC.syscall(_CREATE_RULESET, packed, size, 0), "landlock_create_ruleset")
    try:
        if files:
            _allow(ruleset, rules, files)
        _check(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, rules: Rules, handled: int) -> None:
    reads: list[Iterable[str]] = [_shared(), _FILES, rules["read"]]
    if rules["network"]:
        reads.append(_NETWORK_FILES)
    writes: list[Iterable[str]] = [_WRITABLE, rules["write"], filter(None, [rules["scratch"]])]
    devices = [str(one) for name in _GPU for one in Path("/").glob(name[1:])] if rules["gpu"] else []
    for paths, rights in (
        (reads, _READS),
        (writes, _WRITES | (_LINKS if rules["attributes"] else 0)),
        ([devices], _WRITES | _IOCTL),
        ([_SOURCES] if rules["processes"] else [], _READ_DIR),
    ):
        for path in {one for group in paths for one in group}:
            _allow_one(ruleset, path, rights & handled)


def _allow_one(ruleset: int, path: str, rights: int) -> None:
    assert _LIBC is not None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        descriptor = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            packed = struct.pack("=Qi", rights if is_folder else rights & _OF_FILES, descriptor)
            _check(_LIBC.syscall(_ADD_RULE, ruleset, 1, packed, 0), f"landlock_add_rule of `{path}`")
        finally:
            os.close(descriptor)


def _drop_capabilities() -> None:
    """Keep no power of the superuser beyond reading files, and no way to gain one."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)  # clear all
    header = struct.pack("=Ii", 0x20080522, 0)
    number = _CAPSET[_MACHINES[platform.machine()][1]] if platform.machine() in _MACHINES else None
    if number is None:
        return
    kept = _KEPT_CAPABILITIES if os.geteuid() == 0 else 0
    for capability in range(64):
        if not 1 << capability & kept:
            _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if _LIBC.syscall(number, header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)) < 0:  # it lacks this one
        _check(_LIBC.syscall(number, header, bytes(24)), "capset")


def _seccomp(rules: Rules) -> None:
    assert _LIBC is not None
    audit, machine = _MACHINES[platform.machine()]
    program = _program(rules, audit, machine)
    kept: Any = ctypes.create_string_buffer(program)
    packed = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(kept))
    _check(_LIBC.syscall(_SECCOMP_OF[machine], _SECCOMP, 1, packed), "seccomp")  # 1: all threads
