"""Input that would fill the memory, hang or break Python is refused in words, before it is read."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.spec import spec_from_yaml
from core.spec.strict_yaml import load_strict
from core.wire.errors import ModelError, SpecError, nearest
from core.wire.files import IrregularFile, expand_home, open_regular
from core.worker.data.datasets import open_dataset
from core.worker.models import inspect_model
from core.worker.models.functions import expanded_nodes
from core.worker.session.feeds import archive
from tests import in_process, tiny_models
from tests.builders import feed_plan, one_input
from tests.unit.test_datasets import plan as dataset
from tests.unit.test_feeds import make

# --- files that are none ------------------------------------------------------------------------------------


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return path


def _device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


IRREGULAR = {"a named pipe": _pipe, "a socket": _socket, "a device": _device}


@pytest.mark.parametrize("what", IRREGULAR)
@pytest.mark.parametrize("name", ["data.npz", "data.csv", "data.png"])
def test_what_is_no_file_is_no_dataset_and_no_feeds(tmp_path: Path, what: str, name: str) -> None:
    path = IRREGULAR[what](tmp_path / name)
    with pytest.raises(SpecError, match=what):
        open_dataset(dataset(path))
    if not name.endswith(".csv"):
        source = "npz" if name.endswith(".npz") else "images"
        with pytest.raises(SpecError, match=what):
            make(feed_plan(one_input(shape=(1, 3, 8, 8)), source=source, path=str(path)))


@pytest.mark.parametrize("what", IRREGULAR)
def test_what_is_no_file_is_no_image_of_a_folder(tmp_path: Path, what: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    IRREGULAR[what](tmp_path / "b.png")
    with pytest.raises(SpecError, match=what):
        make(feed_plan(one_input(shape=(2, 3, 8, 8)), source="images", path=str(tmp_path)))
    with pytest.raises(SpecError, match=what):
        open_dataset(dataset(tmp_path)).sha256()


@pytest.mark.parametrize("what", IRREGULAR)
def test_what_is_no_file_is_not_opened(tmp_path: Path, what: str) -> None:
    with pytest.raises(IrregularFile) as caught:
        open_regular(IRREGULAR[what](tmp_path / "x"))
    assert what in str(caught.value.strerror)
    (tmp_path / "y").write_bytes(b"content")
    with open_regular(tmp_path / "y") as file:
        assert file.read() == b"content"


def test_home_that_does_not_exist_stays_in_the_path() -> None:
    assert expand_home("~nosuchuser-at-all/x") == Path("~nosuchuser-at-all/x")
    assert expand_home("~/x") == Path.home() / "x"


# --- arrays -------------------------------------------------------------------------------------------------


def _header(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


MEMBERS: dict[str, tuple[bytes, str]] = {
    "8 GiB of zeros": (_header("(1073741824,)"), "take 8.0 GiB of memory, but at most"),
    "more than any memory": (_header("(4611686018427387904, 64)"), "of memory, but at most"),
    "nothing, many times": (_header("(4611686018427387904,)", "'|V0'"), "of memory, but at most"),
    "a negative size": (_header("(-1,)"), "negative size"),
    "an empty member": (b"", r"`x` in .* is empty"),
    "text": (b"no array at all", r"`x` in .* is no array"),
    "half a header": (_header("(4, 3)")[:30], "cannot be read"),
    "a header that is no text": (_header("(4, 3)").replace(b"descr", b"\xff\xff(((["), "cannot be read"),
    "objects": (_header("(4, 3)", "'|O'"), "cannot be read"),
    "another format": (b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\xff" + b" " * 99, "cannot be read"),
    "too few numbers": (_header("(4, 3)", "'<f4'") + b"\0" * 8, "cannot be read"),
}


@pytest.mark.parametrize("what", MEMBERS)
def test_arrays_are_bounded_by_their_headers(tmp_path: Path, what: str) -> None:
    member, words = MEMBERS[what]
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("x.npy", member)
    with pytest.raises(SpecError, match=words):
        make(feed_plan(one_input(), source="npz", path=str(path)))
    with pytest.raises(SpecError, match=words):
        open_dataset(dataset(path))


def test_bound_is_the_memory_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 3), np.float32))
    feeding = feed_plan(one_input(), source="npz", path=str(tmp_path / "x.npz"))
    assert make(feeding)["x"].shape == (4, 3)
    monkeypatch.setattr(archive.limits, "available_memory", lambda: 80)
    with pytest.raises(SpecError, match=r" 0\.0 MiB"):
        make(feeding)


def test_other_splits_of_a_dataset_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, test_images=np.zeros((2, 8, 8), np.uint8), test_labels=np.zeros((2, 1), np.uint8))
    with zipfile.ZipFile(path, "a") as more:
        more.writestr("train_images.npy", _header("(1073741824,)"))
    assert open_dataset(dataset(path)).rows == 2


def test_archive_of_many_members_and_an_encrypted_one_are_refused(tmp_path: Path) -> None:
    many = tmp_path / "many.npz"
    with zipfile.ZipFile(many, "w") as made:
        for number in range(10_001):
            made.writestr(f"{number}.npy", b"")
    with pytest.raises(SpecError, match=" 10001 "):
        make(feed_plan(one_input(), source="npz", path=str(many)))
    locked = tmp_path / "locked.npz"
    np.savez(locked, x=np.zeros((4, 3), np.float32))
    content = bytearray(locked.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(content)
    with pytest.raises(SpecError, match="read"):
        make(feed_plan(one_input(), source="npz", path=str(locked)))


def test_names_longer_than_a_screen_are_cut_in_messages(tmp_path: Path) -> None:
    long = "n" * 100_000
    path = tmp_path / "x.npz"
    stream = io.BytesIO()
    np.save(stream, np.zeros((4, 3), np.float32))
    with zipfile.ZipFile(path, "w") as made:
        for name in ("n" * 60_000, "m" * 60_000):
            made.writestr(f"{name}.npy", stream.getvalue())
    with pytest.raises(SpecError) as caught:
        make(feed_plan(one_input(), source="npz", path=str(path)))
    assert len(caught.value.message) < 1000
    assert nearest(long, [long]) == ""
    assert "`abd`" in nearest("abc", [long, "abd"])


def test_list_of_images_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    with path.open("wb") as file:
        file.truncate(8 << 30)  # takes no space on the disk
    with pytest.raises(SpecError, match=" 8,192 MiB"):
        open_dataset(dataset(path))


# --- models -------------------------------------------------------------------------------------------------


def _with_functions(path: Path, calls: dict[str, list[str]]) -> Path:
    """A model whose graph calls the first function; each function calls several others."""
    import onnx
    from onnx import helper

    def row(names: list[str]) -> list[onnx.NodeProto]:
        places = ["x", *(f"v{number}" for number in range(1, len(names))), "y"]
        steps = zip(names, itertools.pairwise(places), strict=True)
        return [
            helper.make_node(name, [before], [after], domain="" if name == "Relu" else "local")
            for name, (before, after) in steps
        ]

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function("local", name, ["x"], ["y"], row(called), opsets)
        for name, called in calls.items()
    ]
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [4]) for name in ("x", "y")]
    graph = helper.make_graph(row([next(iter(calls))]), "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "calls", [{"f": ["f"]}, {"f": ["g"], "g": ["h"], "h": ["Relu", "f"]}, {"a": ["Relu"], "f": ["f", "f"]}]
)
def test_function_that_calls_itself_is_refused(tmp_path: Path, calls: dict[str, list[str]]) -> None:
    with pytest.raises(ModelError, match="itself"):
        inspect_model(str(_with_functions(tmp_path / "m.onnx", calls)))


def test_functions_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    import onnx

    calls = {f"f{number}": [f"f{number + 1}"] * 4 for number in range(40)}
    path = _with_functions(tmp_path / "m.onnx", {**calls, "f40": ["Relu"]})
    assert expanded_nodes(onnx.load(path)) == 4**40
    with pytest.raises(ModelError, match=f"{4**40:,}"):
        inspect_model(str(path))
    small = _with_functions(tmp_path / "s.onnx", {"f": ["g", "g"], "g": ["Relu"] * 3})
    assert expanded_nodes(onnx.load(small)) == 6


def test_pipe_and_device_are_no_model(tmp_path: Path) -> None:
    for make_one in (_pipe, _device):
        with pytest.raises(ModelError, match="regular"):
            inspect_model(str(make_one(tmp_path / f"{make_one.__name__}.onnx")))


# --- YAML ---------------------------------------------------------------------------------------------------

HEAD = "schema: 1\nmodel: {path: m.onnx}\n"
NUMBERS = {
    "decimal": "9" * 5000,
    "hexadecimal": "0x" + "f" * 5000,
    "octal": "0" + "7" * 6000,
    "binary": "0b" + "1" * 20000,
    "base 60": ":".join(["59"] * 3000),
    "a fraction": "0." + "1" * 5000,
    "base 60 with a fraction": ":".join(["59"] * 3000) + ".5",
}
PLACES = (
    "session: {intra_op_num_threads: %s}",
    "workload: {dims: {x: %s}}",
    "workload: {feed_values: {x: [%s]}}",
    "protocol: {margin: %s}",
    "nothing: %s",
    "%s: 1",
)


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS.keys())
@pytest.mark.parametrize("place", PLACES)
def test_numbers_of_thousands_of_digits_are_refused(number: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_yaml(HEAD + place % number)
    assert len(caught.value.message) < 400


def test_numbers_of_every_base_are_still_numbers() -> None:
    text = "[0x1F, 017, 0b101, 1:30, 1_000, 1.5, 1e3, -12, 18446744073709551615, .inf]"
    assert load_strict(text) == [31, 15, 5, 90, 1000, 1.5, "1e3", -12, 2**64 - 1, float("inf")]


@pytest.mark.parametrize("place", [p for p in PLACES if p != "protocol: {margin: %s}"])
@pytest.mark.parametrize("text", [r'"\ud800"', r'"a\udfffb"'])
def test_half_a_character_is_refused(place: str, text: str) -> None:
    with pytest.raises(SpecError, match="half"):
        spec_from_yaml(HEAD + place % text)
    assert load_strict(r'"\u00e9\U0001F600"') == "é\U0001f600"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000 + ": 1",
        "? [a]\n: 1",
        "schema: " + "x" * 100_000,
        "- " * 300,
        "a: 2001-99-99",
        'a: "\\UFFFFFFFF"',
    ],
)
def test_long_and_odd_yaml_gives_short_messages(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_yaml(text)
    assert len(caught.value.message) < 400


# --- the command line ---------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    from core.cli import run

    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))

    def call(*args: str) -> tuple[int, str, str]:
        code = run(list(args))
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        assert len(err) < 2000
        return code, out, err

    return call


HOSTILE: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "model": lambda folder: ("inspect", str(_pipe(folder / "m.onnx"))),
    "model that is a device": lambda folder: ("inspect", "/dev/zero"),
    "yaml": lambda folder: ("tune", "--config", str(_pipe(folder / "c.yaml"))),
    "yaml without its ending": lambda folder: ("tune", "--config", str(_pipe(folder / "config"))),
    "home of nobody": lambda folder: ("tune", "--config", "~nosuchuser/x.yaml"),
    "model of nobody": lambda folder: ("inspect", "~nosuchuser/x.onnx"),
    "name of 100,000 characters": lambda folder: ("inspect", "n" * 100_000),
    "configuration of 100,000": lambda folder: ("tune", "--config", "n" * 100_000),
    "bytes that are no text": lambda folder: ("inspect", os.fsdecode(b"m\xff.onnx")),
    "output of 100,000": lambda folder: (
        *("transform", "sample_models/digits_cnn.onnx", "--simplify", "-o", f"{folder}/{'n' * 100_000}"),
    ),
    "output below a file": lambda folder: (
        *("convert", "resnet18", "-o", f"{_pipe(folder / 'p')}/model.onnx"),
    ),
    "trace of 100,000": lambda folder: (
        *("profile", "sample_models/digits_cnn.onnx", "--trace", f"{folder}/{'n' * 100_000}"),
    ),
    "backup of 100,000": lambda folder: ("backup", "n" * 100_000),
    "restore of a pipe": lambda folder: ("restore", str(_pipe(folder / "kept.db"))),
    "list that is a pipe": lambda folder: (
        *("accuracy", "sample_models/digits_cnn.onnx", "--quiet", "--data", str(_pipe(folder / "list.csv"))),
    ),
    "trial of 100,000": lambda folder: ("export", "n" * 100_000),
    "calibration of nobody": lambda folder: (
        *("transform", "sample_models/digits_cnn.onnx", "--int8-static"),
        *("--calibration", "~nosuchuser/x.npz"),
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_arguments_are_one_clear_line(command: Any, tmp_path: Path, what: str) -> None:
    # one of them in a real worker: what the job says is the same in this process
    with contextlib.nullcontext() if what == "model" else in_process.jobs():
        code, out, err = command(*HOSTILE[what](tmp_path))
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert "unexpectedly" not in err
    if what in ("model", "yaml", "yaml without its ending", "list that is a pipe"):
        assert "pipe" in err


def test_bug_is_one_line_and_its_traceback_a_file(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("nobody expected this")

    monkeypatch.setattr("core.api.models.resolve_model", broken)
    code, out, err = command("inspect", "x", "--json")
    assert code == 1
    assert json.loads(out)["error"]["type"] == "WorkerError"
    assert "ZeroDivisionError" in err
    assert "ZeroDivisionError" in (tmp_path / "home" / "last-error.txt").read_text()


def test_inspect_says_what_it_did_not_check_and_load_checks_it(command: Any, tmp_path: Path) -> None:
    good = str(tiny_models.mlp(tmp_path / "good.onnx"))
    bad = str(tiny_models.unknown_operator(tmp_path / "bad.onnx"))
    with in_process.jobs():  # what loads a model is a worker all the same
        assert "checked" in command("inspect", bad)[1]
        code, out, _ = command("inspect", good, "--load")
        assert code == 0
        assert "CPU" in out
        assert "checked" not in out
        assert command("inspect", bad, "--load")[:2] == (2, "")
        assert json.loads(command("inspect", good, "--json")[1])["loads"] is None
        assert "CPU" in json.loads(command("inspect", good, "--load", "--json")[1])["loads"]


def test_names_of_a_model_longer_than_a_screen_are_cut_in_tables(command: Any, tmp_path: Path) -> None:
    from onnx import helper

    long = "n" * 100_000
    node = helper.make_node("Relu", [long], ["y"])
    shapes = [tiny_models.value(long, ["d" * 100_000, 4]), tiny_models.value("y", None)]
    path = tiny_models.save(tmp_path / "m.onnx", [node], shapes[:1], shapes[1:])
    with in_process.jobs():
        code, out, _ = command("inspect", str(path))
    assert code == 0
    assert max(map(len, out.splitlines())) < 600
