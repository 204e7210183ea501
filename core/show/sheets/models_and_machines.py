"""Sheets of models, conversions and machines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core import wire
from core.evidence.noise_check import NoiseCheckResult
from core.process.machine_queue import Entry
from core.show.format import minute, short
from core.show.sheets import Fact, Part, Sheet
from core.show.sheets.trials import notes
from core.show.table import Column, Table, tabulate
from core.show.words import ANOTHER_PERSON, counted, start_words
from core.store import ModelRecord
from core.wire import sandbox
from core.wire.provenance import facts_in_words, thread_advice
from core.wire.units import DASH, clipped, size

# --- models -------------------------------------------------------------------------------------------------


def model(name: str, info: wire.ModelInfo, more: Sequence[Fact]) -> Sheet:
    """Return the sheet of a model file.

    Args:
        name: of the model.
        info: facts from its inspection.
        more: further facts.
    """
    return Sheet(name, [*model_facts(info), *more, tensors(info)])


def model_facts(info: wire.ModelInfo) -> list[Fact]:
    """Return the facts on a model file, except its inputs and outputs."""
    opsets = ", ".join(f"{clipped(one) or 'ai.onnx'} {version}" for one, version in info["opset"].items())
    return [
        Fact("file", info["path"]),
        Fact("sha256", info["sha256"]),
        Fact("size", f"{size(info['size_bytes'])}, {info['parameters']:,} parameters"),
        Fact("nodes", f"{info['nodes']:,}: {_op_counts(info['op_counts'])}"),
        Fact("opset", f"{opsets}; IR {info['ir_version']}; made by {clipped(info['producer']) or 'unknown'}"),
        Fact("batch", _batch(info)),
        Fact("free dims", ", ".join(map(clipped, info["free_dims"])) or "no free dimension"),
        *(
            Fact("external", f"{one['location']} ({size(one['size_bytes'])})")
            for one in info["external_data"]
        ),
        *(Fact("metadata", f"{clipped(key)}: {short(text, 200)}") for key, text in info["metadata"].items()),
    ]


def library(records: Sequence[ModelRecord]) -> Table:
    """Return the table of the library's models."""
    return tabulate(
        records,
        (Column("name", tells=True), lambda one: one.name),
        (Column("source"), lambda one: one.source),
        (Column("size", "bytes"), lambda one: one.info["size_bytes"]),
        (Column("nodes", "count"), lambda one: one.info["nodes"]),
        (Column("parameters", "count"), lambda one: one.info["parameters"]),
        (Column("opset", "count"), lambda one: one.info["opset"].get("", 0)),
        (Column("inputs"), lambda one: ", ".join(each["name"] for each in one.info["inputs"])),
        (Column("free dimensions"), lambda one: ", ".join(one.info["free_dims"])),
        (Column("added", "moment"), lambda one: one.created_at),
        (Column("note"), lambda one: one.note),
    )


def operators(info: wire.ModelInfo) -> Table:
    """Return the node count of each operator of a model, the most frequent first."""
    return tabulate(
        _ordered(info["op_counts"]),
        (Column("operator", tells=True), lambda one: one[0]),
        (Column("nodes", "count", bar=True), lambda one: one[1]),
    )


def conversion_sheet(reply: wire.ExportReply) -> Sheet:
    """Return the sheet of a converted model, with its output error versus the source."""
    differences = [
        f"{one['max_abs']:.2g} absolute, {one['max_rel']:.2g} relative"
        + ("" if one["batch"] is None else f", at batch {one['batch']}")
        for one in reply["differences"]
    ]
    return Sheet(
        reply["path"],
        [
            Fact("size", f"{size(reply['size_bytes'])}, {reply['parameters']:,} parameters"),
            Fact("nodes", f"{reply['nodes']:,}: {_op_counts(reply['op_counts'])}"),
            Fact("opset", f"{reply['opset']}, IR {reply['ir_version']}"),
            Fact("weights", reply["weights"]),
            *(Fact("difference", text) for text in differences),
            Fact("took", f"{reply['seconds']:.1f} s"),
            *notes(reply["notes"]),
        ],
    )


def tensors(info: wire.ModelInfo) -> Table:
    """Return the table of a model's inputs and outputs."""
    sides = [("input", info["inputs"]), ("output", info["outputs"])]
    return tabulate(
        [(side, one) for side, tensors in sides for one in tensors],
        (Column(""), lambda one: one[0]),
        (Column("name", tells=True), lambda one: clipped(one[1]["name"])),
        (Column("type"), lambda one: one[1]["dtype"]),
        (Column("shape"), lambda one: _shape(one[1]["shape"])),
    )


def _shape(sizes: Sequence[int | str] | None) -> str:
    return "any rank" if sizes is None else f"[{', '.join(clipped(str(one)) for one in sizes)}]"


def _op_counts(counts: Mapping[str, int]) -> str:
    ordered = _ordered(counts)
    shown = ", ".join(f"{clipped(name)} {number}" for name, number in ordered[:8])
    return shown + (f", {len(ordered) - 8} more types" if len(ordered) > 8 else "")


def _ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _batch(info: wire.ModelInfo) -> str:
    if info["batch_dim"] is not None:
        return f"free: `{clipped(info['batch_dim'])}`"
    return f"fixed at {info['fixed_batch']}" if info["batch_axes"] else "no input has a batch dimension"


# --- machine ------------------------------------------------------------------------------------------------


def machine(facts: wire.Environment, queue: Sequence[Entry]) -> Sheet:
    """Return the sheet of the machine, with the providers that load on it and its queue."""
    advice = thread_advice(facts)
    return Sheet(
        "",
        [
            *machine_facts(facts),
            *([Fact("advice", advice, "orange")] if advice else []),
            Fact("fingerprint", facts["fingerprint"]),
            *_providers(facts),
            *([queue_table(queue)] if queue else [Fact("queue", "empty")]),
        ],
    )


def queue_table(queue: Sequence[Entry]) -> Table:
    """Return the table of the machine's queue: the running job, and the others in their order."""
    return tabulate(
        queue,
        (Column("queue", tells=True), lambda one: "running" if one.running else f"place {one.place}"),
        (Column("job", most=60), lambda one: one.what),
        (Column("by"), lambda one: ANOTHER_PERSON if one.private else one.person or one.owner),
        (Column("since"), lambda one: minute(one.since)),
        (
            Column("start"),
            lambda one: DASH if one.running else start_words(one.starts_in_s, basis=False),
        ),
    )


def machine_facts(facts: wire.Environment) -> list[Fact]:
    """Return the facts that determine the speed of a machine, the most important first."""
    plain = {k: v for k, v in facts["libraries"].items() if not k.startswith("nvidia-")}
    libraries = ", ".join(f"{name} {version}" for name, version in plain.items())
    if more := len(facts["libraries"]) - len(plain):
        libraries += f", {counted(more, 'NVIDIA package')}"
    variables = ", ".join(f"{name}={value}" for name, value in facts["variables"].items())
    return [
        *(Fact(name, text) for name, text in facts_in_words(facts)),
        Fact("memory", f"{size(facts['memory_bytes'])} usable"),
        *(
            [Fact("GPU", _gpu(one)) for one in facts["gpus"]]
            or [Fact("GPU", "none reported by the NVIDIA driver")]
        ),
        Fact("system", f"{facts['os']}, kernel {facts['kernel']}, Python {facts['python']}"),
        Fact("libraries", libraries),
        *([Fact("OpenVINO", _openvino(facts))] if "openvino_devices" in facts else []),
        Fact("variables", variables or "none that affect ONNX Runtime"),
        *_sandbox(facts),
    ]


def _sandbox(facts: wire.Environment) -> list[Fact]:
    if (found := facts.get("sandbox")) is None:  # of an earlier version
        return []
    is_whole = not found.get("off") and not found["lacks"]
    return [Fact("workers", sandbox.in_words(found), None if is_whole else "orange")]


def _openvino(facts: wire.Environment) -> str:
    """Return version and devices of OpenVINO; a process that crashed lists no device."""
    listed = [f"{name} ({full})" for name, full in facts["openvino_devices"].items()]
    return f"{facts['libraries']['openvino']}, devices: {', '.join(listed) or 'none could be listed'}"


def _gpu(gpu: Mapping[str, Any]) -> str:
    parts = [str(gpu.get("name")), size(gpu.get("memory_bytes")), f"driver {gpu.get('driver')}"]
    return ", ".join([*parts, *([f"CUDA {gpu['cuda']}"] if gpu.get("cuda") else [])])


def _providers(facts: wire.Environment) -> Iterator[Fact]:
    for one in facts["providers"]:
        if one["loadable"]:
            yield Fact("loads", one["name"], "green")
        else:
            yield Fact("NOT HERE", one["name"], "orange")
            yield Fact("", f"{one['reason']} {one['remedy']}")


def noise_check_sheet(answer: NoiseCheckResult) -> Sheet:
    """Return the sheet of the noise check: result, details, and the needs of each effort."""
    sigma = DASH if answer.sigma is None else f"±{100 * answer.sigma:.2g} % per pair of blocks"
    if answer.sigma_between is not None:
        sigma = f"between processes ±{100 * answer.sigma_between:.2g} %; {sigma}"
    parts: list[Part] = [Fact("grade", answer.grade), Fact("details", answer.reason)]
    parts += [Fact("", f"Tested {answer.busy}.")] if answer.busy else []
    parts += [Fact("what to do", answer.remedy)] if answer.remedy and not answer.publishable else []
    parts.append(Fact("noise", sigma))
    return Sheet(answer.headline, [*parts, *([needs(answer)] if answer.needs else [])])


def needs(answer: NoiseCheckResult) -> Table:
    """Return what a comparison of two configurations needs on this machine, by effort."""
    return tabulate(
        answer.needs,
        (Column("effort", tells=True), lambda one: one.precision),
        (Column("precision", right=True), lambda one: f"±{100 * one.target:g} %"),
        (Column("launches", "count"), lambda one: one.generations),
        (Column("seconds", "number"), lambda one: one.seconds),
        (Column("within its budget"), lambda one: "yes" if one.fits else "no"),
    )
