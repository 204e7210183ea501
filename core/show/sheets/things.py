"""Models and machines as sheets: what is in a file, what an export wrote, what this machine is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from core import wire
from core.evidence.quietness import Answer
from core.evidence.verdict import Grade
from core.show.sheets import Fact, Part, Sheet
from core.show.sheets.trials import notes
from core.show.table import Column, Table, tabulate
from core.store import ModelRecord
from core.wire.provenance import in_words, thread_advice
from core.wire.units import DASH, clipped, size

# --- models -------------------------------------------------------------------------------------------------


def model(name: str, info: wire.ModelInfo, runs: str) -> Sheet:
    """What is in a model file.

    Args:
        name: of the model.
        info: what was found in it.
        runs: what is known of its loading.
    """
    opsets = ", ".join(f"{clipped(one) or 'ai.onnx'} {version}" for one, version in info["opset"].items())
    producer = clipped(info["producer"]) or "unknown"
    return Sheet(
        name,
        [
            Fact("file", info["path"]),
            Fact("sha256", info["sha256"]),
            Fact("size", f"{size(info['size_bytes'])}, {info['parameters']:,} parameters"),
            Fact("nodes", f"{info['nodes']:,}: {_op_counts(info['op_counts'])}"),
            Fact("opset", f"{opsets}; IR {info['ir_version']}; made by {producer}"),
            Fact("batch", _batch(info)),
            Fact("free", ", ".join(map(clipped, info["free_dims"])) or "no free dimension"),
            Fact("runs", runs),
            *(
                Fact("external", f"{one['location']} ({size(one['size_bytes'])})")
                for one in info["external_data"]
            ),
            tensors(info),
        ],
    )


def library(records: Sequence[ModelRecord]) -> Table:
    """The models of a library."""
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


def exported(reply: wire.ExportReply) -> Sheet:
    """What an export wrote, and how far it is from its source."""
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
    """Inputs and outputs of a model."""
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
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{clipped(name)} {number}" for name, number in ordered[:8])
    return shown + (f", {len(ordered) - 8} more types" if len(ordered) > 8 else "")


def _batch(info: wire.ModelInfo) -> str:
    if info["batch_dim"] is not None:
        return f"free: `{clipped(info['batch_dim'])}`"
    return f"fixed at {info['fixed_batch']}" if info["batch_axes"] else "no input has rows"


# --- the machine --------------------------------------------------------------------------------------------


def machine(facts: wire.Environment) -> Sheet:
    """The machine, and which providers really load on it."""
    return Sheet("", [*_machine(facts), *_providers(facts)])


def _machine(facts: wire.Environment) -> Iterator[Fact]:
    plain = {k: v for k, v in facts["libraries"].items() if not k.startswith("nvidia-")}
    libraries = ", ".join(f"{name} {version}" for name, version in plain.items())
    if more := len(facts["libraries"]) - len(plain):
        libraries += f", {more} NVIDIA packages (see --json)"
    yield from (Fact(name, text) for name, text in in_words(facts))
    if advice := thread_advice(facts):
        yield Fact("advice", advice)
    yield Fact("memory", size(facts["memory_bytes"]))
    for gpu in facts["gpus"]:
        yield Fact("GPU", f"{gpu.get('name')} ({size(gpu.get('memory_bytes'))})")
    yield Fact("system", f"{facts['os']}, kernel {facts['kernel']}, Python {facts['python']}")
    yield Fact("libraries", libraries)
    yield Fact("fingerprint", facts["fingerprint"])


def _providers(facts: wire.Environment) -> Iterator[Fact]:
    for one in facts["providers"]:
        if one["loadable"]:
            yield Fact("loads", one["name"], "green")
        else:
            yield Fact("NOT HERE", one["name"], "orange")
            yield Fact("", f"{one['reason']} {one['remedy']}")


def quietness(answer: Answer) -> Sheet:
    """Whether the machine is quiet enough to publish, why, and what each effort would need."""
    sigma = DASH if answer.sigma is None else f"±{100 * answer.sigma:.2g} % a pair of blocks"
    if answer.sigma_between is not None:
        sigma = f"between processes ±{100 * answer.sigma_between:.2g} %; {sigma}"
    parts: list[Part] = [Fact("grade", answer.grade, Grade[answer.grade].color)]
    for name, text in (("reason", answer.reason), ("remedy", answer.remedy), ("noise", sigma)):
        parts += [Fact(name, text)] if text else []
    parts += [Fact("BUSY", f"Tested {answer.busy}.", "orange")] if answer.busy else []
    return Sheet(answer.headline, [*parts, *([needs(answer)] if answer.needs else [])])


def needs(answer: Answer) -> Table:
    """What a comparison of two needs on this machine, by effort."""
    return tabulate(
        answer.needs,
        (Column("effort", tells=True), lambda one: one.precision),
        (Column("known to", right=True), lambda one: f"±{100 * one.target:g} %"),
        (Column("generations", "count"), lambda one: one.generations),
        (Column("seconds", "number"), lambda one: one.seconds),
        (Column("within its budget"), lambda one: "yes" if one.fits else "no"),
    )
