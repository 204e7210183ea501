"""Build an `InferenceSession` exactly as its `SessionPlan` says, and report the providers it uses.

Only settings of the plan are set. ONNX Runtime falls back to the CPU silently in several ways; here a
provider of the plan that did not load is an error, or with `allow_fallback` a reported fallback. Only log
lines that native code writes to file descriptor 2 hold the reasons, so this module reads them.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

try:
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as _state
except ModuleNotFoundError:  # a runtime for another engine
    ort = _state = None

from core import wire
from core.wire.access import Library, library_note, resolve_library
from core.wire.errors import ProviderError, SpecError
from core.worker.session.ort_errors import (
    WITHOUT_IT,
    blamed_provider,
    clean,
    creation_error,
    load_failure,
    missing_libraries,
    provider_error,
)

CPU = "CPUExecutionProvider"
CUDA_PROVIDERS = wire.CUDA_PROVIDERS

_names = [] if _state is None else vars(_state).values()
# Every exception class that ONNX Runtime raises on purpose; their only common base is Exception.
ORT_ERRORS: tuple[type[Exception], ...] = (
    *(one for one in _names if isinstance(one, type) and issubclass(one, Exception)),
    RuntimeError,
    ValueError,
)
ENUMS = (
    {}
    if ort is None
    else {
        "graph_optimization_level": ort.GraphOptimizationLevel,
        "execution_mode": ort.ExecutionMode,
        "execution_order": ort.ExecutionOrder,
    }
)
_AFFINITIES = "session.intra_op_thread_affinities"
_LOG_BYTES = 1 << 20  # of native code while a session is built
_PIN_REPORT_S = 0.02  # a pool thread reports failed pinning from its own thread, shortly after creation


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A model ready to run, and how it differs from the request."""

    requested: list[str]  # execution providers in order of preference; of another engine, its name
    effective: list[str]  # those that it runs on
    fallback: bool = False  # a requested provider is missing
    fallback_reason: str = ""
    creation_s: float  # from the start of building until the first run is possible
    precision: str = ""  # that the engine chose for some nodes, as in `output_check`; empty: as requested

    @property
    def on_cpu(self) -> bool:
        """Whether the first of the providers is the CPU's."""
        return self.effective[0] == CPU

    def providers(self) -> wire.ProvidersUsed:
        """Return the part of replies about providers."""
        return {
            "requested_providers": self.requested,
            "effective_providers": self.effective,
            "fallback": self.fallback,
            "fallback_reason": self.fallback_reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSession(Built):
    """A session, and how it differs from the request."""

    session: ort.InferenceSession
    run_options: ort.RunOptions | None  # of every run; None: no options
    notes: list[str]
    libraries: dict[str, str] = field(
        default_factory=dict
    )  # of native code that were loaded, with their hashes


def build_session(
    model: str | bytes,
    plan: wire.SessionPlan,
    *,
    profile_prefix: str | None = None,
    record_assignment: bool = False,
) -> BuiltSession:
    """Create the session that `plan` describes.

    Args:
        model: path of the .onnx file, or its bytes.
        plan: the settings; nothing else is set.
        profile_prefix: turns ONNX Runtime's profiler on, writing to a file that begins with this path.
        record_assignment: keep which provider each node went to.

    Raises:
        ProviderError: a provider of the chain is not in this build or does not load, and
            `allow_fallback` is off.
        ModelError: ONNX Runtime refuses the model.
        SpecError: ONNX Runtime refuses a setting, or a named library is not allowed or cannot be loaded.
        WorkerError: there is not enough memory.
    """
    if ort is None:
        raise SpecError(
            "This runtime has no ONNX Runtime.", hint="Use another runtime, or an engine that it has."
        )
    plugin_devices, loaded = _register_providers(plan)
    requested = [provider["name"] for provider in plan["providers"]]
    chain, refused = _in_this_build(plan["providers"], plugin_devices, brought=[one.name for one in loaded])
    if refused and not plan["allow_fallback"]:
        raise next(iter(refused.values()))
    notes = _preload(chain)
    operators = [
        *_operator_libraries,
        *(
            one
            for one in _checked_libraries(plan.get("custom_op_libraries", []))
            if one not in _operator_libraries
        ),
    ]
    options = partial(_options, plan, operators, profile_prefix, record_assignment)
    if plan["attributes"].get("use_per_session_threads") is False:
        _create_global_pools(plan)
    session, creation_s, log = _create_with_fallback(model, options, plan, chain, refused, plugin_devices)
    effective = session.get_providers()
    _collect_missing(requested, effective, log, refused)
    if refused and not plan["allow_fallback"]:
        raise next(iter(refused.values()))
    notes += _pinning(log, plan)
    loaded += [one for _, one in operators]
    notes += [library_note(one.name, one.sha256) for one in loaded]
    return BuiltSession(
        session=session,
        run_options=_run_options(plan),
        requested=requested,
        effective=effective,
        fallback=bool(refused),
        fallback_reason=" ".join(error.message for error in refused.values()),
        creation_s=creation_s,
        notes=notes if set(CUDA_PROVIDERS) & set(effective) else [n for n in notes if n != _PRELOADED],
        libraries={one.name: f"sha256:{one.sha256}" for one in loaded},
    )


def _in_this_build(
    providers: list[wire.ProviderPlan], plugin_devices: _PluginDevices, *, brought: list[str]
) -> tuple[list[wire.ProviderPlan], dict[str, ProviderError]]:
    listed = list(dict.fromkeys([*ort.get_available_providers(), *plugin_devices]))
    way = "Choose a provider of that list, or install a build that has it."
    if brought:
        libraries = ", ".join(f"`{name}`" for name in brought)
        way = f"{libraries} brings no such provider, or finds no device for it here."
    refused = {
        provider["name"]: ProviderError(
            f"{provider['name']} is not in this build of ONNX Runtime, which lists {', '.join(listed)}.",
            hint=f"{way} {WITHOUT_IT}",
        )
        for provider in providers
        if provider["name"] not in listed
    }
    return [p for p in providers if p["name"] not in refused], refused


_PRELOADED = (
    "The CUDA libraries were found with `onnxruntime.preload_dlls()`; a program of your own may need that "
    "call too."
)


def _preload(chain: list[wire.ProviderPlan]) -> list[str]:
    """Load the NVIDIA libraries of Python packages; the dynamic loader does not search there."""
    if not any(provider["name"] in CUDA_PROVIDERS for provider in chain) or not hasattr(ort, "preload_dlls"):
        return []
    with contextlib.redirect_stdout(io.StringIO()):  # it prints missing libraries
        ort.preload_dlls()
    return [_PRELOADED]


# --- libraries of native code -------------------------------------------------------------------------------

_PluginDevices = dict[str, list[Any]]  # execution provider of a library -> its devices here
_operator_libraries: list[tuple[str, Library]] = []  # operator libraries for every session of this process
_provider_libraries: dict[str, str] = {}  # provider libraries of this process: name -> text of the plan


def _library(text: str) -> tuple[str, Library]:
    path, found = resolve_library(text)  # checks this process's access rights and the content again
    return str(path), found


def _checked_libraries(texts: Sequence[str]) -> list[tuple[str, Library]]:
    return [_library(text) for text in dict.fromkeys(texts)]


def set_operator_libraries(texts: Sequence[str]) -> dict[str, str]:
    """Register these operator libraries for every session built here from now on; earlier ones are dropped.

    For jobs that open many sessions. Tools that open their own sessions do not use them.

    Args:
        texts: in the form of `access.resolve_library`.

    Returns:
        The hash of each, by its name.

    Raises:
        SpecError: a library is not allowed.
    """
    _operator_libraries[:] = _checked_libraries(texts)
    return {one.name: f"sha256:{one.sha256}" for _, one in _operator_libraries}


def operator_library_paths() -> list[str]:
    """Return the paths of the libraries set by `set_operator_libraries`."""
    return [path for path, _ in _operator_libraries]


def operator_options() -> ort.SessionOptions:
    """Return options of a session with the libraries set by `set_operator_libraries`.

    Raises:
        SpecError: ONNX Runtime cannot load a library.
    """
    options = ort.SessionOptions()
    _register_operators(options, _operator_libraries)
    return options


def _register_providers(plan: wire.SessionPlan) -> tuple[_PluginDevices, list[Library]]:
    """Load libraries of providers, once per process; return the devices of the requested ones."""
    loaded, texts = list[Library](), plan.get("provider_libraries", [])
    for text in texts:
        path, found = _library(text)
        loaded.append(found)
        if _provider_libraries.get(found.name) == str(found):
            continue
        try:
            ort.register_execution_provider_library(found.name, path)
        except ORT_ERRORS as error:
            raise _not_loaded(found, "execution providers", error) from error
        _provider_libraries[found.name] = str(found)
    plugin_devices: _PluginDevices = {}
    wanted = {one["name"] for one in plan["providers"]} - {CPU, *CUDA_PROVIDERS}
    if texts:
        for device in ort.get_ep_devices():
            if device.ep_name in wanted:
                plugin_devices.setdefault(device.ep_name, []).append(device)
    return plugin_devices, loaded


def _register_operators(options: ort.SessionOptions, libraries: list[tuple[str, Library]]) -> None:
    for path, found in libraries:
        try:
            options.register_custom_ops_library(path)
        except ORT_ERRORS as error:
            raise _not_loaded(found, "custom operators", error) from error


def _not_loaded(found: Library, what: str, error: Exception) -> SpecError:
    return SpecError(
        f"ONNX Runtime cannot load `{found.name}` as a library of {what}: {clean(str(error))}",
        hint="Take one that was built for this system and this version of ONNX Runtime.",
    )


def _add_plugin_devices(
    options: ort.SessionOptions, chain: list[wire.ProviderPlan], plugin_devices: _PluginDevices
) -> None:
    """Set the whole chain in the options: with devices in it ONNX Runtime takes no list of providers."""
    for provider in chain:
        name = provider["name"]
        if name in plugin_devices:
            options.add_provider_for_devices(plugin_devices[name][:1], provider["options"])
        elif name != CPU:  # the CPU comes last in every session
            options.add_provider(name, provider["options"])


def _options(
    plan: wire.SessionPlan,
    operators: list[tuple[str, Library]],
    profile_prefix: str | None,
    record_assignment: bool,
) -> ort.SessionOptions:
    options = ort.SessionOptions()
    _register_operators(options, operators)
    for name, value in plan["attributes"].items():
        _set_attribute(options, name, value)
    for key, text in plan["config_entries"].items():
        _set_entry(options, key, text)
    for name, size in plan["free_dimension_overrides"].items():
        options.add_free_dimension_override_by_name(name, size)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    if record_assignment:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def _run_options(plan: wire.SessionPlan) -> ort.RunOptions | None:
    if not plan["run_config_entries"]:
        return None
    options = ort.RunOptions()
    for key, text in plan["run_config_entries"].items():
        options.add_run_config_entry(key, text)
    return options


def _create_global_pools(plan: wire.SessionPlan) -> None:
    """Create the global thread pools of the process, once; its sessions share them.

    Raises:
        SpecError: a session with its own threads was created before.
    """
    sizes = [
        int(plan["attributes"].get(name, 0)) for name in ("intra_op_num_threads", "inter_op_num_threads")
    ]
    if _pools == [sizes]:  # a second session of the same plan, as for a profile
        return
    try:
        ort.set_global_thread_pool_sizes(*sizes)
    except ORT_ERRORS as error:
        raise SpecError(
            f"`use_per_session_threads` is off, but this process has its pools already: {error}",
            hint="Leave `use_per_session_threads` out.",
        ) from error
    _pools.append(sizes)


_pools: list[list[int]] = []  # sizes of this process's pools, once created


def _set_attribute(options: ort.SessionOptions, name: str, value: bool | int | str) -> None:
    try:
        setattr(options, name, getattr(ENUMS[name], str(value)) if name in ENUMS else value)
    except (AttributeError, TypeError) as error:
        raise SpecError(
            f"ONNX Runtime has no setting `{name}` that takes {value!r}.",
            hint="Correct the name or the value.",
        ) from error


def _set_entry(options: ort.SessionOptions, key: str, text: str) -> None:
    try:
        options.add_session_config_entry(key, text)
    except RuntimeError as error:
        raise SpecError(
            f"ONNX Runtime refuses the session config entry `{key[:80]}`: {error}",
            hint="Shorten or remove it.",
        ) from error


def _create_with_fallback(
    model: str | bytes,
    options: Callable[[], ort.SessionOptions],
    plan: wire.SessionPlan,
    chain: list[wire.ProviderPlan],
    refused: dict[str, ProviderError],
    plugin_devices: _PluginDevices,
) -> tuple[ort.InferenceSession, float, str]:
    """Create the session; a provider that breaks creation moves from the chain to `refused`."""
    while True:
        log: list[str] = []
        made = options()
        try:
            with _native_log(log, wait_s=_PIN_REPORT_S if _AFFINITIES in plan["config_entries"] else 0.0):
                session, creation_s = _create(model, made, plan, chain, plugin_devices)
        except ORT_ERRORS as error:
            name = blamed_provider(str(error), [p["name"] for p in chain if p["name"] != CPU])
            if name is None:
                raise _refusal(error, model, plan) from error
            text = "\n".join(log)
            refused[name] = _provider_refusal(name, text, error)
            if not plan["allow_fallback"]:
                raise refused[name] from error
            chain = [provider for provider in chain if provider["name"] != name]
        else:
            return session, creation_s, "\n".join(log)


def _create(
    model: str | bytes,
    options: ort.SessionOptions,
    plan: wire.SessionPlan,
    chain: list[wire.ProviderPlan],
    plugin_devices: _PluginDevices,
) -> tuple[ort.InferenceSession, float]:
    keywords: dict[str, Any] = {"enable_fallback": 0}  # else a failure is printed and falls back to the CPU
    if plan["disabled_optimizers"]:
        keywords["disabled_optimizers"] = plan["disabled_optimizers"]
    if plugin_devices:
        _add_plugin_devices(options, chain, plugin_devices)
    else:
        keywords["providers"] = [(one["name"], one["options"]) for one in chain] or [(CPU, {})]
    began = time.perf_counter()
    session = ort.InferenceSession(model, options, **keywords)
    creation_s = time.perf_counter() - began
    session.disable_fallback()  # a run that fails must fail, not continue on the CPU
    return session, creation_s


def _refusal(error: Exception, model: str | bytes, plan: wire.SessionPlan) -> Exception:
    return creation_error(
        type(error).__name__,
        str(error),
        model=model if isinstance(model, str) else "model",
        config_entries=plan["config_entries"],
    )


def _provider_refusal(name: str, log: str, error: Exception) -> ProviderError:
    missing = missing_libraries(log)
    return provider_error(name, load_failure(name, log if name in missing else str(error)))


def _collect_missing(
    requested: list[str], effective: list[str], log: str, refused: dict[str, ProviderError]
) -> None:
    for name in requested:
        if name not in effective and name not in refused:
            refused[name] = provider_error(name, load_failure(name, log))


def _pinning(log: str, plan: wire.SessionPlan) -> list[str]:
    """Raise if a pool thread could not be pinned as requested; return a note if nothing was requested."""
    if "pthread_setaffinity_np failed" not in log:
        return []
    if _AFFINITIES in plan["config_entries"]:
        raise SpecError(
            f"`{_AFFINITIES}` names a CPU that this process may not use: "
            f"{plan['config_entries'][_AFFINITIES]!r}.",
            hint="Name CPUs that exist here, counted from 1.",
        )
    return [
        "ONNX Runtime could not pin its threads, because this container may not use every CPU; "
        "set `intra_op_num_threads`."
    ]


@contextlib.contextmanager
def _native_log(lines: list[str], *, wait_s: float = 0.0) -> Iterator[None]:
    """Add to `lines` what native code writes to file descriptor 2, then pass it on to the original.

    A pipe holds it, so that it takes neither a disk nor memory: what does not fit is dropped.
    """
    real, (capture, end) = os.dup(2), os.pipe()
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # 64 KiB are enough but for long logs
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _LOG_BYTES)
    for one in (capture, end):
        os.set_blocking(one, False)
    os.dup2(end, 2)
    os.close(end)
    try:
        yield
        if wait_s:
            time.sleep(wait_s)
    finally:
        os.dup2(real, 2)
        with contextlib.suppress(BlockingIOError):  # empty, and a thread may still write to it
            while data := os.read(capture, _LOG_BYTES):
                with contextlib.suppress(OSError):
                    os.write(real, data)
                lines.extend(data.decode(errors="replace").splitlines())
        os.close(capture)
        os.close(real)
