"""Export formats: one table, all written from the same resolved configuration.

Each row gives the purpose of the format, the settings that it does not support, and the function that writes
it. Command line, page and `docs/generate.py` read the table. `unsupported.SettingTracker` tracks which
settings a file contains; every file lists the others in a comment at its top. The only file opened here is
the model that some formats include.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from core.run.export_source import ExportSource
from core.show.export import header
from core.show.export.cpp import export_cpp
from core.show.export.dockerfile import export_dockerfile
from core.show.export.header import caution, not_carried
from core.show.export.javascript import export_javascript
from core.show.export.olive import export_olive
from core.show.export.openvino import export_openvino
from core.show.export.ort_config import export_ort_config, pack_ort_config
from core.show.export.perf_test import export_perf_test
from core.show.export.programs import OTHER_RUNTIMES
from core.show.export.python import export_python
from core.show.export.triton import export_triton, pack_triton
from core.show.export.yaml_file import export_short_yaml, export_yaml
from core.show.output_types import FormatRecord
from core.show.table import Table, texts
from core.wire.errors import SpecError, nearest
from core.wire.files import file_stem

__all__ = [
    "FORMATS",
    "ExportFormat",
    "caution",
    "export_python",
    "export_yaml",
    "format_named",
    "formats_table",
    "not_carried",
    "records",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """An export format."""

    name: str  # value of `--format`
    label: str  # display name
    ending: str  # suffix of the file name, after the model's name
    language: str | None  # for syntax highlighting
    purpose: str
    cannot: str  # unsupported settings
    write: Callable[[ExportSource, str], str]  # takes the reason why an exceeded tolerance is accepted
    pack: Callable[[ExportSource, str, BinaryIO], None] | None = None  # None: the file is the text

    def to_dict(self) -> FormatRecord:
        """Return plain JSON data."""
        return {
            "name": self.name,
            "file": self.ending,
            "purpose": self.purpose,
            "cannot": self.cannot,
            "takes_model": self.pack is not None,
        }

    def text(self, source: ExportSource, accepted_breach: str = "") -> str:
        """Return the text of the file; of a packed file, the part with the session's settings.

        Raises:
            SpecError: the outputs exceed the tolerance and no reason is given for accepting that; or this
                format cannot express the trial: the message gives the reason and a format that can.
        """
        return self.write(source, header.accepted(source.trial, accepted_breach))

    def save(self, source: ExportSource, to: BinaryIO, accepted_breach: str = "") -> None:
        """Write the file.

        Raises:
            SpecError: as of `text`.
            ModelError: the model is missing, or is not the one that was measured.
        """
        if self.pack is None:
            to.write(self.text(source, accepted_breach).encode(errors="replace"))
        else:
            self.pack(source, header.accepted(source.trial, accepted_breach), to)

    def content(self, source: ExportSource, accepted_breach: str = "") -> bytes:
        """Return the content of the file; raises the errors of `save`."""
        to = io.BytesIO()
        self.save(source, to, accepted_breach)
        return to.getvalue()

    def file_name(self, source: ExportSource) -> str:
        """Return a name for the file."""
        trial = source.trial
        return f"{file_stem(trial.model_name)}-{trial.id[:8]}{self.ending}"


def _yaml(source: ExportSource, accepted: str) -> str:
    if not source.whole:
        return export_short_yaml(source, accepted)
    return export_yaml(source.trial, accepted_breach=accepted, model=source.facts, found=source.found)


def _python(source: ExportSource, accepted: str) -> str:
    return export_python(source.trial, source.info, accepted_breach=accepted)


FORMATS: tuple[ExportFormat, ...] = (
    ExportFormat(
        name="yaml",
        label="YAML",
        ending=".yaml",
        language="yaml",
        purpose="model and settings that differ from the defaults, or all settings with results and "
        "machine; `scorecard` and Export read it",
        cannot="nothing: it is ORTune's own format",
        write=_yaml,
    ),
    ExportFormat(
        name="python",
        label="Python",
        ending=".py",
        language="python",
        purpose="a script that creates the session and runs it once on inputs with the trial's shapes",
        cannot="measurement settings (effort, budget, runs, tolerance)",
        write=_python,
    ),
    ExportFormat(
        name="javascript",
        label="JavaScript",
        ending=".js",
        language="javascript",
        purpose="a program for Node and the package onnxruntime-node that runs the session once",
        cannot="provider options except the device, free-dimension overrides, I/O binding, run entries, "
        "memory reuse, execution order, global thread pools, FP16 copy, inputs from files",
        write=export_javascript,
    ),
    ExportFormat(
        name="cpp",
        label="C++",
        ending=".cpp",
        language="cpp",
        purpose="a program for ONNX Runtime's C++ header that runs the session once",
        cannot="memory reuse, execution order, fallback, FP16 copy, inputs from files",
        write=export_cpp,
    ),
    ExportFormat(
        name="perf-test",
        label="onnxruntime_perf_test",
        ending=".sh",
        language="bash",
        purpose="the command line of ONNX Runtime's own benchmark",
        cannot="a second accelerator, memory reuse, execution order, global thread pools, I/O binding "
        "on the CPU, most run entries, FP16 copy, input values",
        write=export_perf_test,
    ),
    ExportFormat(
        name="ort-config",
        label="Model with ort_config",
        ending=".onnx",
        language="json",
        purpose="a copy of the model with settings in its metadata; sessions use them if "
        "ORT_LOAD_CONFIG_FROM_MODEL=1 is set",
        cannot="all but threads, execution mode and graph level; refuses external weights and an FP16 copy",
        write=export_ort_config,
        pack=pack_ort_config,
    ),
    ExportFormat(
        name="triton",
        label="Triton",
        ending=".triton.zip",
        language=None,
        purpose="a model repository for Triton's ONNX Runtime back end, with dynamic batching and a "
        "warm-up of the measured shapes",
        cannot="config entries except one, free-dimension overrides, ORT_ENABLE_LAYOUT, memory reuse, "
        "execution order, providers except CPU, CUDA, TensorRT and plain OpenVINO; refuses an FP16 copy",
        write=export_triton,
        pack=pack_triton,
    ),
    ExportFormat(
        name="openvino",
        label="OpenVINO",
        ending=".openvino.yaml",
        language="yaml",
        purpose="device, streams, precision and hint for ONNX Runtime's OpenVINO provider and for "
        "OpenVINO itself",
        cannot="session settings except the provider options; refuses a trial on another provider",
        write=export_openvino,
    ),
    ExportFormat(
        name="dockerfile",
        label="Dockerfile",
        ending=".Dockerfile",
        language="docker",
        purpose="an image with the trial's bundle that runs `verify` at start",
        cannot="any settings itself: they are in the bundle; ORTune is installed from a folder next to it",
        write=export_dockerfile,
    ),
    ExportFormat(
        name="olive",
        label="Olive",
        ending=".olive.yaml",
        language="yaml",
        purpose="a workflow that creates the model from its original (INT8, INT4, FP16, graph optimizations)",
        cannot="simplify, mixed precision, ORT format and metadata steps, calibration data, memory "
        "settings, inputs",
        write=export_olive,
    ),
)


_REMOVED = {  # former formats, and what to do instead
    "csharp": f"`{OTHER_RUNTIMES}` shows the program, with the name of every setting in C#.",
    "counterparts": f"`{OTHER_RUNTIMES}` lists the equivalent settings of OpenVINO and TensorRT.",
}


def format_named(name: str) -> ExportFormat:
    """Return a row of the table.

    Raises:
        SpecError: the format does not exist, or no longer.
    """
    names = [one["name"] for one in records()]
    for one in FORMATS:
        if one.name == name:
            return one
    if name in _REMOVED:
        raise SpecError(f"The format `{name}` was removed.", hint=_REMOVED[name])
    raise SpecError(
        f"`format` must be one of {', '.join(names)}, but got `{name[:40]}`.{nearest(name, names)}",
        hint="Choose one of them.",
    )


def records() -> list[FormatRecord]:
    """Return the formats as plain data, including the bundle, which a job creates."""
    bundle: FormatRecord = {
        "name": "bundle",
        "file": ".zip",
        "purpose": "model, YAML, script, pinned requirements and recorded inputs and outputs in one "
        "zip, for `verify`",
        "cannot": "nothing: it contains the YAML file",
        "takes_model": True,
    }
    return [*(one.to_dict() for one in FORMATS), bundle]


def formats_table() -> Table:
    """Return the table of formats and their unsupported settings."""
    rows = [[one["name"], one["file"], one["purpose"], one["cannot"]] for one in records()]
    return Table(columns=texts("format", "file", "content", "not supported"), rows=rows)
