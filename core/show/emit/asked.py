"""What a configuration asks for beyond ONNX Runtime's default, so that no format loses a setting in silence.

An emitter takes what its format can hold; what is left stands on top of the file with the reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.spec import TrialSpec, changed
from core.spec import asked as value_of
from core.spec.knobs import ENTRIES, KNOBS

_NATIVE = "native code is not brought along; register the library of this SHA-256 yourself"
_WHY_NOT: Mapping[str, str] = {
    "expert": "it only lets ORTune accept entries that it does not know",
    "streams": "it says how many callers there are, nothing of the session",
    "precision": "the trial ran on an FP16 copy made while measuring; `transform` makes a file of it",
    "keep_io_types": "it is of the FP16 copy",
    "cpus": "the CPUs of a process are set where it is started, for example by `taskset`",
    "feeds": "it feeds no files",
    "feed_values": "it feeds no fixed values",
    "use_io_binding": "it has no I/O binding",
    "allow_fallback": "it has no rule for a provider that does not load",
    "custom_op_libraries": _NATIVE,
    "provider_libraries": _NATIVE,
    "image_mean": "it feeds no images",
    "image_std": "it feeds no images",
    "batch_size": "it feeds nothing",
    "dims": "it feeds nothing",
    "seed": "it draws no numbers",
}
_OWN = {"expert", "streams"}
_PROTOCOL = "it says how the trial was measured, nothing of the session"
_NO_SUCH = "the format has no such setting"


@dataclass(frozen=True, slots=True)
class Lost:
    """A setting that a file does not carry."""

    name: str
    value: Any
    why: str


class Asked:
    """The settings of one configuration that differ from the default; an emitter strikes off what it writes.

    Names are those of the settings table; config entries stand by their keys, provider options as
    `CUDAExecutionProvider.use_tf32`.
    """

    def __init__(self, spec: TrialSpec) -> None:
        """Ask what `spec` asks."""
        self._values = dict(_settings(spec))
        self._open = dict.fromkeys(self._values, "")

    def __contains__(self, name: str) -> bool:
        """Whether the configuration asks for this setting."""
        return name in self._values

    def take(self, *names: str) -> None:
        """Strike off settings that the file carries."""
        for name in names:
            self._open.pop(name, None)

    def take_all_but(self, *targets: str) -> None:
        """Strike off all but the settings of these targets of the table, and what is ORTune's own."""
        stay = {one.name for one in KNOBS if one.target in targets} | _OWN
        self.take(*(name for name in list(self._open) if name not in stay))

    def keep(self, name: str, why: str) -> None:
        """Say why the file does not carry a setting, or not all of it; nothing where it is not asked for."""
        if name in self._values:
            self._open[name] = why

    def lose(self, name: str, value: Any, why: str) -> None:
        """Say that the file does not carry something that is no setting of the table."""
        self._values[name], self._open[name] = value, why

    def left(self) -> list[Lost]:
        """Return what no emitter took, in the table's order."""
        return [
            Lost(name, value, self._open[name] or _why_not(name))
            for name, value in self._values.items()
            if name in self._open
        ]


def _settings(spec: TrialSpec) -> Iterator[tuple[str, Any]]:
    differs = set(changed(spec))
    for one in KNOBS:
        if one.name in ENTRIES.values():
            entries = value_of(spec, one.name)
            yield from entries.items() if isinstance(entries, dict) else ()
        elif one.name in differs:
            yield one.name, value_of(spec, one.name)
        if one.name == "providers":
            for provider in spec.session.providers:
                yield from ((f"{provider.name}.{key}", text) for key, text in provider.options.items())


def _why_not(name: str) -> str:
    if name in _WHY_NOT:
        return _WHY_NOT[name]
    known = next((one for one in KNOBS if one.name == name), None)
    return _PROTOCOL if known is not None and known.target == "protocol" else _NO_SUCH
