"""The job `install`: create a virtual environment with exactly the packages of a lock file.

`uv` does it where it is installed, else `venv` and pip. Only wheels are installed, so that nothing is built.
The output of these programs is untrusted text. Every program ends with this worker.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from core import wire
from core.wire import Progress
from core.wire.errors import HOME_HINT, SpecError, StoreError, WorkerError
from core.wire.files import installer_cache
from core.wire.runtime import lock_line, locked, python_of, wheel_name
from core.worker.make import interpreters, pip_report

MOST_LINES = 400  # last lines of output that are kept to explain a failure
MOST_TEXT = 160  # characters of a line that is shown
NUMPY_2_SINCE = (1, 19)  # older versions of ONNX Runtime were built for numpy 1 and fail with numpy 2
_START = """
import os, sys
from core.worker import lifeline
from core.worker.make.installation import program_environment
lifeline.die_with_parent(int(sys.argv[1]))
os.execvpe(sys.argv[2], sys.argv[2:], program_environment())
"""
_REDIRECTS = (
    *("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_REQUIRE_VIRTUALENV"),
    *("PIP_REQUIRE_HASHES", "PIP_REPORT", "PIP_DRY_RUN", "PIP_NO_DEPS", "PIP_EDITABLE", "PIP_REQUIREMENT"),
    *("UV_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "UV_NO_DEPS", "UV_REQUIRE_HASHES"),
)
_QUIET = {
    **{"NO_COLOR": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    **{"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"},
    "UV_LINK_MODE": "copy",  # a hard link would change the cache, and every environment, with one of them
}
_CERTIFICATES = {"UV_NATIVE_TLS": "true", "UV_SYSTEM_CERTS": "true"}  # those of the system, as pip uses
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")
_MARKUP = re.compile(r"</?[A-Za-z!][^>]{0,200}>")


def install(plan: wire.InstallPlan, progress: Progress) -> wire.InstallReply:
    """Create the environment of `plan`, or describe the existing one.

    Args:
        plan: see `wire.InstallPlan`.
        progress: receives the stages "create", "resolve", "download" and "install", with the programs' words.

    Raises:
        SpecError: the interpreter cannot be used, no package fits, or a file has another hash than locked.
        StoreError: the environment cannot be written.
        WorkerError: the package index cannot be reached, or a program failed otherwise.
    """
    if not plan["folder"]:
        found = interpreters.ask(plan["python"])
        return _described(found, interpreters.size_of(found["libraries"]))
    environment = Path(plan["folder"])
    base = interpreters.ask(plan["python"] or interpreters.own_base())
    installer: _Installer = _Uv(uv, environment) if (uv := _uv()) else _Pip(environment)
    progress("create", 0, 0, f"environment of Python {_dotted(base['version'])}")
    version = installer.create(base["python"], progress)
    lock, notes = plan["lock"], list[str]()
    if not lock:
        lock = installer.resolve(plan["packages"], progress)
        if more := _older_numpy(lock, plan["packages"]):
            notes.append(more)
            lock = installer.resolve([*plan["packages"], "numpy<2"], progress)
        _check_engine(locked(lock))
    installer.install(lock, progress)
    found = interpreters.ask(str(python_of(environment)))
    return {
        **_described(found, interpreters.size_of([str(environment)])),
        "installer": version,
        "lock": lock,
        "notes": notes,
    }


def _described(found: interpreters.Interpreter, size_bytes: int) -> wire.InstallReply:
    return {
        "installer": "",
        "lock": "",
        "python": found["python"],
        "python_version": _dotted(found["version"]),
        "versions": dict(sorted(found["versions"].items())),
        "size_bytes": size_bytes,
        "notes": [],
    }


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


# --- what is asked for --------------------------------------------------------------------------------------


def _older_numpy(lock: str, packages: Sequence[str]) -> str:
    """Return why numpy must be older than the newest that the packages allow; empty: it need not be."""
    found = locked(lock)
    ort = next((found[one] for one in found if _is_onnxruntime(one)), "")
    older = bool(ort) and _numbers(ort)[:2] < NUMPY_2_SINCE
    if not older or _numbers(found.get("numpy", "0"))[0] < 2 or any(_names_numpy(one) for one in packages):
        return ""
    return f"numpy is kept below 2, because ONNX Runtime {ort} was built for numpy 1."


def _names_numpy(package: str) -> bool:
    return re.match(r"numpy\s*[=<>~!]", package, re.IGNORECASE) is not None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version))) or (0,)


def _is_onnxruntime(name: str) -> bool:
    """Whether a distribution holds ONNX Runtime itself, not a plug-in or an extension."""
    beside = ("onnxruntime-ep-", "onnxruntime-extensions", "onnxruntime-genai", "onnxruntime-tools")
    return name.startswith(("onnxruntime", "ort-")) and not name.startswith(beside)


def _check_engine(found: Mapping[str, str]) -> None:
    """Refuse packages that neither are nor bring an engine, before anything is downloaded."""
    if any(_is_onnxruntime(one) or one == "openvino" for one in found):
        return
    names = ", ".join(f"`{name} {version}`" for name, version in list(found.items())[:6])
    raise SpecError(
        f"A runtime needs ONNX Runtime or OpenVINO, but these packages bring neither: {names}.",
        hint="Add the package `onnxruntime`, or another build of it.",
    )


# --- programs -----------------------------------------------------------------------------------------------


def program_environment() -> dict[str, str]:
    """Return the variables of an installing program: its own settings count, but not where it writes."""
    found = interpreters.foreign_environment({**_CERTIFICATES, **os.environ, **_QUIET})
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", *_REDIRECTS)
    caches = {f"{one.upper()}_CACHE_DIR": str(installer_cache(one)) for one in ("pip", "uv")}
    return {k: v for k, v in found.items() if k not in own and not k.startswith("ORTUNE_")} | caches


def run_program(command: Sequence[str], progress: Progress, stage: str) -> list[str]:
    """Run a program, report its lines as progress, and return the last ones.

    Raises:
        TunerError: it failed; the words are its own.
    """
    progress(stage, 0, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; del sys.path[0]\n{_START}", str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tempfile.gettempdir(),  # `uv` would read the settings of a project around the current folder
        text=True,
        errors="replace",
    )
    lines: deque[str] = deque(maxlen=MOST_LINES)
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if text := readable(line):
                lines.append(text)
            if text and not text.startswith("WARNING"):
                loads = text.lower().startswith(("downloading", "using cached", "obtaining"))
                progress("download" if loads else stage, 0, 0, text[:MOST_TEXT])
    if process.returncode:
        _explain(Path(command[0]).name, process.returncode, list(lines))
    return list(lines)


def readable(line: str) -> str:
    """Return a line of a foreign program as plain text: no control characters, no markup, one space each."""
    text = _MARKUP.sub("", _ESCAPE.sub("", line))
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


_OFFLINE = re.compile(
    r"NewConnectionError|Name or service not known|name resolution|nodename nor servname|dns error|"
    r"Could not connect|Connection refused|Network is unreachable|error sending request|tcp connect error|"
    r"ReadTimeoutError|ConnectTimeout|ProxyError|CERTIFICATE_VERIFY_FAILED|Failed to fetch|Request failed",
    re.IGNORECASE,
)
_HASHES = re.compile(r"DO NOT MATCH THE HASHES|hash mismatch|Expected sha256", re.IGNORECASE)
_NONE_FITS = re.compile(
    r"No matching distribution|Could not find a version|No solution found|not a supported wheel|"
    r"not compatible with the current|ResolutionImpossible|conflicting dependencies|has no wheels|"
    r"doesn't have a .*wheel|was not found in the (package registry|provided)|Invalid requirement|"
    r"no version of|only has wheels",
    re.IGNORECASE,
)


def _explain(program: str, code: int, lines: Sequence[str]) -> NoReturn:
    """Raise the error of a failed program in our words, with its own behind them."""
    said = "\n".join(lines)
    last = _last_words(lines)
    if "No space left on device" in said:
        raise StoreError("The disk is full, so the environment cannot be written.", hint=HOME_HINT)
    if "Permission denied" in said:
        raise StoreError(f"The environment cannot be written: {last}", hint=HOME_HINT)
    if _HASHES.search(said):
        raise SpecError(
            f"A file has another hash than the lock file demands, so nothing was installed: {last}",
            hint="Use the lock file of the same packages, or name packages instead.",
        )
    if _OFFLINE.search(said):
        raise WorkerError(
            f"The package index cannot be reached: {last}",
            hint="Check the network and the proxy, or name the paths of wheels as packages.",
        )
    if _NONE_FITS.search(said):
        raise SpecError(
            f"No package fits: {last}",
            hint="Choose another version, or another Python; only wheels are installed.",
        )
    if "No module named ensurepip" in said or "ensurepip is disabled" in said:
        raise SpecError(
            "The interpreter cannot create an environment with pip: it lacks `ensurepip`.",
            hint="Install its package for `venv` (such as python3-venv), or install `uv`.",
        )
    raise WorkerError(
        f"`{program}` failed with status {code}: {last}", hint="Read the message and try again."
    )


def _last_words(lines: Sequence[str]) -> str:
    """Return the lines that tell why a program failed, shortened at their front."""
    errors = [one for one in lines if re.match(r"(error|×|fatal|\S*Error:)", one, re.IGNORECASE)]
    uv = next((number for number, one in enumerate(lines) if one.startswith(("error:", "×"))), None)
    if uv is not None:  # its reason follows on the next lines
        errors = list(lines[uv:])
    text = " ".join(errors[-6:] or list(lines[-2:])) or "it said nothing."
    return text if len(text) <= 3 * MOST_TEXT else f"{text[:MOST_TEXT]}…{text[-2 * MOST_TEXT :]}"


# --- uv and pip ---------------------------------------------------------------------------------------------


class _Installer(Protocol):
    """A program that creates environments and installs packages."""

    def create(self, base: str, progress: Progress) -> str:
        """Create the environment with the interpreter `base`; return name and version of the program."""

    def resolve(self, packages: Sequence[str], progress: Progress) -> str:
        """Return the lock text of packages with everything that they need."""

    def install(self, lock: str, progress: Progress) -> None:
        """Install exactly what `lock` names."""


def _uv() -> str:
    """Return the program `uv`; empty: there is none."""
    if found := shutil.which("uv"):
        return found
    if importlib.util.find_spec("uv") is not None:
        from uv import find_uv_bin  # optional

        try:
            return str(find_uv_bin())
        except FileNotFoundError:
            pass
    return ""


def _written(environment: Path, name: str, text: str) -> str:
    """Write a file beside the environment, and return its path.

    Raises:
        StoreError: it cannot be written.
    """
    path = environment.parent / name
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"`{path}` cannot be written: {error.strerror or error}.", hint=HOME_HINT) from None
    return str(path)


def _requirements(packages: Sequence[str]) -> str:
    """Return the text of a requirements file; numpy is what every worker needs."""
    lines = [
        f"{wheel_name(one)} @ {Path(one).resolve().as_uri()}" if one.endswith(".whl") else one
        for one in packages
    ]
    return "\n".join([*lines, "numpy", ""])


class _Uv:
    """Install with `uv`."""

    def __init__(self, program: str, environment: Path) -> None:
        self._uv, self._environment = program, environment

    def create(self, base: str, progress: Progress) -> str:
        run_program(
            [self._uv, "venv", "--no-project", "--python", base, str(self._environment)], progress, "create"
        )
        return run_program([self._uv, "--version"], progress, "create")[-1].partition(" (")[0]

    def resolve(self, packages: Sequence[str], progress: Progress) -> str:
        asked = _written(self._environment, "requirements.in", _requirements(packages))
        output = self._environment.with_name("resolved.txt")
        run_program(
            [
                *(
                    self._uv,
                    "pip",
                    "compile",
                    asked,
                    "--generate-hashes",
                    "--no-header",
                    "--no-annotate",
                    "--quiet",
                ),
                *("--only-binary", ":all:", "--python", str(python_of(self._environment))),
                *("--output-file", str(output)),
            ],
            progress,
            "resolve",
        )
        return output.read_text(encoding="utf-8")

    def install(self, lock: str, progress: Progress) -> None:
        path = _written(self._environment, "locked.txt", lock)
        run_program(
            [
                *(self._uv, "pip", "install", "--require-hashes", "--no-deps", "--compile-bytecode"),
                *("--only-binary", ":all:", "--python", str(python_of(self._environment)), "-r", path),
            ],
            progress,
            "install",
        )


class _Pip:
    """Install with the pip that belongs to the base interpreter."""

    def __init__(self, environment: Path) -> None:
        self._environment = environment
        self._pip = [str(python_of(environment)), "-m", "pip"]

    def create(self, base: str, progress: Progress) -> str:
        # two steps, because `venv` hides why the second one fails
        run_program([base, "-I", "-m", "venv", "--without-pip", str(self._environment)], progress, "create")
        run_program([self._pip[0], "-m", "ensurepip", "--upgrade", "--default-pip"], progress, "create")
        said = run_program([*self._pip, "--version"], progress, "create")[-1]
        version = " ".join(said.split()[:2])
        if _numbers(version) < (22, 2):
            raise SpecError(
                f"{version} of `{base}` cannot report what it would install; it must be 22.2 or newer.",
                hint="Choose a newer Python, or install `uv`.",
            )
        return version

    def resolve(self, packages: Sequence[str], progress: Progress) -> str:
        asked = _written(self._environment, "requirements.in", _requirements(packages))
        report = self._environment.with_name("report.json")
        run_program(
            [
                *(*self._pip, "install", "--dry-run", "--ignore-installed", "--retries", "2"),
                *("--only-binary", ":all:", "--report", str(report), "-r", asked),
            ],
            progress,
            "resolve",
        )
        return "".join(f"{lock_line(*one)}\n" for one in pip_report.read(report))

    def install(self, lock: str, progress: Progress) -> None:
        path = _written(self._environment, "locked.txt", lock)
        run_program(
            [
                *(*self._pip, "install", "--no-deps", "--require-hashes", "--retries", "2"),
                *("--only-binary", ":all:", "-r", path),
            ],
            progress,
            "install",
        )
        kept = locked(lock)
        tools = [one for one in ("setuptools", "wheel", "pip") if one not in kept]
        if tools:  # nobody needs them here, and other machines may have other versions
            run_program([*self._pip, "uninstall", "--yes", *tools], progress, "install")
