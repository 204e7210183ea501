"""Writes the texts of a bundle: configuration, script, pinned requirements and README. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core import __version__, wire
from core.evidence.measurement import Trial, model_text
from core.evidence.verdict import words
from core.run.bundle import CONFIG, INPUTS, NEEDS, OUTPUTS, README, SCRIPT
from core.run.bundle.writing import Contents
from core.show.escapes import code_span, md_plain
from core.show.export import caution, export_python, export_yaml
from core.spec import spec_from_dict
from core.wire.access import library
from core.wire.output_check import breach, different_outputs_words
from core.wire.variables import ALLOW_LIBRARIES

_HERE = """\
import os
from pathlib import Path

os.chdir(Path(__file__).resolve().parent)  # the paths below are those of this folder

"""
_COMPARED = f"""
with np.load({OUTPUTS!r}, allow_pickle=False) as kept:
    recorded = dict(zip(kept["arr_0"].tolist(), (kept[f"arr_{{i}}"] for i in range(1, len(kept.files)))))
for one, value in zip(session.get_outputs(), outputs):
    expected = recorded.get(one.name)
    if isinstance(value, np.ndarray) and expected is not None and value.dtype.kind in "fiu":
        apart = np.max(np.abs(value.astype(np.float64) - expected), initial=0.0)
        largest = max(np.max(np.abs(expected), initial=0.0), np.max(np.abs(value), initial=0.0))
        print(one.name, "largest difference from the recorded output:", apart / (largest or 1.0))
"""
_COMPUTE = ("onnxruntime", "numpy")
_GPU = ("nvidia-", "tensorrt")
_NOT_COMPUTING = ("nvidia-ml-py",)


def bundle_texts(
    held: Contents,
    *,
    info: wire.ModelInfo | None = None,
    accepted_breach: str = "",
    found: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Map paths in the bundle to texts.

    Args:
        held: the other files of the bundle.
        info: the model as `inspect` found it, see `export_python`.
        accepted_breach: see `export_yaml`.
        found: see `export_yaml`.

    Raises:
        SpecError: as of `export_yaml` and `export_python`.
    """
    return {
        CONFIG: export_yaml(held.trial, accepted_breach=accepted_breach, found=found),
        SCRIPT: _script(held, info, accepted_breach),
        NEEDS: _requirements(held.trial),
        README: _readme(held),
    }


def _script(held: Contents, info: wire.ModelInfo | None, accepted_breach: str) -> str:
    """Return the script: runs the bundle's model on the recorded inputs and compares the outputs."""
    trial = held.trial
    if held.sample is None:
        return _HERE + export_python(trial, info, accepted_breach=accepted_breach)
    spec = spec_from_dict(trial.spec)
    fed = {"feeds": INPUTS, "feed_values": {}, "image_mean": (), "image_std": ()}
    spec = spec.model_copy(update={"workload": spec.workload.model_copy(update=fed)})
    tracker = replace(trial, spec=spec.to_dict(), result=_with_batch_size(trial, held.sample["rows"]))
    text = export_python(tracker, info, accepted_breach=accepted_breach)
    return _HERE + text + _COMPARED


def _with_batch_size(trial: Trial, rows: int) -> Any:
    """Limit the batch of the result's inputs to the rows of the recorded sample."""
    result: dict[str, Any] = dict(trial.facts)
    fed = int(result.get("batch_size") or rows)
    if fed != rows:
        result["inputs"] = [
            {**one, "shape": [rows, *one["shape"][1:]] if one["shape"][:1] == [fed] else one["shape"]}
            for one in result.get("inputs") or []
        ]
    return result


def _requirements(trial: Trial) -> str:
    """Return the libraries that the trial ran on, in the measured versions."""
    machine: Mapping[str, Any] = trial.facts.get("environment") or {}
    libraries: Mapping[str, str] = machine.get("libraries") or trial.facts.get("libraries") or {}
    spec = spec_from_dict(trial.spec)
    on_gpu = any(one.name in wire.CUDA_PROVIDERS for one in spec.session.providers)
    wanted = (*_COMPUTE, *(_GPU if on_gpu else ()), *(("onnx",) if spec.model.precision == "fp16" else ()))
    pinned = [
        f"{name}=={version}"
        for name, version in sorted(libraries.items())
        if name not in _NOT_COMPUTING
        and (name in wanted or name.startswith(("onnxruntime-", *(_GPU if on_gpu else ()))))
    ]
    python = f" on Python {machine['python']}" if machine.get("python") else ""
    return "\n".join([f"# What was measured{python}.", *pinned, ""])


def _readme(held: Contents) -> str:
    trial = held.trial
    told = model_text(trial.result)
    parts = [
        f"# {md_plain(held.record.name)}",
        f"An ONNX Runtime configuration measured with ORTune {__version__} (trial `{trial.id}`), "
        "with its model and recorded inputs and outputs.",
        *([f"The model: {md_plain(told)}."] if told else []),
        _gains(trial),
        *([f"**Caution.** {md_plain(doubt)}"] if (doubt := caution(trial)) else []),
        *([f"**Outputs differ.** {md_plain(why)}"] if (why := breach(trial.result)) else []),
        "## Verify on your machine",
        "With ORTune, on the zip or on `config.yaml` in its folder:\n\n"
        "```sh\nortune verify THIS.zip\n```\n\n"
        "It checks that the configuration runs, that the outputs match, and that the speed-up is "
        "reproduced. `--no-measure` skips the measurement.",
        f"## Without ORTune\n\n```sh\npip install -r {NEEDS}\npython {SCRIPT}\n```",
        "## Contents",
        "\n".join(_listed(held)),
        *_excluded_libraries(held.trial),
        *([f"No recorded inputs and outputs. {md_plain(held.no_sample)}"] if held.no_sample else []),
    ]
    return "\n\n".join(parts) + "\n"


def _listed(held: Contents) -> list[str]:
    files = {
        CONFIG: "the configuration, its results and the machine",
        SCRIPT: "a Python script that creates the session and runs it once",
        NEEDS: "the measured versions",
        held.model: "the model",
        **{name: "its weights" for name in held.sources if name.startswith("model/") and name != held.model},
    }
    if held.sample is not None:
        rows = held.sample["rows"]
        files[INPUTS] = f"the inputs of one run ({rows:,} sample{'s' * (rows != 1)})"
        files[OUTPUTS] = "its outputs"
    return [f"- {code_span(name)}: {what}" for name, what in files.items()]


def _excluded_libraries(trial: Trial) -> list[str]:
    """Name the native libraries, which a bundle never contains: users install them themselves."""
    named = [library(text) for text in spec_from_dict(trial.spec).session.libraries]
    if not named:
        return []
    listed = "\n".join(f"- {code_span(one.name)}, SHA-256 `{one.sha256}`" for one in named)
    return [
        "## Not included\n\nNative libraries that the configuration needs. Get them from a source that "
        f"you trust, put them into a folder, and set `{ALLOW_LIBRARIES}` to that folder; `verify` and "
        f"`{SCRIPT}` refuse libraries with another SHA-256.\n\n" + listed
    ]


def _gains(trial: Trial) -> str:
    contrasts = trial.facts.get("contrasts") or []
    if not contrasts:
        return "It was measured without a comparison."
    one = contrasts[-1]
    return f"Measured versus ONNX Runtime's default: {md_plain(words(one) + different_outputs_words(one))}."
