"""Writes ONNX Runtime's configuration into a copy of the model: the metadata key `ort_config`.

A session reads it if the environment sets `ORT_LOAD_CONFIG_FROM_MODEL=1`. Source: ONNX Runtime's
`inference_session_utils.cc`, which reads five settings and ignores all others. Level 3 was observed to be
LAYOUT in ONNX Runtime 1.31.1. A separate metadata key lists the settings that are not exported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.model_file import copy_file, refuse_fp16
from core.show.export.programs import numbered_options, ort_spec
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec
from core.wire.errors import SpecError

KEY, NOTE_KEY = "ort_config", "ortune.ort_config"
_PROVIDER = "providers are an argument of the session constructor"


def export_ort_config(source: ExportSource, accepted: str) -> str:
    """Return the metadata as text: the note as comments, and the configuration.

    Raises:
        SpecError: another engine; the trial ran on an FP16 copy, the model has external weights, or it
            already contains a configuration.
    """
    spec, tracker = _spec(source), SettingTracker(ort_spec(source.trial))
    options = _options(spec, tracker)
    return f"{_note(source, accepted, tracker)}\n{json.dumps({'session_options': options}, indent=2)}\n"


def pack_ort_config(source: ExportSource, accepted: str, to: BinaryIO) -> None:
    """Write the copy of the model to `to`.

    A model file is a protobuf message. Its fields may come in any order, and repeated fields anywhere, so two
    metadata entries are appended to the bytes. The file is never parsed as a model here.

    Raises:
        SpecError: as of `export_ort_config`, or the file is not the one that was measured.
    """
    spec, tracker = _spec(source), SettingTracker(ort_spec(source.trial))
    text = json.dumps({"session_options": _options(spec, tracker)})
    copy_file(Path(spec.model.path), spec.model.sha256, to)
    for key, value in ((KEY, text), (NOTE_KEY, _note(source, accepted, tracker))):
        to.write(_metadata(key, value))


def _spec(source: ExportSource) -> TrialSpec:
    spec = ort_spec(source.trial)
    refuse_fp16(source)
    if source.info is not None and source.info["external_data"]:
        raise SpecError(
            "The model has external weights, which a copy in another folder would not find.",
            hint="Choose the format triton, which includes those files, or a format that references the "
            "model by path.",
        )
    if source.info is not None and KEY in source.info["metadata"]:
        raise SpecError(
            f"The model has `{KEY}` in its metadata already, and ONNX Runtime reads the first entry.",
            hint="Remove it from the model, or choose another format.",
        )
    return spec


def _options(spec: TrialSpec, tracker: SettingTracker) -> dict[str, int]:
    tracker.mark_unsupported("providers", _PROVIDER)
    return numbered_options(session_plan(spec.session), tracker)


def _note(source: ExportSource, accepted: str, tracker: SettingTracker) -> str:
    use = "Sessions use these settings if ORT_LOAD_CONFIG_FROM_MODEL=1 is set when they are created."
    return head(source.trial, accepted, tracker, use)


def _metadata(key: str, value: str) -> bytes:
    """`metadata_props`, field 14 of ONNX's ModelProto: a message of two texts."""
    entry = b"".join(_field(number, text.encode()) for number, text in ((1, key), (2, value)))
    return _field(14, entry)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
