"""The runtimes that a page offers: their names, versions and present content."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import streamlit as st

from core.api.session import runtimes
from core.spec import TrialSpec
from core.wire.errors import TunerError
from core.wire.runtime import OWN, RuntimeRecord, runtime

REFRESH_S = 2.0  # between two readings of the folder; several times per run it would cost time
BETWEEN = " · "  # the parts of a label
_PLUG_IN = "onnxruntime-ep-"  # begins the packages of providers


@st.cache_resource(ttl=REFRESH_S, show_spinner=False)
def _records() -> list[RuntimeRecord]:
    return runtimes.records()


def others() -> list[str]:
    """Return the names of this machine's runtimes besides ORTune's own."""
    return [one["name"] for one in _records()]


@st.cache_resource(ttl=REFRESH_S, show_spinner=False)
def pinned(text: str) -> str:
    """Return the text of a runtime with the hash of its present content; `OWN` stays as it is.

    Raises:
        SpecError: there is no such runtime, or its content has changed.
        StoreError: it cannot be read.
    """
    return runtimes.pinned(text)


def pinned_spec(spec: TrialSpec) -> TrialSpec:
    """Return a spec with the hash of its runtime's present content; raises as `pinned` does."""
    found = pinned(spec.runtime)
    return spec if found == spec.runtime else spec.model_copy(update={"runtime": found})


def choice_of(text: str) -> str:
    """Return the option of a choice that stands for a runtime: its name, if its content is unchanged."""
    try:
        name = runtime(text).name
        return name if pinned(text) == pinned(name) else text
    except TunerError:
        return text


def chosen(value: object) -> str:
    """Return the runtime in a choice's value; a browser sends an old label if that has changed."""
    return str(value or OWN).partition(BETWEEN)[0]


def label(text: str, own: Mapping[str, str]) -> str:
    """Return a runtime's name with its versions: `ort126 · ORT 1.26.0 · Python 3.12`.

    Args:
        text: of the runtime, in a configuration.
        own: versions of ORTune's own libraries.
    """
    try:
        one = runtime(text)
    except TunerError:  # of a link; reported with the settings
        return text[:40]
    if one.name == OWN:
        return _in_words(OWN, own, platform.python_version())
    record = next((found for found in _records() if found["name"] == one.name), None)
    if record is None:
        return f"{one.name}{BETWEEN}not on this machine"
    if one.sha256 and choice_of(text) != one.name:
        return f"{one.name}{BETWEEN}changed since {one.sha256[:8]}"
    return _in_words(one.name, _versions(record), record["python_version"])


def _versions(record: RuntimeRecord) -> Mapping[str, str]:
    try:
        return runtimes.versions(record)
    except TunerError:  # its interpreter is missing; said where it is used
        return {}


def _in_words(name: str, versions: Mapping[str, str], python: str) -> str:
    """Return the name of a runtime with the versions of what runs models, and of Python."""
    built = [
        one for one in sorted(versions) if one.startswith("onnxruntime") and not one.startswith(_PLUG_IN)
    ]
    words = [f"ORT {versions[one]}" for one in built[:1]]
    words += [f"OpenVINO {versions['openvino']}"] if "openvino" in versions else []
    return BETWEEN.join([name, *words, f"Python {'.'.join(python.split('.')[:2])}"])
