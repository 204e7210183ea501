"""What is said of runtimes: names, versions, hashes, and the command that creates one."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence.comparison import Configuration, with_references
from core.run.search.search_space import known_axes, unknown_words
from core.show import cells, format
from core.show.runtime_text import runtime_of, versions_text
from core.spec import TrialSpec, spec_from_dict
from core.spec.axes import axes_of_study, axis, point_name, study_name
from core.spec.settings import value_words
from core.spec.space import Axis
from core.wire.errors import SpecError
from core.wire.runtime import command_to_add, runtime
from tests import builders

HASH = "4f0a" + "0" * 60
PINNED = f"ort130@sha256:{HASH}"


def spec(name: str = "own", **session: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}, "runtime": name, "session": session})


def test_a_pinned_runtime_is_shown_by_its_name_or_with_the_beginning_of_its_hash() -> None:
    assert value_words(PINNED) == "ort130"
    assert format.value(PINNED) == "ort130 (SHA-256 4f0a00000000…)"
    assert point_name({"runtime": "ort130", "intra_op_num_threads": 2}) == "ort130, threads 2"


def test_a_sweep_over_runtimes_is_read_back_from_its_name() -> None:
    axes = [axis("runtime", ["own", "ort130"]), axis("intra_op_num_threads", [1, 2])]
    assert axes_of_study(study_name(axes, "ab12")) == tuple(axes)


@pytest.mark.parametrize("text", ["own@sha256:" + HASH, "UPPER", "a b", "", "../x", "a@sha256:12", "x" * 41])
def test_what_is_no_runtime_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        runtime(text)
    assert caught.value.hint.startswith("Write ")


@pytest.mark.parametrize(
    ("libraries", "packages"),
    [
        ({}, "onnxruntime==VERSION"),
        ({"onnxruntime": "1.30.0", "numpy": "2.0"}, "onnxruntime==1.30.0"),
        ({"openvino": "2026.4.1"}, "openvino==2026.4.1"),
        ({"onnxruntime": "1; rm -rf /", "onnxruntime `x`": "1.0"}, "onnxruntime==VERSION"),
    ],
)
def test_the_command_for_a_runtime_has_its_versions_and_no_foreign_text(
    libraries: dict[str, str], packages: str
) -> None:
    assert command_to_add("ort130", libraries) == f"ortune runtimes add ort130 --package {packages}"


def test_versions_are_those_of_the_engine() -> None:
    known = {"python": "3.12.1", "libraries": {"onnxruntime": "1.30.0", "openvino": "2026.4.1"}}
    assert versions_text(known) == "onnxruntime 1.30.0, Python 3.12.1"
    assert versions_text(known, "openvino") == "openvino 2026.4.1, Python 3.12.1"
    assert runtime_of({"runtime": PINNED}, known) == (
        "ort130: onnxruntime 1.30.0, Python 3.12.1 (SHA-256 4f0a00000000…)"
    )
    assert runtime_of({}, known) == ""


# --- comparisons --------------------------------------------------------------------------------------------


def test_the_default_runs_where_the_first_candidate_does_and_says_so_among_several() -> None:
    fast = Configuration(spec=spec(PINNED, intra_op_num_threads=1), label="a")
    other = Configuration(spec=spec(intra_op_num_threads=1), label="b", role="baseline")
    added = with_references([fast, other])[-1]
    assert (added.label, added.role, added.spec.runtime) == ("ORT default (ort130)", "anchor", PINNED)
    assert with_references([fast])[-1].label == "ORT default"


def test_libraries_of_two_runtimes_are_no_difference_between_their_machines() -> None:
    ours: Any = {**builders.MACHINE, "libraries": {"onnxruntime": "1.31.1"}}
    theirs = {**ours, "libraries": {"onnxruntime": "1.17.3"}}
    moved = {**theirs, "kernel": "another"}

    def trial(name: str, found: Any, fingerprint: str) -> Any:
        return builders.trial(of=spec(name), result={"environment": found}, fingerprint=fingerprint)

    one = trial("own", ours, "a")
    assert cells.differences(one, trial(PINNED, theirs, "a")) == []
    assert cells.differences(one, trial(PINNED, theirs, "b")) == []
    assert [text.split(":")[0] for text in cells.differences(one, trial(PINNED, moved, "b"))] == ["kernel"]
    assert any("onnxruntime" in text for text in cells.differences(one, trial("own", theirs, "b")))


# --- searches -----------------------------------------------------------------------------------------------


def test_a_search_leaves_out_what_a_runtime_does_not_know() -> None:
    axes = [
        Axis(
            name="graph_optimization_level", values=("ORT_ENABLE_ALL", "ORT_ENABLE_LAYOUT", "ORT_DISABLE_ALL")
        ),
        Axis(name="session.dynamic_block_base", values=(0, 4)),
        Axis(name="intra_op_num_threads", values=(0, 1)),
        Axis(name="model", values=(None, "small")),
    ]
    unknown = ["session.dynamic_block_base", "graph_optimization_level ORT_ENABLE_LAYOUT"]
    assert [one.values for one in known_axes(axes, unknown)] == [
        ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"),
        (0,),
        (0, 1),
        (None, "small"),
    ]
    assert unknown_words(spec(PINNED), axes, unknown) == [
        "The runtime `ort130` does not know all values of these settings: graph, block_base."
    ]
    assert unknown_words(spec(PINNED), axes, []) == []
