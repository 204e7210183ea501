"""`transform` run for real, how its flags become a chain, and comparisons of variants by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from core.api.references import config_from
from core.api.requests import baseline_of, named
from core.api.session import Session
from core.api.settings import spec_data
from core.api.variants import copy_out
from core.cli.output import EXIT_UNDECIDED
from core.cli.transform import chain, sizes
from core.process.machine_queue import MachineQueue
from core.spec import spec_from_dict
from core.spec.steps import STEPS, step_type
from core.store import STORE_NAME, ModelRecord, Store
from core.store.library import import_file
from core.wire.errors import SpecError
from core.wire.output_check import OUTPUTS_DIFFER
from tests import tiny_models
from tests.command_line import CommandLine

MADE_FROM = r"made from +mlp"  # of `inspect`, with what the variant was made of

# --- how flags become a chain -----------------------------------------------------------------------------


def test_flags_and_options_become_steps() -> None:
    found = chain(
        ["fix_dims", "fuse", "int8_dynamic"],
        ["int8-dynamic.per_channel=on", "int8_dynamic.exclude_nodes=a,b", "fuse.model-type=bert"],
        {"batch": 1},
    )
    assert [(one.kind, one.changed()) for one in found] == [
        ("fix_dims", {"dims": {"batch": 1}}),
        ("fuse", {"model_type": "bert"}),
        ("int8_dynamic", {"per_channel": True, "exclude_nodes": ["a", "b"]}),
    ]
    (fixed,) = chain(["fix_dims"], ["fix-dims.dims=batch=2"], {"batch": 1})
    assert fixed.options["dims"] == {"batch": 2}


@pytest.mark.parametrize(
    ("kinds", "option", "words"),
    [
        ([], None, "No step is given"),
        (["fp16"], "per_channel=on", "takes STEP.NAME=VALUE"),
        (["fp16"], "fp16.keep_io_types", "takes STEP.NAME=VALUE"),
        (["fp16"], "fp61.keep_io_types=on", "no step `fp61`"),
        (["fp16"], "fp16.keep=on", "no option `keep`"),
        (["fp16"], "int4.block_size=64", "for a step that is not given"),
        (["int4"], "int4.block_size=48", "one of 16, 32"),
    ],
)
def test_flags_and_options_that_cannot_be(kinds: list[str], option: str | None, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        chain(kinds, [option] if option else [], {})
    assert caught.value.hint


def test_sizes_are_read_once_each() -> None:
    assert sizes(["batch=4", "x:0=8,length=16"]) == {"batch": 4, "x:0": 8, "length": 16}
    for texts, words in ((["batch=4", "batch=5"], "is given twice"), (["batch"], "NAME=N")):
        with pytest.raises(SpecError, match=words):
            sizes(texts)


# --- the command ------------------------------------------------------------------------------------------


def test_a_chain_in_the_order_of_its_flags(cli: CommandLine, mlp: str, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    done = cli.run("transform", mlp, "--simplify", "--fp16", "--name", "small", "-o", str(out), "--json")
    assert done.code == 0, done.err
    document = done.document
    assert (document["model"], document["state"], document["reused"]) == ("small", "COMPLETE", 0)
    kinds = [one["variant"]["steps"][-1]["kind"] for one in document["steps"]]
    assert kinds == ["simplify", "fp16"]
    assert document["steps"][1]["variant"]["steps"][0]["kind"] == "simplify"
    assert document["written"] == [str(out)]
    assert out.read_bytes() == Path(document["path"]).read_bytes()
    x = np.random.default_rng(0).random((3, 16), dtype=np.float32)
    half, whole = (
        ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for path in (out, mlp)
    )
    np.testing.assert_allclose(half, whole, rtol=1e-2)

    assert {one["guard"]["breach"] for one in document["steps"]} == {False}
    once = cli.run("transform", mlp, "--simplify", "--fp16", "--json").document
    assert (once["reused"], once["model"]) == (2, "small")
    assert [one.name for one in (cli.home / "models").iterdir() if one.name.startswith(".")] == []


def test_steps_with_what_they_found_are_printed(cli: CommandLine, mlp: str) -> None:
    done = cli.run(
        "transform", mlp, "--int8-dynamic", "--option", "int8-dynamic.reduce_range=on", "--dim", "batch=2"
    )
    assert done.code == 0, done.err
    assert step_type("int8_dynamic").title in done.out
    assert "→" in done.out
    assert str(cli.home / "models") in done.out
    assert "Traceback" not in done.err
    assert not re.search(MADE_FROM, cli.run("inspect", mlp).out)
    name = done.out.split(":")[0]
    shown = cli.run("inspect", name).out
    assert re.search(MADE_FROM, shown)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fp16", "--int8-static"), "cannot follow FP16"),  # the order of the flags is that of the steps
        (("--fix-dims", "--dim", "bath=2"), "no free dimension `bath`"),
        (("--int8-static", "--calibration", "no/rows.npz"), "no data at"),
        (("--fp16", "--calibration", "rows.npz"), "no step calibrates"),
    ],
)
def test_wrong_usage_is_one_line_and_makes_nothing(
    cli: CommandLine, mlp: str, arguments: tuple[str, ...], words: str
) -> None:
    done = cli.run("transform", mlp, *arguments)
    assert done.code == 2, done.err
    assert words in done.err
    assert len(done.err.strip().splitlines()) <= 2
    assert not list((cli.home / "models").glob("*")) if (cli.home / "models").exists() else True


def test_a_model_that_no_tool_can_treat_is_said_with_json(cli: CommandLine, tmp_path: Path) -> None:
    done = cli.run(
        "transform", str(tiny_models.truncated(tmp_path / "broken.onnx")), "--fp16", "--json", "--quiet"
    )
    assert done.code == 2
    assert done.document["error"]["type"] == "ModelError"
    assert "Traceback" not in done.err


def test_every_step_has_its_flag_in_the_help(cli: CommandLine) -> None:
    done = cli.run("transform", "-h")
    assert done.code == 0
    for one in STEPS:
        assert one.flag in done.out


# --- where a copy goes ------------------------------------------------------------------------------------


def record_of(folder: Path, **variant: Any) -> ModelRecord:
    path = tiny_models.external_data(folder / "m.onnx")
    (folder / "m.config").write_text("operators")
    info: Any = {"external_data": [{"location": "weights.bin"}]}
    facts = {"variant": {"files": ["m.config"], **variant}}
    return ModelRecord(
        content_sha256="a", sha256="a", name="m", path=str(path), source="variant", info=info, details=facts
    )


def test_a_copy_takes_along_what_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    record = record_of(tmp_path / "from")
    written = copy_out(record, tmp_path / "to" / "renamed.onnx")
    assert [Path(one).name for one in written] == ["renamed.onnx", "weights.bin", "m.config"]
    assert (tmp_path / "to" / "weights.bin").stat().st_size > 0
    (tmp_path / "folder").mkdir()
    assert copy_out(record, tmp_path / "folder")[0] == str(tmp_path / "folder" / "m.onnx")
    with pytest.raises(SpecError, match=r"must end in `\.onnx`"):
        copy_out(record, tmp_path / "x.ort")


# --- comparisons of variants by name ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, ModelRecord, ModelRecord]:
    """A model and something that is known as its variant; nothing is transformed."""
    folder = tmp_path_factory.mktemp("family")
    store = Store(folder / "home" / STORE_NAME)
    root = import_file(store, tiny_models.mlp(folder / "root.onnx"), name="root", source="file")
    facts = {"variant": {"root": root.content_sha256, "root_name": "root", "steps": [], "precision": "fp32"}}
    path = tiny_models.mlp(folder / "other.onnx", hidden=8)
    variant = import_file(store, path, name="lean", source="variant", details=facts)
    return store, root, variant


def test_a_variant_keeps_its_model_and_takes_the_workload(
    family: tuple[Store, ModelRecord, ModelRecord],
) -> None:
    store, root, variant = family
    refs, given = ["preset:default", "variant:lean"], {"batch_size": "4"}
    for model in (None, root.path, "root"):
        default, lean = named(refs, model=model, given=given, session=Session(store))
        assert default.model.path in (root.path, "root")
        assert (lean.model.path, lean.model.sha256) == (variant.path, variant.sha256)
        assert (default.workload.batch_size, lean.workload.batch_size) == (4, 4)
    against = baseline_of("variant:lean", default, given, Session(store))
    assert (against.spec.model.path, against.spec.workload.batch_size) == (variant.path, 4)
    alone = spec_from_dict(spec_data(config_from("variant:lean", store), root.path, {}))
    assert alone.model.path == variant.path


def test_models_of_two_families_are_not_compared(
    family: tuple[Store, ModelRecord, ModelRecord], tmp_path: Path
) -> None:
    store, _, _ = family
    import_file(store, tiny_models.conv(tmp_path / "conv.onnx"), name="conv", source="file")
    with pytest.raises(SpecError, match="variants"):
        named(["preset:default", "variant:lean"], model="conv", given={}, session=Session(store))


def test_a_name_of_no_variant_offers_the_nearest(family: tuple[Store, ModelRecord, ModelRecord]) -> None:
    store, _, _ = family
    with pytest.raises(SpecError, match=r"`laen`.*`lean`"):
        config_from("variant:laen", store)
    with pytest.raises(SpecError, match="`root`"):
        config_from("variant:root", store)


def test_an_original_and_its_variant_are_measured_in_one_comparison(
    family: tuple[Store, ModelRecord, ModelRecord], tmp_path: Path
) -> None:
    store, root, variant = family
    line = CommandLine(tmp_path, store.folder)
    who = ("compare", root.path, "--candidate", "variant:lean")
    done = line.run(*who, "--runs", "40", "--warmup-runs", "2", "--json", "--quiet")
    assert done.code in (0, EXIT_UNDECIDED), done.err
    models = {trial["model"]["sha256"] for trial in done.document["trials"]}
    assert models == {root.content_sha256, variant.content_sha256}
    assert any("`root`" in note for trial in done.document["trials"] for note in trial["notes"])


# --- inputs and names -------------------------------------------------------------------------------------


def test_a_model_with_a_number_of_its_own_is_transformed_with_feeds(cli: CommandLine, tmp_path: Path) -> None:
    scalar = str(tiny_models.scalar(tmp_path / "scalar.onnx"))
    args = ("transform", scalar, "--simplify", "--feed", "sr=16000", "--feed", "x=random:1..2")
    document = cli.run(*args, "--json").document
    (step,) = document["steps"]
    told = {one["name"]: one["values"] for one in step["variant"]["fed"]}
    assert told == {"x": "random, 1 to 2 (requested)", "sr": "16000"}
    again = cli.run(*args, "--name", "mine")
    assert again.code == 0, again.err
    assert "16000" in again.out
    assert "`mine`" in again.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--name", "../../etc/x"), "is no name for a model"),
        (("--name", "digits_cnn"), "is the name of a sample model"),
        (("--dim", "foo=4"), "no free dimension `foo`"),
        (("--feed", "y=1"), "no input `y`"),
        (("--feed", "nowhere.npz"), "no input file"),
        (("--feed", "x=random:9..1"), "must run upwards"),
    ],
)
def test_what_cannot_be_is_told_while_somebody_else_has_the_machine(
    cli: CommandLine, mlp: str, args: tuple[str, ...], words: str
) -> None:
    with MachineQueue(cli.queue).turn("Ada", "measure resnet"):
        done = cli.run("transform", mlp, "--fp16", *args)
    assert done.code == 2, done.err
    assert words in done.err
    assert "waiting" not in done.err


def outlier(path: Path) -> str:
    """One weight is so large that INT8 has no step left for the others, and what it makes is not used."""
    first, second = tiny_models.weights("w1", [16, 32]), np.ones((32, 4), np.float32)
    large = np.array(numpy_helper.to_array(first))
    large[0, 0], second[0] = 1e4, 0
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "first"),
        helper.make_node("MatMul", ["h", "w2"], ["y"], "second"),
    ]
    stored = [tiny_models.constant("w1", large), tiny_models.constant("w2", second)]
    shapes = [tiny_models.value(name, ["batch", size]) for name, size in (("x", 16), ("y", 4))]
    return str(tiny_models.save(path, nodes, shapes[:1], shapes[1:], stored))


def test_an_error_beyond_the_tolerance_is_marked_where_it_stands(cli: CommandLine, tmp_path: Path) -> None:
    model = outlier(tmp_path / "outlier.onnx")
    made = cli.run("transform", model, "--int8-dynamic", "--name", "off", "--wide")
    assert made.code == 0, made.err
    assert OUTPUTS_DIFFER in made.out
    (step,) = cli.run("transform", model, "--int8-dynamic", "--json").document["steps"]
    assert step["guard"]["breach"] is True
    assert step["guard"]["precision"] == "int8"
