from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.wire.errors import ModelError, SpecError
from core.worker.session.feeds import generate_inputs, make_feeds, sample_count
from tests.builders import feed_plan, one_input
from tests.reading import tells


@dataclass
class Declared:
    name: str
    type: str


ORT_NAMES = {"float32": "float", "float64": "double"}


def make(plan: Any) -> dict[str, Any]:
    return feeds_of(plan).arrays


def feeds_of(plan: Any) -> Any:
    declared = [
        Declared(one["name"], f"tensor({ORT_NAMES.get(one['dtype'], one['dtype'])})")
        for one in plan["inputs"]
    ]
    return make_feeds(plan, declared)


# -- random ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float16", 0, 1),
        ("float32", 0, 1),
        ("float64", 0, 1),
        ("bool", 0, 1),
        ("uint8", 0, 255),
        ("int8", -128, 127),
        ("int16", 0, 1),
        ("uint16", 0, 1),
        ("int32", 0, 1),
        ("uint32", 0, 1),
        ("int64", 0, 1),
        ("uint64", 0, 1),
    ],
)
def test_random_values_fill_the_range_of_their_type(dtype: str, low: float, high: float) -> None:
    array = make(feed_plan(one_input(dtype=dtype, shape=(500, 8))))["x"]
    assert array.dtype == np.dtype(dtype)
    assert array.shape == (500, 8)
    assert array.flags.c_contiguous
    assert low <= float(array.min()) < float(array.max()) <= high
    if dtype in ("uint8", "int8"):
        assert float(array.max()) - float(array.min()) > 200


def test_random_values_depend_on_name_and_seed_and_not_on_the_order_of_inputs() -> None:
    a, b = one_input("a"), one_input("b")
    forward, backward = make(feed_plan(a, b)), make(feed_plan(b, a))
    assert np.array_equal(forward["a"], backward["a"])
    assert not np.array_equal(forward["a"], forward["b"])
    assert not np.array_equal(forward["a"], make(feed_plan(a, b, seed=1))["a"])
    assert not np.array_equal(make(feed_plan(a, seed=-1))["a"], forward["a"])


def test_the_first_row_of_a_larger_batch_is_the_row_of_a_batch_of_one() -> None:
    small, large = (make(feed_plan(one_input(shape=(rows, 3))))["x"] for rows in (1, 8))
    assert np.array_equal(small[0], large[0])


def test_given_ranges_are_kept() -> None:
    ids = make(feed_plan(one_input(dtype="int64", shape=(200, 8), low=3, high=7)))["x"]
    assert set(np.unique(ids)) == {3, 4, 5, 6}
    floats = make(feed_plan(one_input(shape=(200, 8), low=-2.0, high=5.0)))["x"]
    assert -2 <= floats.min() < -1 < 4 < floats.max() <= 5


def test_a_range_without_a_number_is_refused() -> None:
    with pytest.raises(SpecError, match=r"int64.* 7 "):
        make(feed_plan(one_input(dtype="int64", low=7, high=7)))


def test_a_scalar_has_no_axes() -> None:
    array = make(feed_plan(one_input(dtype="int64", shape=())))["x"]
    assert isinstance(array, np.ndarray)
    assert array.shape == ()


def test_bfloat16_is_the_upper_half_of_the_float32() -> None:
    feeds = feeds_of(feed_plan(one_input(dtype="bfloat16", shape=(2, 2)), values={"x": [[1, 2], [0.5, -4]]}))
    assert feeds.arrays["x"].dtype == np.uint16
    assert feeds.arrays["x"].tolist() == [[0x3F80, 0x4000], [0x3F00, 0xC080]]
    assert feeds.dtypes["x"] == "bfloat16"


@pytest.mark.parametrize("kind", ["seq(tensor(float))", "map(string,float)", "tensor(int4)"])
def test_inputs_that_are_no_numbers_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ModelError, match="`x`"):
        make_feeds(feed_plan(one_input()), [Declared("x", kind)])


def test_an_input_the_plan_does_not_know_is_refused() -> None:
    with pytest.raises(SpecError, match="`y`"):
        make_feeds(feed_plan(one_input()), [Declared("y", "tensor(float)")])


def test_a_size_nobody_gave_is_refused() -> None:
    with pytest.raises(SpecError, match="size"):
        make(feed_plan(one_input(shape=(2, -1))))


# -- fixed values ------------------------------------------------------------------------------------------


def test_a_fixed_number_is_cast_and_broadcast() -> None:
    arrays = make(feed_plan(one_input("sr", "int64", ()), one_input("x"), values={"sr": 16000.0, "x": 2}))
    assert arrays["sr"].dtype == np.int64
    assert arrays["sr"].shape == ()
    assert int(arrays["sr"]) == 16000
    assert arrays["x"].tolist() == [[2.0] * 3] * 4
    assert arrays["x"].flags.c_contiguous


def test_a_fixed_value_brings_the_size_of_an_open_dimension() -> None:
    assert make(feed_plan(one_input(shape=(-1, 3)), values={"x": [[1, 2, 3], [4, 5, 6]]}))["x"].shape == (
        2,
        3,
    )
    assert make(feed_plan(one_input(shape=(2, -1)), values={"x": 7}))["x"].shape == (2, 1)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", "sixteen"),
        ("int64", 1.5),
        ("uint8", 256),
        ("uint8", -1),
        ("int8", [[1, 2, 300]]),
        ("bool", 2),
        ("float16", 1e6),
        ("float32", {"a": 1}),
        ("float32", None),
        ("float32", [[1, 2], [3]]),
        ("float32", []),
        ("int32", float("nan")),
    ],
)
def test_a_value_the_type_cannot_hold_is_refused(dtype: str, value: Any) -> None:
    with pytest.raises(SpecError, match="`x`"):
        make(feed_plan(one_input(dtype=dtype), values={"x": value}))


def test_a_value_of_another_shape_is_refused_with_both_shapes() -> None:
    with pytest.raises(SpecError, match=r"\[2\], .*\[4, 3\]"):
        make(feed_plan(one_input(), values={"x": [1, 2]}))


# -- .npz --------------------------------------------------------------------------------------------------


def npz(folder: Path, **arrays: Any) -> str:
    path = folder / "feeds.npz"
    np.savez(path, **arrays)
    return str(path)


def test_npz_feeds_the_first_rows_of_each_array(tmp_path: Path) -> None:
    x, mask = np.arange(30, dtype=np.float32).reshape(10, 3), np.ones((10, 2), np.int64)
    plan = feed_plan(
        one_input(), one_input("mask", "int64", (4, 2)), source="npz", path=npz(tmp_path, x=x, mask=mask)
    )
    feeds = feeds_of(plan)
    assert np.array_equal(feeds.arrays["x"], x[:4])
    assert feeds.arrays["mask"].shape == (4, 2)
    assert feeds.notes == []


def test_npz_with_fewer_rows_than_the_batch_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros((32, 3), np.float32))
    with pytest.raises(SpecError, match=r" 32 .* 64"):
        make(feed_plan(one_input(shape=(64, 3)), source="npz", path=path))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 5), np.float32)}, r"shape \[4, 5\], the model wants \[4, 3\]"),
        ({"x": np.zeros((4, 3), np.complex64)}, "is complex64"),
        ({"x": np.zeros((4, 3), "<U3")}, "is <U3"),
        ({"x": np.zeros((4, 3), np.float32), "y": np.zeros(2)}, "an array `y`"),
        ({"xx": np.zeros((4, 3), np.float32), "z": np.zeros(2)}, "Did you mean `xx`"),
    ],
)
def test_npz_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make(feed_plan(one_input(), source="npz", path=npz(tmp_path, **arrays)))


def test_npz_floats_are_not_rounded_to_integers(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros((4, 3), np.float32))
    with pytest.raises(SpecError, match=r"float32, .*int64"):
        make(feed_plan(one_input(dtype="int64"), source="npz", path=path))


def test_npz_types_that_fit_are_converted_and_the_conversion_is_noted(tmp_path: Path) -> None:
    feeds = feeds_of(feed_plan(one_input(), source="npz", path=npz(tmp_path, x=np.ones((4, 3)))))
    assert feeds.arrays["x"].dtype == np.float32
    assert [tells(one, "`x`", "float64", "float32") for one in feeds.notes] == [True]


def test_npz_integers_out_of_range_are_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.full((4, 3), 2**40))
    with pytest.raises(SpecError, match="int32"):
        make(feed_plan(one_input(dtype="int32"), source="npz", path=path))


def test_medmnist_layout_feeds_a_model_with_one_input(tmp_path: Path) -> None:
    images = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4)
    path = npz(tmp_path, test_images=images, test_labels=np.zeros((5, 1), np.uint8))
    feeds = feeds_of(feed_plan(one_input(shape=(2, 1, 4, 4)), source="npz", path=path))
    assert np.allclose(feeds.arrays["x"][:, 0], images[:2] / 255)
    assert [tells(one, "uint8", "`x`", "[0, 1]") for one in feeds.notes] == [True]


def test_medmnist_colour_images_get_the_layout_of_the_input(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    plan = feed_plan(one_input(shape=(2, 3, 4, 5)), source="npz", path=npz(tmp_path, test_images=images))
    array = make(plan | {"image_mean": [0.5] * 3, "image_std": [0.5] * 3})["x"]
    assert np.allclose(array, np.moveaxis(images[:2] / 255, 3, 1) * 2 - 1, atol=1e-6)
    assert array.flags.c_contiguous


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.npz"
    bad.write_text("no zip")
    for path, message in ((bad, "cannot be read"), (tmp_path / "none.npz", "no input file")):
        with pytest.raises(SpecError, match=message):
            make(feed_plan(one_input(), source="npz", path=str(path)))


def test_a_truncated_npz_is_refused(tmp_path: Path) -> None:
    path = Path(npz(tmp_path, x=np.zeros((400, 3), np.float32)))
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(SpecError, match="read"):
        make(feed_plan(one_input(), source="npz", path=str(path)))


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(SpecError, match="plain"):
        make(feed_plan(one_input(), source="npz", path=path))


# -- images ------------------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    from PIL import Image

    folder = tmp_path / "pictures"
    folder.mkdir()
    for index, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
        Image.new("RGB", (20, 10), colour).save(folder / f"{index}.png")
    (folder / "notes.txt").write_text("not an image")
    return folder


def image_plan(path: Path, shape: tuple[int, ...], dtype: str = "float32", **changes: Any) -> Any:
    return feed_plan(one_input("image", dtype, shape), source="images", path=str(path), **changes)


def test_images_are_resized_ordered_and_normalised_like_imagenet(pictures: Path) -> None:
    array = make(image_plan(pictures, (3, 3, 8, 6)))["image"]
    assert array.shape == (3, 3, 8, 6)
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    assert np.allclose(array[0, :, 0, 0], [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], atol=1e-5)
    assert array[1, 1].min() > 2
    assert array[2, 2].min() > 2


def test_images_in_nhwc_and_uint8_keep_their_bytes(pictures: Path) -> None:
    array = make(image_plan(pictures, (2, 8, 6, 3), "uint8"))["image"]
    assert array.dtype == np.uint8
    assert array[1, 0, 0].tolist() == [0, 255, 0]


def test_grey_images_are_scaled_only(pictures: Path) -> None:
    array = make(image_plan(pictures, (1, 1, 8, 6)))["image"]
    assert np.allclose(array, 76 / 255, atol=1e-3)  # red is 0.299 of white


def test_statistics_of_the_plan_win(pictures: Path) -> None:
    plan = image_plan(pictures, (1, 3, 8, 6), image_mean=[0.5] * 3, image_std=[0.5] * 3)
    assert np.allclose(make(plan)["image"][0, :, 0, 0], [1, -1, -1])


@pytest.mark.parametrize("changes", [{"image_mean": [0.5]}, {"image_std": [0.5]}, {"image_std": [1, 0, 1]}])
def test_statistics_that_do_not_fit_the_channels_are_refused(pictures: Path, changes: Any) -> None:
    with pytest.raises(SpecError, match=" 3 "):
        make(image_plan(pictures, (1, 3, 8, 6), **changes))


def test_fewer_images_than_the_batch_are_refused(pictures: Path) -> None:
    with pytest.raises(SpecError, match=r"3 .* 4"):
        make(image_plan(pictures, (4, 3, 8, 6)))
    with pytest.raises(SpecError, match="1 images"):
        make(image_plan(pictures / "0.png", (2, 3, 8, 6)))


def test_images_for_a_model_without_an_image_input_are_refused(pictures: Path) -> None:
    with pytest.raises(SpecError, match="images"):
        make(image_plan(pictures, (2, 16)))


def test_unreadable_and_missing_images_are_refused(pictures: Path, tmp_path: Path) -> None:
    (pictures / "0.png").write_bytes(b"\x89PNG not really")
    with pytest.raises(SpecError, match=r"`0\.png`"):
        make(image_plan(pictures, (1, 3, 8, 6)))
    with pytest.raises(SpecError, match="nothing"):
        make(image_plan(tmp_path / "nowhere", (1, 3, 8, 6)))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SpecError, match="images"):
        make(image_plan(empty, (1, 3, 8, 6)))


def test_other_inputs_beside_the_image_stay_random(pictures: Path) -> None:
    plan = feed_plan(
        one_input("image", shape=(1, 3, 8, 6)), one_input("ids", "int64"), source="images", path=str(pictures)
    )
    assert make(plan)["ids"].shape == (4, 3)


# -- samples -----------------------------------------------------------------------------------------------


def test_rows_are_counted_on_the_axis_that_carries_them() -> None:
    assert sample_count({"a": [4, 3], "b": [7, 4]}, {"a": 0, "b": 1}) == 4
    assert sample_count({"a": [4, 3]}, {}) == 1


def test_inputs_with_different_rows_are_refused() -> None:
    with pytest.raises(SpecError, match="`a` 4, `b` 5"):
        sample_count({"a": [4, 3], "b": [5]}, {"a": 0, "b": 0})


# -- together with other inputs ----------------------------------------------------------------------------


def test_a_range_of_its_own_is_drawn_whatever_feeds_the_others(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.ones((4, 3), np.float32))
    ids = one_input("ids", "int64", (4, 5), low=7, high=10, drawn=True)
    arrays = make(feed_plan(one_input(), ids, source="npz", path=str(tmp_path / "rows.npz")))
    assert (arrays["x"] == 1).all()
    assert set(np.unique(arrays["ids"])) <= {7, 8, 9}
    wide = one_input("ids", "int64", (1000,), low=0, high=30522, drawn=True)
    assert make(feed_plan(wide))["ids"].max() > 29000


def test_inputs_that_a_dataset_does_not_hold() -> None:
    inputs = [
        one_input(),
        one_input("sr", "int64", ()),
        one_input("m", "int32", (2,), low=3, high=4, drawn=True),
    ]
    found = generate_inputs(inputs, {"sr": 16000}, 0)
    assert found.keys() == {"sr", "m"}
    assert (found["sr"].dtype, found["sr"].shape, found["sr"].item()) == (np.int64, (), 16000)
    assert found["m"].tolist() == [3, 3]
