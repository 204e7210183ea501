"""Writes a Dockerfile for a bundle: at start, the image checks that the settings take effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core import wire
from core.run.export_source import ExportSource
from core.show.export.header import head
from core.show.export.programs import ort_spec
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec
from core.wire.runtime import OWN, command_to_add, runtime

_BODY = """\
ARG PYTHON={python}
FROM python:${{PYTHON}}-slim

# ORTune is in no package index. Put its source folder, or a wheel of it, as `ortune` beside this file.
COPY ortune /opt/ortune
RUN pip install --no-cache-dir /opt/ortune

# The bundle of this trial: `ortune export {trial} --format bundle -o bundle.zip`.
# Another name: --build-arg BUNDLE=NAME.zip
ARG BUNDLE=bundle.zip
WORKDIR /srv/ortune
COPY ${{BUNDLE}} bundle.zip

ENV ORT_DISABLE_TELEMETRY=1 ORTUNE_HOME=/srv/ortune/home
{adds}CMD ["python", "-m", "core", "verify", "bundle.zip"]
"""
_ADDS = """\
# The environment that the trial ran in.
RUN {command}
"""


def export_dockerfile(source: ExportSource, accepted: str) -> str:
    """Return the Dockerfile.

    Raises:
        SpecError: another engine ran the trial.
    """
    spec = ort_spec(source.trial)
    tracker = SettingTracker(spec)
    tracker.mark_all_exported_but()  # the bundle contains the YAML file, which supports every setting
    tracker.mark_exported("expert", "streams", "stream_type", "dynamic_batching")
    notes = [
        "All settings are in the bundle; this file only builds an image with it.",
        *_start(spec),
    ]
    tracker.mark_unsupported(
        "cpus", "the bundle contains it, but a container may have other CPUs; set them with --cpuset-cpus"
    )
    machine: Mapping[str, Any] = source.trial.facts.get("environment") or {}
    asked = runtime(spec.runtime)
    python, adds = str(machine.get("python") or "3.11"), ""
    if asked.name != OWN:  # ORTune runs in the Python of the image, and adds the runtime beside itself
        command = command_to_add(asked.name, machine.get("libraries") or {})
        python, adds = "3.11", _ADDS.format(command=command)
        why = "the image adds it with the same versions of ONNX Runtime, on the image's Python"
        tracker.mark_unsupported("runtime", why)
    version = ".".join(part for part in python.split(".")[:2] if part.isdecimal()) or "3.11"
    body = _BODY.format(python=version, trial=source.trial.id, adds=adds)
    return f"{head(source.trial, accepted, tracker, *notes)}\n\n{body}"


def _start(spec: TrialSpec) -> list[str]:
    options = []
    if any(one.name in wire.CUDA_PROVIDERS for one in spec.session.providers):
        options.append("--gpus all (with NVIDIA's container toolkit)")
    if spec.protocol.cpus:
        options.append(f"--cpuset-cpus {spec.protocol.cpus}")
    start = "Build: docker build -t ortune-trial . Start: docker run --rm "
    return [f"{start}{' '.join([*options, 'ortune-trial'])}"]
