"""Record a small sample of inputs and outputs of a configuration, and check it on another machine.

numpy and the session only. Files are written deterministically: the same sample has the same bytes. Files
that are read are untrusted, so their sizes are checked before memory is allocated.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from core import wire
from core.wire.errors import SpecError, WorkerError
from core.worker.measure import output_comparison
from core.worker.measure.contestant import pin
from core.worker.measure.inference import count_samples, prepare, translate_errors
from core.worker.session import build_session
from core.worker.session.feeds import Array, make_feeds
from core.worker.session.feeds.archive import open_archive
from core.worker.session.feeds.wanted import BFLOAT16, STRING

INPUTS, OUTPUTS = "inputs.npz", "outputs.npz"


def record(payload: wire.SamplesPlan) -> wire.SamplesReply:
    """Run the configuration once and write its inputs and outputs to two files.

    Raises:
        TunerError: as for `build_session` and `prepare`, and what the run raises.
        WorkerError: the files cannot be written.
    """
    plan = payload["plan"]
    pin(plan["cpus"])
    built = build_session(plan["model_path"], plan["session"])
    feeds = make_feeds(plan["feeds"], built.session.get_inputs())
    contender = prepare(built, plan)
    with translate_errors():
        result = contender.call()
    found = contender.arrays(result)
    fed = {name: _kept(array, feeds.dtypes[name]) for name, array in feeds.arrays.items()}
    reply: wire.SamplesReply = {
        "rows": count_samples(contender, plan["feeds"]),
        "inputs": contender.inputs,
        "outputs": contender.outputs(result),
        "refusal": _refusal(fed, found, payload["most_bytes"]),
    }
    if not reply["refusal"]:
        folder = Path(payload["folder"])
        save_inputs(folder / INPUTS, fed)
        output_comparison.save(str(folder / OUTPUTS), found)
    return reply


def answers(payload: wire.AnswersPlan) -> wire.AnswersReply:
    """Run the configuration once and return the error of its outputs against the recorded ones.

    An unusable sample says nothing about the configuration: it is reported, not raised.

    Raises:
        TunerError: as for `build_session` and `prepare`, and any error of the run.
    """
    plan = payload["plan"]
    pin(plan["cpus"])
    built = build_session(plan["model_path"], plan["session"])
    reply: wire.AnswersReply = {
        "effective_providers": built.effective,
        "fallback": built.fallback,
        "fallback_reason": built.fallback_reason,
        "rows": 0,
        "error": None,
        "unusable": "",
        "notes": [],
    }
    recorded = None
    if payload["outputs"]:
        try:
            recorded = _recorded(Path(payload["outputs"]))
            make_feeds(plan["feeds"], built.session.get_inputs())
        except SpecError as error:
            return {**reply, "unusable": error.message}
    contender = prepare(built, plan)
    with translate_errors():
        found = contender.arrays(contender.call())
    return {
        **reply,
        "rows": count_samples(contender, plan["feeds"]),
        "error": None if recorded is None else output_comparison.compare(recorded, found),
        "notes": contender.notes,
    }


def save_inputs(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an `.npz` with one array per input, under any input name.

    Raises:
        WorkerError: it cannot be written.
    """
    try:
        with zipfile.ZipFile(path, "w") as archive:  # not compressed: the same bytes on every machine
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    except OSError as error:
        raise WorkerError(
            f"The inputs cannot be written to `{path}`: {error.strerror}.", hint="Free some disk space."
        ) from error


def _recorded(path: Path) -> dict[str, Array]:
    """Read an untrusted file of `output_comparison.save`: with a size limit, and without pickled objects."""
    with open_archive(path, f"There are no recorded outputs `{path.name}`.") as archive:
        members = archive.read(archive.names)
        names = members.get("arr_0")
        arrays = [members[name] for name in (f"arr_{number + 1}" for number in range(len(members) - 1))]
        if names is None or names.ndim != 1 or names.dtype.kind != "U" or len(names) != len(arrays):
            raise SpecError(
                f"`{path.name}` holds no recorded outputs.", hint="Make the bundle again with `export`."
            )
        return dict(zip(names.tolist(), arrays, strict=True))


def _kept(array: Array, dtype: str) -> Array:
    """Return the array in a form that a file can hold without Python objects."""
    if dtype == BFLOAT16:
        return _widened(array)
    return array.astype(np.str_) if dtype == STRING else array


def _widened(array: Array) -> Array:
    """Convert bfloat16, of which numpy knows only the bits, to float32."""
    return (array.astype(np.uint32) << 16).view(np.float32)


def _refusal(fed: Mapping[str, Array], found: Mapping[str, Array], most_bytes: int) -> str:
    for what, arrays in (("inputs", fed), ("outputs", found)):
        total = sum(one.nbytes for one in arrays.values())
        if total > most_bytes:
            return (
                f"The {what} of one inference take {total:,} bytes, but at most {most_bytes:,} are recorded."
            )
    return ""
