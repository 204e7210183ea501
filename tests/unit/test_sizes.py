"""Sizes that nobody gave: of the last run, what a file says of them, and what names tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.evidence.measurement import Trial
from core.run.sizes import Size, default_sizes, with_known_sizes
from core.show.words import sizes_words
from core.spec import TrialSpec, sizes, spec_from_dict
from core.store import Store
from tests.builders import model
from tests.unit.test_fields import images

NO_SIZES = (
    *("[1e9]", "[-320, 320]", "[" * 10_000, "[999999999, x]", "99999", "0", "", "null", "true", "640 px"),
    *("[]", "{}", '{"height": 640}', "[640, 640, 640, 640]", "[[640], 640]", "NaN", "640\x00", "9" * 5000),
)


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"imgsz": "[320, 640]"}, {"x:2": 320, "x:3": 640}),
        ({"imgsz": "320"}, {"x:2": 320, "x:3": 320}),
        ({"imgsz": "(480, 640)"}, {"x:2": 480, "x:3": 640}),
        ({"imgsz": "[500, 640]", "stride": "32"}, {"x:2": 512, "x:3": 640}),
        ({"image_size": "480x640"}, {"x:2": 480, "x:3": 640}),
        ({"input_size": "[3, 480, 640]"}, {"x:2": 480, "x:3": 640}),
        (
            {"preprocessor_config": '{"size": {"shortest_edge": 256}, "crop_size": 224}'},
            {"x:2": 224, "x:3": 224},
        ),
        ({"preprocessor_config": '{"size": {"height": 384, "width": 512}}'}, {"x:2": 384, "x:3": 512}),
        ({"imgsz": "[999999999, x]", "image_size": "96"}, {"x:2": 96, "x:3": 96}),
        ({"imgsz": "[320, 320]", "stride": "65536"}, {"x:2": 320, "x:3": 320}),
        *(({"imgsz": text}, {}) for text in NO_SIZES),
        ({}, {}),
    ],
)
def test_a_file_names_the_sides_of_its_images(metadata: dict[str, str], found: dict[str, int]) -> None:
    info: Any = {**images("x:0", 3, "x:2", "x:3"), "metadata": metadata}
    assert sizes.image_sides_in_metadata(info) == found


def test_a_stride_rounds_a_guessed_side_up() -> None:
    info: Any = {**images("x:0", 3, "x:2", "x:3"), "metadata": {"stride": "64"}}
    assert sizes.suggested_sizes(["x:2"], info) == {"x:2": 256}


@pytest.mark.parametrize("text", NO_SIZES)
def test_what_is_no_size_of_an_image_is_ignored_and_said(text: str) -> None:
    info: Any = {**images("x:0", 3, "x:2", "x:3"), "metadata": {"imgsz": text}}
    assert sizes.ignored_sizes_note(info).startswith("`imgsz: ")
    assert len(sizes.ignored_sizes_note(info)) < 200
    assert sizes.suggested_sizes(["x:2"], info) == {"x:2": 224}


def test_nothing_is_said_of_metadata_that_make_sense_or_do_not_matter() -> None:
    sides: Any = {
        **images("x:0", 3, "x:2", "x:3"),
        "metadata": {"imgsz": "320", "stride": "[32]", "names": "{"},
    }
    assert sizes.ignored_sizes_note(sides) == ""
    assert sizes.ignored_sizes_note({**sides, "free_dims": []}) == ""
    wrong: Any = {**sides, "metadata": {"imgsz": "`a`", "stride": "-1"}}
    assert sizes.ignored_sizes_note(wrong) == (
        "`imgsz:  a ` and `stride: -1` in the model's metadata are ignored: "
        "they are no plausible sizes of an image."
    )


def inputs(metadata: dict[str, str] | None = None, /, **shapes: list[int | str]) -> Any:
    """A model's inputs by name."""
    named = [{"name": name, "dtype": "int64", "shape": shape} for name, shape in shapes.items()]
    free = dict.fromkeys(dim for shape in shapes.values() for dim in shape if isinstance(dim, str))
    return {"inputs": named, "free_dims": list(free), "batch_dim": "batch", "metadata": metadata or {}}


def test_inputs_of_a_transformer_take_their_usual_sizes() -> None:
    info = inputs(
        input_ids=["batch", "input_ids:1"],
        attention_mask=["batch", "past_length + 1"],
        token_type_ids=["batch", "n"],
        pixel_values=["batch", "num_channels", "pixel_values:2", "pixel_values:3"],
        decoder_input_ids=["batch", "decoded"],
        other=["batch", "free"],
        **{"past_key_values.0.key": ["batch", 4, "past_length", "past_key_values.0.key:3"]},
    )
    told = {dim: (one.size, one.why) for dim, one in sizes.sizes_from_input_names(info).items()}
    assert told == {
        "input_ids:1": (128, "input_ids"),
        "n": (128, "token_type_ids"),
        "num_channels": (3, "pixel_values"),
        "pixel_values:2": (224, "pixel_values"),
        "pixel_values:3": (224, "pixel_values"),
        "decoded": (128, "decoder_input_ids"),
        "past_length": (0, "past_key_values.0.key"),
    }


@pytest.mark.parametrize(
    ("metadata", "size"),
    [
        ({"max_position_embeddings": "64"}, 64),
        ({"model_max_length": "512"}, 128),
        ({"max_length": "-5"}, 128),
        ({"max_length": "1e30"}, 128),
    ],
)
def test_a_text_is_no_longer_than_the_file_allows(metadata: dict[str, str], size: int) -> None:
    info = inputs(metadata, input_ids=["batch", "n"])
    assert sizes.suggested_sizes(["n"], info) == {"n": size}


def test_an_image_that_a_file_names_counts_before_the_usual_one() -> None:
    shape: list[int | str] = ["batch", 3, "height", "width"]
    info = inputs({"imgsz": "[320, 640]"}, pixel_values=shape)
    assert sizes.suggested_sizes(["height", "width"], info) == {"height": 320, "width": 640}
    info = inputs({"stride": "48"}, pixel_values=shape)
    assert sizes.suggested_sizes(["height"], info) == {"height": 240}


@pytest.mark.parametrize(
    ("dim", "size"),
    [("sequence", 128), ("past_length", 0), ("past_length + 1", 1), ("past + seq", 128), ("anything", 16)],
)
def test_a_name_tells_a_size_to_start_from(dim: str, size: int) -> None:
    assert sizes.guessed_size(dim, images("x:0", dim)) == size


def test_options_can_be_pasted() -> None:
    assert sizes.options({"seq": 128, "past + 1": 1}) == "--dim seq=128 --dim 'past + 1=1'"


# --- remembered ---------------------------------------------------------------------------------------------

FREE = ("batch", "side", "past", "past + 1", "other")
INFO: Any = {**images(*FREE), "batch_dim": "batch", "content_sha256": "b" * 64}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "m.onnx").touch()
    return Store(tmp_path / "s.db")


@pytest.fixture
def ask(store: Store, tmp_path: Path) -> Callable[..., TrialSpec]:
    """A configuration of the model `m`, with sizes."""

    def spec(**dims: int) -> TrialSpec:
        data = {"model": {"path": str(tmp_path / "m.onnx")}, "workload": {"dims": dims}}
        return spec_from_dict(data)

    return spec


def inspected(*_: Any, **__: Any) -> Any:
    """The reply of the worker that inspects the model."""
    return INFO


def ran(store: Store, spec: TrialSpec, *, state: Any = "COMPLETE", at: float = 1.0) -> None:
    trial = f"{at}{state}"
    model = {"model_name": "m", "model_sha256": INFO["content_sha256"]}
    ended: Any = {"created_at": at, "finished_at": at, "result": {}}
    store.create_trial(
        Trial(id=trial, kind="measure", state=state, spec=spec.to_dict(), key=trial, **model, **ended)
    )


def test_what_a_run_lacks_is_as_in_the_last_complete_run_of_the_model(
    store: Store, ask: Callable[..., TrialSpec]
) -> None:
    ran(store, ask(side=8, past=2, other=9), at=1)
    ran(store, ask(side=16, past=3, other=7), at=2)
    ran(store, ask(), at=3)  # input from a file: it says nothing
    ran(store, ask(side=99), state="FAIL", at=4)
    [spec], filled = with_known_sizes([ask(past=5)], store, inspected)
    assert spec.workload.dims == {"past": 5, "side": 16, "other": 7, "past + 1": 6}
    assert {dim: one.source for dim, one in filled.items()} == {
        "side": "last run",
        "other": "last run",
        "past + 1": "sum",
    }
    assert spec.workload.batch_size is None  # 1, unless somebody gives it
    assert sizes_words(filled) == "side=16, other=7, as in the last run; past + 1=6, sum"


def test_a_size_that_nobody_knows_stays_missing(store: Store, ask: Callable[..., TrialSpec]) -> None:
    asked = ask()
    assert with_known_sizes([asked], store, inspected) == ([asked], {})
    ran(store, ask(side=16))
    [spec], _ = with_known_sizes([asked], store, inspected, varied=["side"])
    assert spec == asked


def test_configurations_of_one_comparison_get_the_same_sizes(
    store: Store, ask: Callable[..., TrialSpec]
) -> None:
    ran(store, ask(side=16, past=3, other=7))
    one, two = with_known_sizes([ask(), ask(side=8)], store, inspected)[0]
    assert one.workload.dims == two.workload.dims == {"side": 8, "past": 3, "past + 1": 4, "other": 7}


def test_a_proposal_takes_the_last_run_then_the_file_then_a_guess(
    store: Store, ask: Callable[..., TrialSpec]
) -> None:
    info: Any = {**images("x:0", 3, "x:2", "x:3"), "metadata": {"imgsz": "320"}}
    record = model(content="b" * 64, info=info)

    def found() -> dict[str, Size]:
        return default_sizes(["x:2", "free"], record, store)

    assert found() == {"x:2": Size(size=320, source="file"), "free": Size(size=16, source="guess")}
    ran(store, ask(**{"x:2": 64}))
    assert found()["x:2"] == Size(size=64, source="last run")
    variant = model("v", "c" * 64, info=info, details={"variant": {"root": "b" * 64}})
    assert default_sizes(["x:2"], variant, store)["x:2"].size == 64
