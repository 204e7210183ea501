"""Datasets of every layout, good and bad: the samples, arrays and labels that are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from core import wire
from core.spec.datasets import dataset_from_dict, dataset_plan
from core.wire.errors import SpecError
from core.worker.data.datasets import _shares, open_dataset
from core.worker.data.datasets.labels import check_range, from_array, from_text

RECORDED = Path(__file__).resolve().parents[1] / "data"
DIGITS = Path(__file__).parents[2] / "sample_models" / "digits_test.npz"


def plan(path: Path, **changes: Any) -> wire.DatasetPlan:
    return dataset_plan(dataset_from_dict({"path": str(path), **changes}))


def image_plan(
    name: str = "image", shape: Sequence[int] = (4, 1, 8, 8), dtype: str = "float32"
) -> wire.InputPlan:
    return {"name": name, "dtype": dtype, "shape": list(shape), "low": None, "high": None}


def fed(dataset: wire.DatasetPlan, *inputs: wire.InputPlan, batch: int = 4) -> dict[str, np.ndarray]:
    """All samples of every input, without padding."""
    axes = {one["name"]: 0 for one in inputs}
    parts = list(open_dataset(dataset).batches(inputs, axes, batch))
    return {one["name"]: np.concatenate([p.feeds[one["name"]][: p.rows] for p in parts]) for one in inputs}


def labels_of(dataset: wire.DatasetPlan, *inputs: wire.InputPlan) -> list[int]:
    axes = {one["name"]: 0 for one in inputs}
    return [int(label) for part in open_dataset(dataset).batches(inputs, axes, 4) for label in part.labels]  # type: ignore[union-attr]


def refusal(dataset: wire.DatasetPlan, *inputs: wire.InputPlan) -> str:
    with pytest.raises(SpecError) as caught:
        fed(dataset, *(inputs or (image_plan(),)))
    assert caught.value.hint
    return caught.value.message


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def picture(path: Path, color: Any, *, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)
    return path


# --- .npz ---------------------------------------------------------------------------------------------------


def test_sample_comes_as_the_model_was_trained() -> None:
    data = plan(DIGITS)
    with np.load(DIGITS) as stored:
        images, labels = stored["test_images"], stored["test_labels"]
    assert (fed(data, image_plan(), batch=100)["image"] == (images.astype(np.float32) / 255)[:, None]).all()
    assert labels_of(data, image_plan()) == labels[:, 0].tolist()
    found = open_dataset(data)
    assert (found.rows, found.labels is not None, found.class_names) == (360, True, [])
    assert found.notes == ["The samples are those of the split `test`."]


def test_last_batch_is_filled_up_and_says_how_many_rows_count() -> None:
    parts = list(open_dataset(plan(DIGITS, limit=10)).batches([image_plan()], {"image": 0}, 4))
    assert [part.rows for part in parts] == [4, 4, 2]
    assert {part.feeds["image"].shape for part in parts} == {(4, 1, 8, 8)}
    assert [len(part.labels) for part in parts if part.labels is not None] == [4, 4, 2]


@pytest.mark.parametrize(("split", "rows"), [("", 5), ("test", 5), ("val", 3), ("train", 7)])
@pytest.mark.parametrize("names", [("{}_images", "{}_labels"), ("x_{}", "y_{}")])
def test_splits_of_medmnist_and_keras(tmp_path: Path, split: str, rows: int, names: tuple[str, str]) -> None:
    sizes = {"train": 7, "val": 3, "test": 5}
    arrays = {names[0].format(one): np.zeros((size, 8, 8), np.uint8) for one, size in sizes.items()}
    arrays |= {names[1].format(one): np.full((size, 1), size) for one, size in sizes.items()}
    path = save(tmp_path / "d.npz", **arrays)
    assert labels_of(plan(path, split=split), image_plan()) == [rows] * rows


def test_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    medmnist = save(tmp_path / "a.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    assert "no split `val`, but splits train" in refusal(plan(medmnist, split="val"))
    plain = save(tmp_path / "b.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[0, 1])
    assert "no splits" in refusal(plan(plain, split="val"))


@pytest.mark.parametrize(
    ("data", "labels"), [("images", "labels"), ("x", "y"), ("X", "y"), ("image", "target")]
)
def test_plain_pairs(tmp_path: Path, data: str, labels: str) -> None:
    path = save(tmp_path / "d.npz", **{data: np.zeros((3, 8, 8), np.uint8), labels: np.array([2, 0, 1])})
    assert labels_of(plan(path), image_plan()) == [2, 0, 1]


def test_arrays_named_as_the_inputs_are_fed_as_they_are(tmp_path: Path) -> None:
    ids = np.arange(12, dtype=np.int64).reshape(3, 4)
    path = save(tmp_path / "d.npz", input_ids=ids, mask=np.ones((3, 4), np.int32), labels=[1, 0, 1])
    inputs = [image_plan("input_ids", (2, -1), "int64"), image_plan("mask", (2, -1), "int64")]
    found = fed(plan(path), *inputs, batch=2)
    assert (found["input_ids"] == ids).all()
    assert found["mask"].dtype == np.int64
    assert "no array for the input `masks`, but `input_ids`, `mask`. Did you mean `mask`?" in refusal(
        plan(path), inputs[0], image_plan("masks", (2, -1), "int64")
    )


def test_input_without_rows_is_fed_whole_each_time(tmp_path: Path) -> None:
    path = save(tmp_path / "d.npz", x=np.zeros((4, 2), np.float32), rate=np.int64(16), labels=[0, 1, 0, 1])
    inputs = [image_plan("x", (2, 2)), image_plan("rate", (), "int64")]
    parts = list(open_dataset(plan(path)).batches(inputs, {"x": 0}, 2))
    assert [int(part.feeds["rate"]) for part in parts] == [16, 16]


def test_rows_on_another_axis_are_taken_there(tmp_path: Path) -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    path = save(tmp_path / "d.npz", x=x, labels=np.arange(5))
    parts = list(open_dataset(plan(path)).batches([image_plan("x", (3, 2))], {"x": 1}, 2))
    assert (np.concatenate([part.feeds["x"][:, : part.rows] for part in parts], axis=1) == x).all()


def test_floats_get_the_channel_axis_and_keep_their_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 8, 8)).astype(np.float32)
    flat = save(tmp_path / "a.npz", images=values, labels=[0, 1, 2])
    assert (fed(plan(flat, preprocessing={"mean": [0.5]}), image_plan())["image"] == values[:, None]).all()
    last = save(tmp_path / "b.npz", images=np.repeat(values[..., None], 3, axis=3), labels=[0, 1, 2])
    assert fed(plan(last), image_plan(shape=(4, 3, 8, 8)))["image"].shape == (3, 3, 8, 8)


def test_bytes_for_an_input_of_bytes_stay_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    path = save(tmp_path / "d.npz", images=images, labels=[0, 1, 2])
    found = fed(plan(path), image_plan(shape=(4, 8, 8, 3), dtype="uint8"))["image"]
    assert (found == images).all()
    assert found.dtype == np.uint8
    assert "takes bytes" in refusal(
        plan(path, preprocessing={"mean": [1.0]}), image_plan(shape=(4, 3, 8, 8), dtype="uint8")
    )


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_bytes_of_either_layout_become_either_layout(tmp_path: Path, layout: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    stored = images if layout == "hwc" else np.moveaxis(images, 3, 1)
    path = save(tmp_path / "d.npz", images=stored, labels=[0, 1, 2])
    scaled = images.astype(np.float32) / 255
    assert (fed(plan(path), image_plan(shape=(4, 8, 8, 3)))["image"] == scaled).all()
    assert (fed(plan(path), image_plan(shape=(4, 3, 8, 8)))["image"] == np.moveaxis(scaled, 3, 1)).all()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"images": np.zeros((3, 8, 8), np.uint8), "labels": [0, 1]},
            "has shape [3, 8, 8], but there are 2 samples",
        ),
        ({"images": np.zeros((2, 8, 8), np.uint8), "labels": [0.5, 1.0]}, "A label is a class, but got 0.5"),
        (
            {"images": np.zeros((2, 8, 8), np.uint8), "labels": [np.nan, 1.0]},
            "A label is a class, but got nan",
        ),
        (
            {"images": np.zeros((2, 8, 8), np.uint8), "labels": [[1, 1, 0], [0, 0, 1]]},
            "several classes",
        ),
        ({"images": np.zeros((0, 8, 8), np.uint8), "labels": np.zeros(0, int)}, "holds no samples"),
        ({"images": np.zeros((2, 9, 8), np.float32), "labels": [0, 1]}, "the model wants [rows, 1, 8, 8]"),
        ({"images": np.zeros((2, 1, 8, 8), np.complex64), "labels": [0, 1]}, "is complex64"),
        ({"labels": [0, 1]}, "has no data"),
    ],
)
def test_bad_arrays_are_refused_in_words(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    assert words in refusal(plan(save(tmp_path / "d.npz", **arrays)))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut"])
def test_file_that_is_no_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "d.npz"
    path.write_bytes(content)
    assert "cannot be read as an .npz" in refusal(plan(path))


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = save(tmp_path / "d.npz", images=np.array([object()]), labels=[0])
    assert "cannot be read as an .npz of plain arrays" in refusal(plan(path))


def test_damaged_npz_is_refused(tmp_path: Path) -> None:
    whole = DIGITS.read_bytes()
    path = tmp_path / "d.npz"
    path.write_bytes(whole[:3000] + bytes(50) + whole[3050:])
    assert "cannot be read" in refusal(plan(path))


# --- labels -------------------------------------------------------------------------------------------------


def test_labels_of_every_form_are_numbers() -> None:
    assert from_array(np.array([[3], [1]], np.uint8)).numbers.tolist() == [3, 1]
    assert from_array(np.array([True, False])).numbers.tolist() == [1, 0]
    assert from_array(np.array([2.0, 0.0])).numbers.tolist() == [2, 0]
    assert from_array(np.eye(3)[[2, 0]]).numbers.tolist() == [2, 0]
    named = from_array(np.array(["cat", "dog", "ant"]))
    assert (named.numbers.tolist(), named.names) == ([1, 2, 0], ["ant", "cat", "dog"])


def test_classes_that_are_numbers_are_the_models_own() -> None:
    found = from_text(["10", "9", "2"])
    assert (found.numbers.tolist(), found.names) == ([10, 9, 2], [])
    assert "class numbers" in found.notes[0]


def test_labels_out_of_range_are_refused_with_the_row() -> None:
    check_range(np.array([0, 9]), 10)
    with pytest.raises(
        SpecError, match=r"classes 0 to 9, but sample 1 has the label 12 \(1 of 2 samples"
    ) as caught:
        check_range(np.array([0, 12]), 10)
    assert "Choose the model" in caught.value.hint
    with pytest.raises(SpecError) as caught:
        check_range(np.array([1, 10, 3]), 10)
    assert "count from 1" in caught.value.hint
    with pytest.raises(SpecError, match="label -1"):
        check_range(np.array([-1]), 10)


# --- chosen samples -----------------------------------------------------------------------------------------


def test_limit_keeps_the_share_of_each_class_and_the_order() -> None:
    data = plan(DIGITS, limit=100, seed=3)
    found, whole = labels_of(data, image_plan()), labels_of(plan(DIGITS), image_plan())
    for number in range(10):
        assert abs(found.count(number) - whole.count(number) * 100 / 360) < 1
    assert len(found) == 100
    assert labels_of(data, image_plan()) == found
    assert open_dataset(data).sha256() != open_dataset(plan(DIGITS, limit=100, seed=4)).sha256()
    images = iter(fed(plan(DIGITS), image_plan())["image"])
    assert all(any((one == other).all() for other in images) for one in fed(data, image_plan())["image"])


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.data())
def test_shares_add_up_and_stay_next_to_the_exact_ones(counts: list[int], data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, sum(counts)))
    found = _shares(np.array(counts), limit)
    assert found.sum() == limit
    assert (np.abs(found - np.array(counts) * limit / sum(counts)) < 1 + 1e-9).all()
    assert (found <= counts).all()


def test_hash_tells_rows_and_labels_but_not_preprocessing(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8)
    one = open_dataset(plan(save(tmp_path / "a.npz", images=images, labels=[0, 1, 2]))).sha256()
    same = plan(save(tmp_path / "b.npz", images=images, labels=[0, 1, 2]), preprocessing={"mean": [0.5]})
    assert open_dataset(same).sha256() == one
    assert open_dataset(plan(save(tmp_path / "c.npz", images=images, labels=[0, 1, 1]))).sha256() != one
    assert open_dataset(plan(save(tmp_path / "d.npz", images=images + 1, labels=[0, 1, 2]))).sha256() != one


# --- files --------------------------------------------------------------------------------------------------

RGB = image_plan(shape=(4, 3, 8, 8))


# --- identical samples, and parts of one dataset -----------------------------------------------------------


def test_a_row_is_the_same_in_every_file_whatever_its_label_and_array_are_called(tmp_path: Path) -> None:
    images = np.arange(4 * 16, dtype=np.uint8).reshape(4, 4, 4)
    one = save(tmp_path / "a.npz", test_images=images, test_labels=np.zeros(4, int))
    other = save(tmp_path / "b.npz", images=images[[2, 0]], labels=np.ones(2, int))
    hashes = open_dataset(plan(one)).row_hashes()
    assert len(set(hashes.tolist())) == 4
    assert open_dataset(plan(other)).row_hashes().tolist() == hashes[[2, 0]].tolist()
    assert open_dataset(plan(one, limit=2)).row_hashes().tolist() != hashes.tolist()


def test_files_are_rows_wherever_they_lie(tmp_path: Path) -> None:
    for folder, colors in (("a", (1, 2, 3)), ("b", (3, 4))):
        for color in colors:
            picture(tmp_path / folder / f"{color}.png", (color, 0, 0))
    one, other = (open_dataset(plan(tmp_path / name)).row_hashes().tolist() for name in ("a", "b"))
    assert one[2] == other[0]
    assert len({*one, *other}) == 4


@pytest.mark.parametrize("seed", [0, 7])
def test_the_part_to_calibrate_on_and_the_rest_are_all_rows_and_share_none(seed: int) -> None:
    part, rest = (
        open_dataset(plan(DIGITS, part=name, calibration_share=0.2, seed=seed))
        for name in ("calibration", "rest")
    )
    assert sorted([*part.chosen, *rest.chosen]) == list(range(360))
    assert part.rows == 72
    assert part.labels is not None
    assert np.bincount(part.labels).tolist() == pytest.approx([7.2] * 10, abs=1)  # each class its share
    few = open_dataset(plan(DIGITS, part="rest", calibration_share=0.2, seed=seed, limit=30))
    assert few.rows == 30
    assert set(few.chosen) <= set(rest.chosen)


def test_a_part_without_a_row_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "d.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.zeros(2, int))
    assert "leaves none for calibration" in refusal(plan(path, part="calibration", calibration_share=0.1))
    with pytest.raises(SpecError, match="between 0 and 1"):
        plan(path, part="rest", calibration_share=1.0)


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    root = tmp_path / "classes"
    picture(root / "red" / "1.png", (255, 0, 0))
    picture(root / "blue" / "1.png", (0, 0, 255), size=(20, 10))
    picture(root / "blue" / "deeper" / "2.jpg", (0, 0, 255))
    (root / "red" / "notes.txt").write_text("no image")
    (root / "green").mkdir()
    (root / ".hidden").mkdir()
    return root


def test_folders_are_classes_in_the_order_of_the_alphabet(classes: Path) -> None:
    data = plan(classes)
    assert data["kind"] == "folders"
    found = open_dataset(data)
    assert (found.rows, found.class_names) == (3, ["blue", "green", "red"])
    assert any("no images in `green`" in note for note in found.notes)
    assert labels_of(data, RGB) == [0, 0, 2]
    assert fed(data, RGB)["image"][2, :, 0, 0].tolist() == [1.0, 0.0, 0.0]


def test_folders_of_splits_are_looked_into(tmp_path: Path) -> None:
    for split in ("train", "val"):
        picture(tmp_path / split / split / "1.png", 0)
    assert open_dataset(plan(tmp_path)).class_names == ["val"]
    assert open_dataset(plan(tmp_path, split="train")).class_names == ["train"]
    assert "no folder `test`" in refusal(plan(tmp_path, split="test"), RGB)


def test_images_alone_have_no_labels(tmp_path: Path) -> None:
    for name in ("b", "a"):
        picture(tmp_path / f"{name}.png", 0)
    data = plan(tmp_path)
    assert data["kind"] == "images"
    assert open_dataset(data).labels is None
    assert open_dataset(plan(tmp_path / "a.png")).rows == 1
    (tmp_path / "empty").mkdir()
    assert "no images at" in refusal(plan(tmp_path / "empty"), RGB)


@pytest.mark.parametrize(
    "text", ["a.png,cat\nb.png,dog\n", "path,label\na.png,cat\n\nb.png,dog\n", "\ufeffa.png;cat\nb.png;dog\n"]
)
def test_csv_of_paths_and_labels(tmp_path: Path, text: str) -> None:
    for name in ("a", "b"):
        picture(tmp_path / f"{name}.png", 0)
    file = tmp_path / "rows.csv"
    file.write_text(text, encoding="utf-8")
    assert labels_of(plan(file), RGB) == [0, 1]
    assert open_dataset(plan(file)).class_names == ["cat", "dog"]


def test_csv_finds_its_columns_by_name(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0)
    file = tmp_path / "rows.csv"
    file.write_text("id,class,filename\n17,3,a.png\n")
    assert labels_of(plan(file), RGB) == [3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"path,label\n", "names no image"),
        (b"a.png,1\ngone.png,2\n", "1 of 2 images of `rows.csv` are missing, the first in line 2"),
        (b"a.png,1\na.png\n", "Line 2 of `rows.csv` has no label"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b'"a.png,1\n', "cannot be read as a CSV"),
    ],
)
def test_bad_csv_is_refused_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    picture(tmp_path / "a.png", 0)
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    assert words in refusal(plan(file), RGB)


def test_file_that_is_no_image_is_named(classes: Path) -> None:
    (classes / "red" / "broken.png").write_bytes(b"not a picture")
    assert "`broken.png` cannot be read as an image" in refusal(plan(classes), RGB)


def test_deep_images_are_refused_and_not_cut_off(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "deep.png")
    assert "more than 8 bits" in refusal(plan(tmp_path), RGB)


def test_images_need_one_input_that_takes_them(classes: Path) -> None:
    assert "Images fit a model with one input" in refusal(plan(classes), image_plan("x", (4, 10)))
    assert "but it has `a`" in refusal(plan(classes), image_plan("a"), image_plan("b"))


# --- preprocessing ------------------------------------------------------------------------------------------


def test_images_go_straight_to_the_inputs_size(tmp_path: Path) -> None:
    picture(tmp_path / "wide.png", (10, 20, 30), size=(50, 20))
    found = fed(plan(tmp_path), image_plan(shape=(1, 6, 4, 3)))["image"]
    assert found.shape == (1, 6, 4, 3)
    assert found[0, 0, 0] == pytest.approx([10 / 255, 20 / 255, 30 / 255])


def test_resize_and_crop_are_torchvisions(tmp_path: Path) -> None:
    """Against what Resize(20), CenterCrop(15), ToTensor and Normalize of torchvision made of this image."""
    (recorded,) = RECORDED.glob("torchvision_*_resize_crop.npy")
    noise = np.random.default_rng(0).integers(0, 256, (37, 61, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    steps = {"resize": 20, "crop": 15, "mean": mean, "std": std}
    found = fed(plan(tmp_path, preprocessing=steps), image_plan(shape=(1, 3, 15, 15)))["image"]
    assert found[0] == pytest.approx(np.load(recorded), abs=1e-6)


def test_channels_scale_and_statistics(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (10, 20, 30))
    one = image_plan(shape=(1, 3, 8, 8))

    def pixel(**steps: Any) -> list[float]:
        return [float(v) for v in fed(plan(tmp_path, preprocessing=steps), one)["image"][0, :, 0, 0]]

    assert pixel(scale=255.0) == [10.0, 20.0, 30.0]
    assert pixel(scale=255.0, channels="bgr") == [30.0, 20.0, 10.0]
    gray = pixel(scale=255.0, channels="gray")
    assert gray == [gray[0]] * 3
    assert pixel(scale=255.0, mean=[10.0], std=[2.0, 4.0, 5.0][:1]) == [0.0, 5.0, 10.0]
    assert pixel(scale=255.0, mean=[1.0, 2.0, 3.0], std=[1.0, 2.0, 3.0]) == [9.0, 9.0, 9.0]


@pytest.mark.parametrize(
    ("steps", "shape", "words"),
    [
        ({"resize": 12}, (1, 3, 8, 8), "an image is 12×12, but `image` takes 8×8"),
        ({"crop": 30}, (1, 3, 30, 30), "A square of 30 pixels cannot be cut out of an image of 16×16"),
        ({"channels": "rgb"}, (1, 1, 8, 8), "`image` has one channel"),
        ({"mean": [1.0, 2.0]}, (1, 3, 8, 8), "has 2 numbers, but `image` has 3 channels"),
    ],
)
def test_preprocessing_that_does_not_fit_is_refused(
    tmp_path: Path, steps: dict[str, Any], shape: tuple[int, ...], words: str
) -> None:
    picture(tmp_path / "a.png", 0, size=(16, 16))
    assert words in refusal(plan(tmp_path, preprocessing=steps), image_plan(shape=shape))


def test_free_sizes_are_those_of_the_images(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0, size=(12, 9))
    free = image_plan(shape=(1, 3, -1, -1))
    assert fed(plan(tmp_path), free)["image"].shape == (1, 3, 9, 12)
    picture(tmp_path / "b.png", 0, size=(7, 7))
    axes = {"image": 0}
    with pytest.raises(SpecError, match="come to different sizes, 7×7 and 12×9"):
        list(open_dataset(plan(tmp_path)).batches([free], axes, 2))


# --- the spec -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": " "}, "`dataset.path` is empty"),
        ({"limit": 0}, "at least 1 sample"),
        ({"threshold": 1.5}, "probability from 0 to 1"),
        ({"threshold": float("nan")}, "probability from 0 to 1"),
        ({"positive_class": -1}, "must be 0 or more"),
        ({"kind": "zip"}, "`kind` must be"),
        ({"preprocessing": {"resize": 0}}, "between 1 and"),
        ({"preprocessing": {"resize": 200, "crop": 224}}, "`preprocessing.crop` must be at most"),
        ({"preprocessing": {"scale": 0.0}}, "above 0 and finite"),
        ({"preprocessing": {"std": [0.0]}}, "`preprocessing.std` must be above 0"),
        ({"preprocessing": {"mean": [1.0], "std": [1.0, 1.0]}}, "has 1 channels, but `std` has 2"),
        ({"preprocessing": {"sacle": 1.0}}, "Unknown key `preprocessing.sacle`. Did you mean `scale`?"),
    ],
)
def test_spec_refuses_what_no_data_can_have(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        dataset_from_dict({"path": "d.npz", **changes})
    assert words in caught.value.message


@given(
    st.fixed_dictionaries(
        {"path": st.text("abc/.", min_size=1)},
        optional={
            "split": st.sampled_from(["", "train", "val", "test"]),
            "limit": st.integers(1, 10**9),
            "seed": st.integers(0, 2**32 - 1),
            "positive_class": st.integers(0, 10**6) | st.text("abc", min_size=1),
            "threshold": st.floats(0, 1),
            "preprocessing": st.fixed_dictionaries(
                {},
                optional={
                    "resize": st.integers(1, 1000),
                    "channels": st.sampled_from(["auto", "rgb", "bgr", "gray"]),
                    "scale": st.floats(0.1, 1000),
                    "mean": st.lists(st.floats(-10, 10), max_size=4),
                },
            ),
        },
    )
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_spec_survives_its_own_data(data: dict[str, Any]) -> None:
    spec = dataset_from_dict(data)
    assert dataset_from_dict(spec.to_dict()) == spec


def test_path_that_is_not_there_is_refused_before_a_worker_starts(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no data at"):
        plan(tmp_path / "nothing")


def test_relative_path_counts_from_ortunes_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(plan(Path("sample_models/digits_test.npz"))["path"]) == DIGITS
