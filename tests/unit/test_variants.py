"""Variants of real tiny models, changed in this process: chains, stored facts, families, comparisons."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from core.evidence.measurement import Trial
from core.run import variants
from core.show.sheets.variants import listed
from core.spec import TrialSpec, WorkloadSpec, spec_from_dict
from core.spec.datasets import DatasetSpec
from core.spec.steps import Step
from core.store import ModelRecord, Store, library
from core.wire.errors import Cancelled, ModelError, SpecError
from core.worker.make.transform import transform
from core.worker.models import inspect_model
from tests import builders, tiny_models
from tests.reading import numbers, tells
from tests.scripts import execute


class InProcess:
    """The jobs of a worker, done here; it records its requests and can break one step."""

    def __init__(self, breaks: str = "", error: Exception | None = None) -> None:
        self.plans: list[Any] = []
        self.breaks, self.error = breaks, error

    def __call__(self, job: str, payload: Any, **_: Any) -> dict[str, Any]:
        if job == "inspect":
            return dict(inspect_model(payload["path"]))
        assert job == "transform"
        self.plans.append(payload)
        if payload["step"] == self.breaks:
            Path(payload["output"]).write_bytes(b"half a file")
            raise self.error or ModelError("The checker says no.", hint="Try another step.")
        return dict(transform(payload, lambda *_: None))

    @property
    def steps(self) -> list[str]:
        return [plan["step"] for plan in self.plans]


@pytest.fixture(autouse=True)
def forks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that has ONNX Runtime loaded tests whether a model kills it, not a new Python."""
    folder = tmp_path_factory.mktemp("tried")

    def crashes(file: Path) -> bool:
        load = f"ort.InferenceSession({str(file)!r}, providers=['CPUExecutionProvider'])"
        return execute(f"import onnxruntime as ort\n{load}", folder).returncode < 0

    monkeypatch.setattr("core.worker.make.transform.crashes_by_default", crashes)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    return Store()


@pytest.fixture
def mlp(store: Store, tmp_path: Path) -> ModelRecord:
    return library.import_file(
        store, tiny_models.mlp(tmp_path / "mlp.onnx"), name="mlp", source="file", run=InProcess()
    )


def make(store: Store, record: ModelRecord, *steps: Step, run: Any = None, **given: Any) -> variants.Made:
    values: dict[str, Any] = {"dims": {}, "calibration": None}
    return variants.make_chain(store, record, steps, run=run or InProcess(), **(values | given))


def invented(name: str, content: str, *, age: float = 0.0, **variant: Any) -> ModelRecord:
    """A record without a file."""
    details = {"variant": variant} if variant else {}
    return builders.model(
        name, content, source="variant" if variant else "file", created_at=age, details=details
    )


# --- making -----------------------------------------------------------------------------------------------


def test_a_chain_makes_a_model_of_each_step_and_says_how(store: Store, mlp: ModelRecord) -> None:
    run = InProcess()
    made = make(store, mlp, Step("simplify"), Step("fp16"), run=run)
    first, last = made.records
    assert run.steps == ["simplify", "fp16"]
    assert made.reused == 0
    assert (first.name, last.name, last.source) == ("mlp-simplify", "mlp-simplify+fp16", "variant")
    shas = [first.content_sha256, last.content_sha256]
    assert made.to_dict() == {"records": shas, "reused": 0, "notes": []}
    assert Path(last.path).parent == store.folder / "models" / last.content_sha256
    facts = variants.variant_of(last)
    assert facts is not None
    assert (facts["root"], facts["parent"]) == (mlp.content_sha256, first.content_sha256)
    assert (facts["root_name"], facts["parent_name"]) == ("mlp", "mlp-simplify")
    assert [one["kind"] for one in facts["steps"]] == ["simplify", "fp16"]
    assert facts["steps"][1]["options"] == dict(Step("fp16").options)
    assert facts["precision"] == variants.precision_of_model(last) == "fp16"
    assert 0 < facts["error"]["max_rel"] < 0.01
    assert facts["size_bytes"] == last.info["size_bytes"] < facts["size_before_bytes"]
    assert facts["nodes_after"] == last.info["nodes"]
    assert facts["error_seeds"] == 3
    assert facts["tool"]
    assert facts["tool_version"]
    assert facts["onnxruntime"]
    assert store.model(last.content_sha256) == last
    assert tells(variants.lineage(last), "`mlp`", "simplify", "FP16")


def test_the_check_is_against_the_original_on_several_batches(store: Store, mlp: ModelRecord) -> None:
    run = InProcess()
    made = make(store, mlp, Step("simplify"), Step("fp16"), run=run)
    plan = run.plans[1]
    assert plan["path"] == made.records[0].path
    assert plan["reference"] == mlp.path
    assert [feed["batch_size"] for feed in plan["feeds"]] == [1, 2, 4]
    assert len({feed["seed"] for feed in plan["feeds"]}) == 3
    assert any("batch 1, 2, 4" in note for note in made.result.details["variant"]["notes"])


def test_what_was_made_before_is_not_made_again(store: Store, mlp: ModelRecord) -> None:
    first, run = make(store, mlp, Step("simplify"), Step("fp16")), InProcess()
    again = make(store, mlp, Step("simplify"), Step("fp16"), run=run)
    assert run.steps == []
    assert again.reused == 2
    assert [one.content_sha256 for one in again.records] == [one.content_sha256 for one in first.records]
    other = make(store, mlp, Step("simplify"), Step("fp16", {"keep_io_types": False}), run=run)
    assert run.steps == ["fp16"]
    assert (other.reused, other.result.info["inputs"][0]["dtype"]) == (1, "float16")


def test_a_variant_whose_file_is_gone_or_changed_is_made_again(store: Store, mlp: ModelRecord) -> None:
    made = make(store, mlp, Step("fp16")).result
    Path(made.path).unlink()
    assert make(store, mlp, Step("fp16")).reused == 0
    tiny_models.conv(Path(made.path))
    again = make(store, mlp, Step("fp16"))
    assert (again.reused, again.result.content_sha256) == (0, made.content_sha256)
    assert inspect_model(again.result.path)["content_sha256"] == made.content_sha256


def test_a_chain_goes_on_from_a_variant(store: Store, mlp: ModelRecord) -> None:
    simple = make(store, mlp, Step("simplify")).result
    last = make(store, simple, Step("fp16"), name="small").result
    assert last.name == "small"
    facts = last.details["variant"]
    assert facts["root"] == mlp.content_sha256
    assert [one["kind"] for one in facts["steps"]] == ["simplify", "fp16"]
    with pytest.raises(SpecError, match="FP16"):
        make(store, last, Step("int8_dynamic"))


def test_a_step_that_fails_leaves_nothing_and_what_was_made_before_it_stays(
    store: Store, mlp: ModelRecord
) -> None:
    with pytest.raises(ModelError, match="checker"):
        make(store, mlp, Step("simplify"), Step("fp16"), run=InProcess("fp16"))
    assert [one.name for one in store.models()] == ["mlp", "mlp-simplify"]
    assert [one.name for one in (store.folder / "models").iterdir()] == [store.models()[1].content_sha256]
    with pytest.raises(Cancelled):
        make(store, mlp, Step("fp16"), run=InProcess("fp16", Cancelled("Stopped.")))
    assert make(store, mlp, Step("simplify"), Step("fp16")).reused == 1


def test_sizes_that_nobody_gave_are_named_where_the_model_does_not_like_them(
    store: Store, mlp: ModelRecord
) -> None:
    with pytest.raises(ModelError) as caught:
        make(store, mlp, Step("fp16"), run=InProcess("fp16"))
    assert caught.value.hint
    assert "sizes" in caught.value.hint
    with pytest.raises(ModelError) as caught:
        make(store, mlp, Step("fp16"), run=InProcess("fp16"), dims={"batch": 3})
    assert caught.value.hint


def test_fixed_dimensions_are_fed_as_they_are_fixed(store: Store, tmp_path: Path) -> None:
    path = tiny_models.tokens(tmp_path / "tokens.onnx")
    record = library.resolve_model(store, str(path), run=InProcess())
    run = InProcess()
    made = make(store, record, Step("fix_dims", {"dims": {"sequence": 5}}), Step("fp16"), run=run)
    assert made.records[0].info["free_dims"] == ["batch"]
    assert {feed["inputs"][0]["shape"][1] for plan in run.plans for feed in plan["feeds"]} == {5}
    assert store.model(record.content_sha256) is not None  # the original joined the library
    free = make(store, record, Step("simplify"), run=run)
    assert {feed["inputs"][0]["shape"][1] for feed in run.plans[-1]["feeds"]} == {variants.ASSUMED_DIM}
    assert any("sequence 8" in note for note in free.result.details["variant"]["notes"])


def test_a_dimension_that_is_not_free_is_refused_before_any_work(store: Store, mlp: ModelRecord) -> None:
    run = InProcess()
    with pytest.raises(SpecError, match=r"`batches`\. .*`batch`"):
        make(store, mlp, Step("fp16"), run=run, dims={"batches": 2})
    assert run.steps == []


def test_other_calibration_data_make_another_variant(store: Store, mlp: ModelRecord, tmp_path: Path) -> None:
    def rows(seed: int) -> None:
        values = np.random.default_rng(seed).random((32, 16), dtype=np.float32)
        np.savez(tmp_path / "rows.npz", x=values)

    rows(0)
    data = DatasetSpec(path=str(tmp_path / "rows.npz"))
    step = Step("int8_static", {"calibration_rows": 16})
    first, run = make(store, mlp, step, calibration=data).result, InProcess()
    assert first.details["variant"]["calibration"] == data.to_dict()
    assert make(store, mlp, step, calibration=data, run=run).reused == 1
    rows(1)
    assert make(store, mlp, step, calibration=data, run=run).reused == 0
    assert run.plans[0]["calibration"]["path"] == str(tmp_path / "rows.npz")
    assert (
        make(store, mlp, Step("fp16"), calibration=data, run=run).result.details["variant"]["calibration"]
        is None
    )
    assert run.plans[-1]["calibration"] is None
    with pytest.raises(SpecError, match="data"):
        make(store, mlp, step, calibration=DatasetSpec(path=str(tmp_path / "none.npz")))


def test_a_folder_of_data_is_told_by_what_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"one")
    before = variants.data_digest(tmp_path)
    assert variants.data_digest(tmp_path) == before
    (tmp_path / "a" / "2.png").write_bytes(b"two")
    assert variants.data_digest(tmp_path) != before
    assert variants.data_digest(tmp_path / "a" / "1.png") != variants.data_digest(tmp_path / "a" / "2.png")


def test_a_model_that_was_here_already_learns_how_it_is_made(
    store: Store, mlp: ModelRecord, tmp_path: Path
) -> None:
    made = make(store, mlp, Step("fp16")).result
    kept = tmp_path / "mine.onnx"
    kept.write_bytes(Path(made.path).read_bytes())
    library.remove_model(store, made.content_sha256)
    library.import_files(store, [kept], name="mine", run=InProcess())
    again = make(store, mlp, Step("fp16"))
    assert again.result.content_sha256 == made.content_sha256  # the converter writes the same bytes again
    assert (again.result.name, again.result.source) == ("mine", "upload")
    assert variants.variant_of(again.result) is not None
    assert len(store.models()) == 2


# --- inputs -----------------------------------------------------------------------------------------------


def feeds_of(make_model: Callable[[Path], Path], folder: Path, **dims: int) -> tuple[list[list[int]], str]:
    info = inspect_model(str(make_model(folder / "m.onnx")))
    feeds, note = variants.output_check_inputs(info, dims)
    return [feed["inputs"][0]["shape"] for feed in feeds], note


def test_the_feeds_of_the_check(tmp_path: Path) -> None:
    assert feeds_of(tiny_models.mlp, tmp_path, batch=3) == ([[3, 16]] * 3, "")
    assert feeds_of(tiny_models.fixed_batch, tmp_path) == ([[2, 16]] * 3, "")
    shapes, note = feeds_of(tiny_models.tokens, tmp_path)
    assert shapes == [[1, 8], [2, 8], [4, 8]]
    assert numbers(note) == [1, 2, 4, 8]
    assert tells(note, "batch", "sequence")
    assert feeds_of(tiny_models.tokens, tmp_path, sequence=5)[0] == [[1, 5], [2, 5], [4, 5]]
    shapes, _ = feeds_of(tiny_models.unnamed_dims, tmp_path)
    assert [shape[0] for shape in shapes] == [1, 2, 4]


def test_image_sides_that_nobody_gave_are_tried_in_multiples_that_models_take(tmp_path: Path) -> None:
    info = inspect_model(str(tiny_models.halved(tmp_path / "m.onnx")))
    tried = variants.assumed_sizes(info, {})
    assert [(one["height"], one["width"]) for one in tried] == [(32, 32), (64, 64), (224, 224), (8, 8)]
    assert variants.assumed_sizes(info, {"height": 96, "width": 96}) == [{}]
    assert variants.assumed_sizes(info, {"height": 96})[0] == {"width": 32}
    info["metadata"] = {"imgsz": "[320, 640]", "stride": "64"}
    tried = variants.assumed_sizes(info, {})
    assert [(one["height"], one["width"]) for one in tried] == [(320, 640), (64, 64), (256, 256)]


# --- families ---------------------------------------------------------------------------------------------


def variant(root: str, parent: str, *kinds: str, **more: Any) -> dict[str, Any]:
    steps = [Step(kind).to_dict() for kind in kinds]
    return {"root": root, "root_name": root, "parent": parent, "precision": "fp32", "steps": steps} | more


def relatives() -> list[ModelRecord]:
    return [
        invented("simple", "b", age=2, **variant("a", "a", "simplify")),
        invented("original", "a", age=1),
        invented("half", "c", age=4, **variant("a", "b", "simplify", "fp16")),
        invented("eight", "d", age=3, **variant("a", "a", "int8_dynamic")),
        invented("orphan", "e", age=5, **variant("a", "gone", "simplify", "int4")),
    ]


def test_the_tree_of_a_family() -> None:
    branches = variants.tree(relatives())
    assert [(one.record.name, one.depth, one.prefix, one.parent_known) for one in branches] == [
        ("original", 0, "", True),
        ("simple", 1, "├─ ", True),
        ("half", 2, "│  └─ ", True),
        ("eight", 1, "├─ ", True),
        ("orphan", 1, "└─ ", False),
    ]
    without = [one for one in relatives() if one.name != "original"]
    assert [(one.record.name, one.depth) for one in variants.tree(without)] == [
        ("simple", 0),
        ("half", 1),
        ("eight", 0),
        ("orphan", 0),
    ]


def test_a_family_begins_with_its_original(store: Store) -> None:
    everybody = relatives()
    for one in [*everybody, invented("stranger", "z")]:
        store.put_model(one)
    for one in everybody:
        assert [each.name for each in variants.family(store, one)] == [
            "original",
            "simple",
            "eight",
            "half",
            "orphan",
        ]
    outside = invented("not kept", "y")
    assert variants.family(store, outside) == [outside]


def test_the_original_is_known_while_its_file_is_there(store: Store, mlp: ModelRecord) -> None:
    made = make(store, mlp, Step("fp16")).result
    assert variants.root_of(store, made) == mlp
    assert variants.original(store, mlp) == mlp
    Path(mlp.path).unlink()
    assert variants.original(store, made) is None
    assert variants.root_of(store, made) == made


@pytest.mark.parametrize(
    ("operators", "dtype", "precision"),
    [
        ({"Conv": 1}, "float32", "fp32"),
        ({"Conv": 1}, "float16", "fp16"),
        ({"QuantizeLinear": 1}, "float32", "int8"),
        ({"MatMulNBits": 1}, "float32", "int4"),
        ({"Gather": 1}, "int64", "fp32"),
    ],
)
def test_what_a_model_that_is_no_variant_computes_in(operators: Any, dtype: str, precision: str) -> None:
    record = invented("m", "m")
    facts: Any = {
        **record.info,
        "op_counts": operators,
        "inputs": [{"name": "x", "dtype": dtype, "shape": [1]}],
    }
    assert variants.precision_of_model(replace(record, info=facts)) == precision


# --- removing ---------------------------------------------------------------------------------------------


def put_trial(store: Store, record: ModelRecord, spec: TrialSpec | None = None, **changes: Any) -> Trial:
    spec = spec or spec_from_dict({"model": {"path": record.path, "sha256": record.sha256}})
    facts = {"model_name": record.name, "model_sha256": record.content_sha256, "created_at": 1.0}
    trial = builders.trial(secrets.token_hex(8), spec, **(facts | changes))
    store.create_trial(trial)
    return trial


@pytest.mark.parametrize(
    ("kind", "state"), [("measure", "WAITING"), ("reference", "RUNNING"), ("profile", "WAITING")]
)
@pytest.mark.parametrize("resolved", [True, False])
def test_a_model_in_use_is_not_removed(
    store: Store, mlp: ModelRecord, kind: str, state: str, resolved: bool
) -> None:
    content = mlp.content_sha256 if resolved else ""
    trial = put_trial(store, mlp, kind=kind, state=state, model_sha256=content)
    (use,) = variants.unfinished_trials_of(store, mlp.content_sha256)
    assert trial.id[:8] in use
    with pytest.raises(ModelError, match=rf"`mlp`.*{kind}"):
        library.remove_model(store, mlp.content_sha256)
    store.update_trial(trial.id, state="CANCELLED")
    library.remove_model(store, mlp.content_sha256)
    assert store.model(mlp.content_sha256) is None


def test_an_original_stays_while_it_has_variants(store: Store, mlp: ModelRecord) -> None:
    first, last = make(store, mlp, Step("simplify"), Step("fp16")).records
    with pytest.raises(ModelError, match=r"`mlp-simplify`, `mlp-simplify\+fp16`"):
        library.remove_model(store, mlp.content_sha256)
    library.remove_model(store, first.content_sha256)  # a variant does not depend on its original
    assert not Path(first.path).exists()
    assert Path(last.path).exists()
    assert [one.parent_known for one in variants.tree(variants.family(store, mlp))] == [True, False]
    library.remove_model(store, last.content_sha256)
    library.remove_model(store, mlp.content_sha256)
    assert store.models() == []


# --- comparisons ------------------------------------------------------------------------------------------


def test_a_family_is_compared_on_the_default_with_the_original_first(store: Store, mlp: ModelRecord) -> None:
    half = make(store, mlp, Step("fp16")).result
    base = spec_from_dict(
        {"model": {"path": "x"}, "session": {"intra_op_num_threads": 1}, "workload": {"batch_size": 4}}
    )
    asked = variants.family_configurations([half, mlp], base)
    assert [one.label.split(" ")[0] for one in asked] == ["mlp", "mlp-fp16"]
    assert [one.spec.model.sha256 for one in asked] == [mlp.sha256, half.sha256]
    assert {one.spec.workload.batch_size for one in asked} == {4}
    assert {one.spec.session.intra_op_num_threads for one in asked} == {None}
    with pytest.raises(SpecError, match="model"):
        variants.family_configurations([], base)


def test_sizes_that_a_variant_has_fixed_hold_for_all(store: Store, mlp: ModelRecord) -> None:
    fixed = make(store, mlp, Step("fix_dims", {"dims": {"batch": 4}})).result
    base = spec_from_dict({"model": {"path": "x"}})
    first, second = variants.family_configurations([mlp, fixed], base)
    assert first.spec.workload.dims == {"batch": 4}
    assert second.spec.workload.dims == {}
    other = make(store, mlp, Step("fix_dims", {"dims": {"batch": 2}})).result
    with pytest.raises(SpecError, match=r"`batch`.* 2, .* 4"):
        variants.family_configurations([mlp, fixed, other], base)
    eight = spec_from_dict({"model": {"path": "x"}, "workload": {"batch_size": 8}})
    with pytest.raises(SpecError, match=r" 4, .*`batch_size`.* 8"):
        variants.family_configurations([mlp, fixed], eight)


def put_comparison(
    store: Store, trials: list[Trial], *, ratio: float, grade: str = "A", at: float = 1.0
) -> str:
    """A comparison of two trials: the second against the first."""
    compare = secrets.token_hex(8)
    baseline, candidate = trials
    contrast = builders.contrast(ratio, candidate=candidate.id, baseline=baseline.id, grade=grade)
    facts = {"model_sha256": baseline.model_sha256, "created_at": at, "result": {"contrasts": [contrast]}}
    store.create_comparison(builders.comparison({one.id: "candidate" for one in trials}, compare, **facts))
    for one in trials:
        store.update_trial(one.id, comparison=compare)
    return compare


def test_the_newest_comparison_that_was_not_rejected_tells_the_verdict(
    store: Store, mlp: ModelRecord
) -> None:
    half = make(store, mlp, Step("fp16")).result
    eight = make(store, mlp, Step("simplify")).result

    def compare(candidate: ModelRecord, spec: TrialSpec | None = None, **facts: Any) -> str:
        return put_comparison(store, [put_trial(store, mlp), put_trial(store, candidate, spec)], **facts)

    assert variants.verdicts(store, mlp.content_sha256) == {}
    compare(half, ratio=1.5, at=1)
    wanted = compare(half, ratio=2.0, at=2)
    compare(half, ratio=3.0, at=3, grade="F")
    rejected = compare(eight, ratio=4.0, at=4, grade="F")
    tuned = spec_from_dict(
        {"model": {"path": half.path, "sha256": half.sha256}, "session": {"intra_op_num_threads": 1}}
    )
    compare(half, tuned, ratio=9.0, at=5)
    found = variants.verdicts(store, mlp.content_sha256)
    assert found.keys() == {half.content_sha256, eight.content_sha256}
    assert (found[half.content_sha256]["ratio"], found[half.content_sha256]["comparison"]) == (2.0, wanted)
    assert found[half.content_sha256]["verdict"] == "FASTER"
    assert (found[eight.content_sha256]["grade"], found[eight.content_sha256]["comparison"]) == (
        "F",
        rejected,
    )
    assert variants.verdicts(store, "0" * 64) == {}


# --- names, and requested inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../etc/x", "a/b", "a\\b", ".hidden", "-o", "~root", "a\x1b[31m", "x" * 101]
)
def test_what_is_no_name_is_refused_before_anything_is_made(
    store: Store, mlp: ModelRecord, name: str
) -> None:
    run = InProcess()
    with pytest.raises(SpecError, match="name") as caught:
        make(store, mlp, Step("fp16"), run=run, name=name)
    assert caught.value.hint
    assert run.plans == []


def test_a_taken_name_is_refused_and_not_numbered_in_silence(store: Store, mlp: ModelRecord) -> None:
    small = make(store, mlp, Step("fp16"), name="small").result
    run = InProcess()
    for taken in ("small", "mlp", "digits_cnn"):
        with pytest.raises(SpecError, match="name"):
            make(store, mlp, Step("simplify"), run=run, name=taken)
    assert run.plans == []
    again = make(store, mlp, Step("fp16"), run=run, name="small")  # its own name
    assert (again.result.content_sha256, again.reused, again.notes) == (small.content_sha256, 1, ())


def test_an_original_whose_name_is_taken_says_what_it_is_called(
    store: Store, mlp: ModelRecord, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    path = tiny_models.mlp(folder / "mlp.onnx", hidden=24)
    record = library.resolve_model(store, str(path), run=InProcess())
    made = make(store, record, Step("fp16"))
    assert [tells(one, "`mlp`", "`mlp-2`") for one in made.notes] == [True]


def test_an_error_is_never_shown_with_an_exponent_that_hides_it() -> None:
    def cell(error: float) -> str:
        made = invented(
            "v", "b" * 64, root="a" * 64, parent="a" * 64, steps=[], precision="fp16", size_bytes=1
        )
        facts = {**made.details["variant"], "error": {"max_rel": error}}
        made = replace(made, details={"variant": facts})
        (row,) = listed([([made], {})]).rows
        return str(row[3])

    assert [cell(one) for one in (1.0, 2.27, 0.734, 0.0312, 6e-7)] == [
        "100 %",
        "227 %",
        "73.4 %",
        "3.12 %",
        "< 0.001 %",
    ]


def test_a_name_counts_also_where_the_chain_was_made_before(store: Store, mlp: ModelRecord) -> None:
    first = make(store, mlp, Step("fp16")).result
    again = make(store, mlp, Step("fp16"), name="half")
    assert again.reused == 1
    assert again.result.name == "half"
    assert [tells(one, f"`{first.name}`", "`half`") for one in again.notes] == [True]
    assert store.model("half") is not None
    assert store.model(first.name) is None


def test_renaming_keeps_the_model(store: Store, mlp: ModelRecord) -> None:
    half = make(store, mlp, Step("fp16"), name="half").result
    assert library.rename_model(store, half.content_sha256, " quarter ").name == "quarter"
    assert [one.name for one in store.models() if one.content_sha256 == half.content_sha256] == ["quarter"]
    with pytest.raises(SpecError, match="`mlp`"):
        library.rename_model(store, half.content_sha256, "mlp")
    with pytest.raises(ModelError):
        library.rename_model(store, "f" * 64, "gone")


def test_outputs_are_compared_on_what_is_asked_for(store: Store, tmp_path: Path) -> None:
    path = tiny_models.scalar(tmp_path / "scalar.onnx")
    record = library.import_file(store, path, name="scalar", source="file", run=InProcess())
    run = InProcess()
    asked = WorkloadSpec(feed_values={"sr": 16000, "x": "random:5..6"}, seed=3)
    found = make(store, record, Step("simplify"), run=run, workload=asked).result
    (plan,) = run.plans
    assert [one["values"] for one in plan["feeds"]] == [{"sr": 16000}] * 3
    assert [one["seed"] for one in plan["feeds"]] == [3, 4, 5]
    assert plan["feeds"][0]["inputs"][0]["low"] == 5.0
    told = {one["name"]: one["values"] for one in found.details["variant"]["fed"]}
    assert (numbers(told["x"]), told["sr"]) == ([5, 6], "16000")
    other = make(store, record, Step("simplify"), run=run, workload=WorkloadSpec())
    assert other.reused == 0  # compared on other values: the answer may be another one


def test_feeds_from_a_file_bring_their_sizes_and_are_fed_once(tmp_path: Path) -> None:
    info = inspect_model(str(tiny_models.tokens(tmp_path / "m.onnx")))
    (one,), note = variants.output_check_inputs(info, {}, WorkloadSpec(feeds="rows.npz", batch_size=3))
    assert [shape["shape"] for shape in one["inputs"]] == [[3, -1], [3, -1]]
    assert note == ""
    (first,), _ = variants.output_check_inputs(info, {}, WorkloadSpec(feeds="rows.npz"))
    assert first["batch_size"] == 1
    with pytest.raises(SpecError, match="`nope`"):
        variants.output_check_inputs(info, {}, WorkloadSpec(feed_values={"nope": 1}))


def test_a_calibration_takes_values_that_the_data_lack(store: Store, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["sr"], ["f"], "cast", to=1),
        helper.make_node("Div", ["x", "f"], ["scaled"], "divide"),
        helper.make_node("MatMul", ["scaled", "w"], ["y"], "product"),
    ]
    inputs = [tiny_models.value("x", ["batch", 4]), tiny_models.value("sr", [], "int64")]
    outputs = [tiny_models.value("y", ["batch", 3])]
    path = tiny_models.save(tmp_path / "m.onnx", nodes, inputs, outputs, [tiny_models.weights("w", [4, 3])])
    record = library.import_file(store, path, name="m", source="file", run=InProcess())
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((40, 4), np.float32))
    found = make(
        store,
        record,
        Step("int8_static"),
        calibration=DatasetSpec(path=str(tmp_path / "rows.npz")),
        workload=WorkloadSpec(feed_values={"sr": 4}),
    ).result
    error = found.details["variant"]["error"]["max_rel"]
    assert error is not None
    assert 0 < error < 0.1
