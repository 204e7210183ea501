"""The job `graph` on real models, what a real profile finds in it, and the command `graph`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper

from core import wire
from core.evidence.graph_facts import precision, times
from core.wire.errors import ModelError, WorkerError
from core.wire.files import ROOT
from core.wire.graph import Graphs, graphs_from_json
from core.wire.profile import profile_from_dict
from tests import builders, in_process, tiny_models
from tests.command_line import CommandLine
from tests.tiny_models import save, value, weights

pytestmark = pytest.mark.usefixtures("jobs_at_once")

DIGITS = str(ROOT / "sample_models" / "digits_cnn.onnx")


def drawn(path: Path | str, tmp_path: Path, *, optimized: bool = False, **entries: Any) -> Graphs:
    session = {**wire.default_session_plan(), **entries} if optimized else None
    output = tmp_path / "graph.json"
    in_process.run(wire.GRAPH, {"model_path": str(path), "session": session, "output": str(output)})
    return graphs_from_json(output.read_bytes())


def profiled(path: Path, tmp_path: Path, shape: tuple[int, ...], name: str = "x") -> Any:
    plan: wire.ProfilePlan = {
        "model_path": str(path),
        "session": wire.default_session_plan(),
        "feeds": builders.feed_plan(builders.one_input(name, shape=shape)),
        "use_io_binding": False,
        "runs": 3,
        "trace_path": str(tmp_path / "trace.json"),
    }
    return profile_from_dict(in_process.run(wire.PROFILE, plan)["profile"])


def unnamed(path: Path) -> Path:
    """Nodes without names, a Constant among them: ONNX Runtime's own names count without it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.ones(4, np.float32))),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["d"]),
        helper.make_node("Add", ["d", "c"], ["y"]),
    ]
    return save(path, nodes, [value("x", [2, 4])], [value("y", [2, 4])], [weights("w", [4, 4])])


def test_nodes_tensors_and_weights_of_a_model(tmp_path: Path) -> None:
    found = drawn(DIGITS, tmp_path)
    (main,) = found.model.levels
    assert [one.op_type for one in main.nodes] == [
        "Conv",
        "Relu",
        "Conv",
        "Relu",
        "MaxPool",
        "Reshape",
        "Gemm",
    ]
    assert len(main.edges) == 6
    conv = main.nodes[0]
    assert conv.attributes["kernel_shape"] == "[3, 3]"
    assert main.by_name[conv.outputs[0]].shape == ("batch", 32, 8, 8)
    assert main.weight_bytes(conv) == 4 * (32 * 9 + 32)
    assert {precision(main, one) for one in main.nodes} == {"float32"}
    assert found.optimized is None


def test_the_optimized_graph_says_what_was_fused_and_inserted(tmp_path: Path) -> None:
    found = drawn(DIGITS, tmp_path, optimized=True)
    assert found.optimized is not None
    assert found.effective_providers == ("CPUExecutionProvider",)
    nodes = found.optimized.levels[0].nodes
    own = [one.name for one in found.model.levels[0].nodes]
    works_for = [name for one in nodes for name in one.does]
    assert sorted(works_for) == sorted(own)  # nothing was lost, nothing is done twice
    assert any(len(one.does) == 2 for one in nodes)  # Conv with its Relu


def test_without_optimizations_every_node_stays_what_it_is(tmp_path: Path) -> None:
    attributes = {"attributes": {"graph_optimization_level": "ORT_DISABLE_ALL"}}
    found = drawn(DIGITS, tmp_path, optimized=True, **attributes)
    assert found.optimized is not None
    assert all(one.does == (one.name,) and not one.inserted for one in found.optimized.levels[0].nodes)


def test_bodies_are_levels_of_their_own(tmp_path: Path) -> None:
    found = drawn(tiny_models.loop_model(tmp_path / "loop.onnx"), tmp_path)
    main, body = found.model.levels
    assert (body.path, body.role) == ((main.nodes[0].name,), "body")
    assert main.nodes[0].bodies == ("body",)
    assert main.nodes[0].attributes["body"] == f"a graph of {len(body.nodes)} nodes"
    assert found.model.count == len(main.nodes) + len(body.nodes)


def test_what_a_branch_takes_from_around_it_is_an_edge(tmp_path: Path) -> None:
    found = drawn(tiny_models.if_model(tmp_path / "if.onnx"), tmp_path)
    roles = {level.role for level in found.model.levels}
    assert {"then_branch", "else_branch"} <= roles
    holder = next(one for one in found.model.levels[0].nodes if one.op_type == "If")
    assert holder.captured


def branch(name: str, ops: list[str], *initializers: onnx.TensorProto, shape: Sequence[int] = (2, 3)) -> Any:
    """A body that applies operators to `x`; each node is called after the body and its operator."""
    tensors = ["x", *(f"{name}_{number}" for number in range(1, len(ops))), f"{name}_out"]
    extra = [one.name for one in initializers]
    nodes = [
        helper.make_node(op, [before, *extra], [after], f"{name}_{op}")
        for op, before, after in zip(ops, tensors, tensors[1:], strict=False)
    ]
    return helper.make_graph(nodes, name, [], [value(f"{name}_out", list(shape))], list(initializers))


def two_branches(path: Path, then: Any, otherwise: Any, *, name: str = "if") -> Path:
    holder = helper.make_node("If", ["c"], ["y"], name, then_branch=then, else_branch=otherwise)
    inputs = [value("c", [], "bool"), value("x", [2, 3])]
    return save(path, [holder], inputs, [value("y", None)])


def test_a_node_of_a_branch_does_the_work_of_its_own_branch(tmp_path: Path) -> None:
    """Both branches of an If have the same path: what is told of one must not be told of the other."""
    branches = branch("then", ["Relu", "Neg"]), branch("else", ["Exp", "Sqrt"])
    path = two_branches(tmp_path / "m.onnx", *branches)
    plain = {"graph_optimization_level": "ORT_DISABLE_ALL"}
    found = drawn(path, tmp_path, optimized=True, attributes=plain).optimized
    assert found is not None
    bodies = [level for level in found.levels if level.path]
    assert {level.role for level in bodies} == {"then_branch", "else_branch"}
    assert all(node.does == (node.name,) for level in bodies for node in level.nodes)


def test_a_body_knows_the_tensors_around_it_and_no_others(tmp_path: Path) -> None:
    """What the other branch calls the same is another tensor."""

    def outer(name: str, length: int) -> Any:
        inner = branch(f"{name}_in", ["Relu"])
        inner.node[0].input[0] = "shared"
        nodes = [
            helper.make_node("Concat", ["x"] * length, ["shared"], f"{name}_concat", axis=0),
            helper.make_node("If", ["c"], [f"{name}_y"], "inner", then_branch=inner, else_branch=inner),
        ]
        return helper.make_graph(nodes, name, [], [value(f"{name}_y", None)])

    path = two_branches(tmp_path / "m.onnx", outer("then", 2), outer("else", 3), name="one")
    levels = drawn(path, tmp_path).model.levels
    known = [level.by_name["shared"].shape for level in levels if level.path == ("one", "inner")]
    assert sorted(shape for shape in known if shape is not None) == [(4, 3), (4, 3), (6, 3), (6, 3)]


def test_weights_of_a_body_may_stand_in_another_file(tmp_path: Path) -> None:
    w = onnx.numpy_helper.from_array(np.ones((3, 400), np.float32), "w")
    (tmp_path / "w.bin").write_bytes(w.raw_data)
    onnx.external_data_helper.set_external_data(w, "w.bin", offset=0, length=len(w.raw_data))
    w.ClearField("raw_data")
    branches = (branch(name, ["MatMul"], w, shape=(2, 400)) for name in ("then", "else"))
    path = two_branches(tmp_path / "m.onnx", *branches, name="")
    found = drawn(path, tmp_path, optimized=True)
    assert found.optimized is not None
    assert "its weights are in another file" in " ".join(found.notes)


def test_names_are_those_of_the_profile_where_the_file_has_none(tmp_path: Path) -> None:
    path = unnamed(tmp_path / "unnamed.onnx")
    graph = drawn(path, tmp_path, optimized=True)
    profile = profiled(path, tmp_path, (2, 4))
    assert graph.optimized is not None
    found = times(graph.optimized, profile)
    assert found.unmatched == ()
    names = {graph.optimized.levels[0].nodes[index].op_type: one for (_, index), one in found.ran.items()}
    assert all(ran.nodes[0].op_type == op for op, ran in names.items())


def test_a_real_profile_of_a_convolution_is_matched_through_its_fusions(tmp_path: Path) -> None:
    path = tiny_models.conv(tmp_path / "conv.onnx")
    graph = drawn(path, tmp_path, optimized=True)
    name = graph.model.levels[0].inputs[0]
    profile = profiled(path, tmp_path, (1, 3, 16, 16), name)
    found = times(graph.model, profile, graph.optimized)
    inserted = sum(one.self_s for one in profile.nodes if one.inserted)
    assert found.unmatched == ()
    matched = found.together_s(found.ran)
    assert matched == pytest.approx(found.total_s - inserted)


def test_scopes_are_those_of_the_exporter_or_of_the_name(tmp_path: Path) -> None:
    told = helper.make_node("Relu", ["a"], ["b"], "node_relu")
    told.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layer1', 'layer1.0', 'relu']")
    odd = helper.make_node("Relu", ["b"], ["y"], "plain")
    odd.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="__import__('os')")
    nodes = [helper.make_node("Relu", ["x"], ["a"], "/stem/act/Relu"), told, odd]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1])], [value("y", [1])])
    found = [one.scope for one in drawn(path, tmp_path).model.levels[0].nodes]
    assert found == [("stem", "act"), ("layer1", "layer1.0"), ()]


def test_no_weights_are_left_behind_and_long_texts_are_cut(tmp_path: Path) -> None:
    large = tiny_models.weights("w", (1000, 1000))
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "n" * 10_000, doc="d" * 10_000)
    path = save(tmp_path / "m.onnx", [node], [value("x", [1, 1000])], [value("y", [1, 1000])], [large])
    found = drawn(path, tmp_path, optimized=False)
    assert (tmp_path / "graph.json").stat().st_size < 5_000
    assert found.model.levels[0].weight_bytes(found.model.levels[0].nodes[0]) == 4_000_000


def test_a_model_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="ONNX"):
        drawn(tiny_models.not_onnx(tmp_path / "m.onnx"), tmp_path)


def test_more_nodes_than_can_be_drawn_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.worker.models import graph_job, read_model

    monkeypatch.setattr(graph_job, "MOST_NODES", 6)
    with pytest.raises(ModelError, match=r"\b7\b.*\b6\b"):
        graph_job._check_size(read_model(Path(DIGITS)), Path(DIGITS))


def test_a_graph_of_another_version_is_none() -> None:
    with pytest.raises(WorkerError, match="version 0"):
        graphs_from_json(
            json.dumps(
                {
                    "version": 0,
                    "model": {"levels": [], "notes": []},
                    "optimized": None,
                    "effective_providers": [],
                    "notes": [],
                    "created_at": 0.0,
                }
            ).encode()
        )


# --- the command


def test_the_command_lists_nodes_and_filters_by_operator(cli: CommandLine) -> None:
    everything = cli.run("graph", DIGITS)
    assert everything.code == 0, everything.err
    assert "7: Conv 2" in everything.out
    some = cli.run("graph", DIGITS, "--op-type", "relu", "--json").document
    assert [one["op_type"] for one in some["nodes"]] == ["Relu", "Relu"]
    assert some["count"] == 7


def test_the_command_shows_what_onnx_runtime_makes_of_the_model(cli: CommandLine, tmp_path: Path) -> None:
    after = cli.run("graph", DIGITS, "--optimized", "--json", "-q").document
    assert after["effective_providers"] == ["CPUExecutionProvider"]
    assert any(len(one["does"]) > 1 for one in after["nodes"])
    assert sum(one["count"] for one in after["changes"] if one["kind"] == "fused") == 2  # Conv with its Relu
    config = tmp_path / "off.yaml"
    asked = {"schema": 1, "model": {"path": DIGITS}}
    asked["session"] = {"graph_optimization_level": "ORT_DISABLE_ALL"}
    config.write_text(yaml.safe_dump(asked))
    off = cli.run("graph", DIGITS, "--optimized", "--config", str(config), "--json", "-q").document
    assert [one["does"] for one in off["nodes"]] == [[one["name"]] for one in off["nodes"]]
    assert off["changes"] == []


def test_the_command_puts_the_times_of_a_profile_beside_the_nodes(cli: CommandLine) -> None:
    trial = cli.run("profile", DIGITS, "--runs", "3", "--json", "-q").document["trial"]
    shown = cli.run("graph", DIGITS, "--optimized", "--profile", trial, "--json", "-q").document
    assert all(one["self_s"] > 0 for one in shown["nodes"])
    assert {name for one in shown["nodes"] for name in one["providers"]} == {"CPUExecutionProvider"}
    assert shown["unmatched_s"] == 0
    text = cli.run("graph", DIGITS, "--optimized", "--profile", trial, "-q").out
    assert "ms/run" in text
    assert "2 Conv fused" in text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--op-type", "Foo"], "no node of the operator `Foo`"),
        (["--profile", "0123456789"], "0123456789"),
        (["--engine", "torch-eager"], "torch"),
    ],
)
def test_what_cannot_be_answered_is_refused(cli: CommandLine, args: list[str], said: str) -> None:
    done = cli.run("graph", DIGITS, *args)
    assert done.code == 2
    assert said in done.err
    assert "Hint:" in done.err


def test_a_profile_of_another_model_is_refused(cli: CommandLine, mlp: str) -> None:
    trial = cli.run("profile", mlp, "--runs", "1", "--json", "-q").document["trial"]
    done = cli.run("graph", DIGITS, "--profile", trial)
    assert done.code == 2
    assert "`digits_cnn`" in done.err
