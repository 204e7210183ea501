"""Tracks requested settings during an export, and lists those that the format does not support.

Each format marks the settings that it exports; the header of the file lists the others with the reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.spec import TrialSpec, changed, requested_value
from core.spec.settings import ENTRIES, SETTINGS

_NATIVE = "native code is not exported; register the library with this SHA-256 yourself"
_NO_IMAGES = "the format has no image inputs"
_WHY_NOT: Mapping[str, str] = {
    "expert": "it only makes ORTune accept unknown entries",
    "dynamic_batching": "batching of requests is the server's, not the session's",
    "runtime": "it is an environment of this machine; `ortune runtimes list` shows its packages",
    "streams": "it is the number of callers; call the session from as many threads, or start more processes",
    "stream_type": "it says how the callers run, not how a session does",
    "precision": "the trial ran on a temporary FP16 copy; create a file with `transform --fp16`",
    "keep_io_types": "it applies to the FP16 copy",
    "cpus": "the CPU affinity of a process is set at start, for example with `taskset`",
    "feeds": "the format has no inputs from files",
    "feed_values": "the format has no fixed input values",
    "use_io_binding": "the format has no I/O binding",
    "allow_fallback": "the format has no fallback rule",
    "custom_op_libraries": _NATIVE,
    "provider_libraries": _NATIVE,
    "image_mean": _NO_IMAGES,
    "image_std": _NO_IMAGES,
    "batch_size": "the format has no inputs",
    "dims": "the format has no inputs",
    "seed": "the format has no random inputs",
}
_OWN = {"expert", "runtime", "streams", "stream_type", "dynamic_batching"}
_PROTOCOL = "it is a measurement setting, not a session setting"
_NO_SUCH = "the format has no such setting"


@dataclass(frozen=True, slots=True)
class UnsupportedSetting:
    """A setting that the exported file does not contain."""

    name: str
    value: Any
    why: str


class SettingTracker:
    """The settings of one configuration that differ from the default, and which of them are exported.

    Names are those of the settings table, or `dynamic_batching`; config entries have their keys, provider
    options `CUDAExecutionProvider.use_tf32`.
    """

    def __init__(self, spec: TrialSpec) -> None:
        """Start with all settings of `spec` that differ from the default."""
        self._values = dict(_settings(spec))
        self._open = dict.fromkeys(self._values, "")

    def __contains__(self, name: str) -> bool:
        """Whether the configuration sets this setting."""
        return name in self._values

    def mark_exported(self, *names: str) -> None:
        """Mark settings as exported."""
        for name in names:
            self._open.pop(name, None)

    def mark_all_exported_but(self, *targets: str) -> None:
        """Mark all settings as exported except those with these targets and ORTune's own."""
        stay = {one.name for one in SETTINGS if one.target in targets} | _OWN
        self.mark_exported(*(name for name in list(self._open) if name not in stay))

    def mark_unsupported(self, name: str, why: str) -> None:
        """Record why a setting is not, or only partly, exported; no effect if it is not set."""
        if name in self._values:
            self._open[name] = why

    def add_unsupported(self, name: str, value: Any, why: str) -> None:
        """Record an unsupported item that is not in the settings table."""
        self._values[name], self._open[name] = value, why

    def unsupported_settings(self) -> list[UnsupportedSetting]:
        """Return the settings that are not exported, in the table's order."""
        return [
            UnsupportedSetting(name, value, self._open[name] or _why_not(name))
            for name, value in self._values.items()
            if name in self._open
        ]


def _settings(spec: TrialSpec) -> Iterator[tuple[str, Any]]:
    differs = set(changed(spec))
    for one in SETTINGS:
        if one.name in ENTRIES.values():
            entries = requested_value(spec, one.name)
            yield from entries.items() if isinstance(entries, dict) else ()
        elif one.name in differs:
            yield one.name, requested_value(spec, one.name)
        if one.name == "providers":
            for provider in spec.session.providers:
                yield from ((f"{provider.name}.{key}", text) for key, text in provider.options.items())
    if spec.dynamic_batching is not None:
        yield "dynamic_batching", spec.dynamic_batching.words


def _why_not(name: str) -> str:
    if name in _WHY_NOT:
        return _WHY_NOT[name]
    known = next((one for one in SETTINGS if one.name == name), None)
    return _PROTOCOL if known is not None and known.target == "protocol" else _NO_SUCH
