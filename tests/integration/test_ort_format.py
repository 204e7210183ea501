"""ORT format: what is written can be run and inspected, and a damaged file is refused in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.wire.errors import ModelError
from core.worker.models import inspect_model, read_model
from tests import tiny_models as tiny
from tests.transforming import do, run

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


def sample(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.write_bytes((SAMPLES / name).read_bytes())
    return path


def test_a_model_in_ort_format_computes_the_same(tmp_path: Path) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    output, reply = do(source, "ort_format")
    image = np.random.default_rng(0).random((3, 3, 16, 16), dtype=np.float32)
    np.testing.assert_allclose(run(output, image=image)[0], run(source, image=image)[0], rtol=1e-4)
    assert reply["error"]["max_rel"] is not None
    assert reply["hardware_bound"] == ""


@pytest.mark.parametrize("name", ["digits_cnn.onnx", "tiny_transformer.onnx"])
def test_inspecting_it_tells_what_the_onnx_file_tells(tmp_path: Path, name: str) -> None:
    source = sample(tmp_path, name)
    output, _ = do(source, "ort_format", level="ORT_ENABLE_BASIC")
    same, _ = do(source, "optimize", level="ORT_ENABLE_BASIC")
    found, wanted = inspect_model(str(output)), inspect_model(str(same))

    def plain(info: Any, side: str) -> list[Any]:
        return [(one["name"], one["dtype"], one["shape"]) for one in info[side]]

    assert plain(found, "inputs") == plain(wanted, "inputs")
    assert plain(found, "outputs") == plain(wanted, "outputs")
    for key in ("op_counts", "nodes", "free_dims", "batch_dim", "batch_axes", "fixed_batch", "metadata"):
        assert found[key] == wanted[key], key  # type: ignore[literal-required]
    assert found["opset"][""] == wanted["opset"][""]
    assert found["parameters"] == wanted["parameters"]
    assert found["content_sha256"] == found["sha256"]
    assert found["size_bytes"] == output.stat().st_size


@pytest.mark.parametrize("make", [tiny.if_model, tiny.loop_model, tiny.scan_model])
def test_nodes_of_bodies_are_counted(tmp_path: Path, make: Any) -> None:
    source = make(tmp_path / "m.onnx")
    output, _ = do(source, "ort_format", level="ORT_DISABLE_ALL")
    assert inspect_model(str(output))["op_counts"] == inspect_model(str(source))["op_counts"]


def test_the_list_of_required_operators_lies_beside_it(tmp_path: Path) -> None:
    output, reply = do(tiny.mlp(tmp_path / "m.onnx"), "ort_format", level="ORT_DISABLE_ALL")
    (name,) = reply["files"]
    assert name == "m.required_operators.config"
    text = (output.parent / name).read_text(encoding="utf-8")
    assert "Gemm" in text
    assert "Softmax" in text
    assert str(tmp_path) not in text


def test_the_list_can_name_types(tmp_path: Path) -> None:
    output, reply = do(
        tiny.mlp(tmp_path / "m.onnx"), "ort_format", level="ORT_DISABLE_ALL", type_reduction=True
    )
    (name,) = reply["files"]
    assert name == "m.required_operators_and_types.config"
    assert "float" in (output.parent / name).read_text(encoding="utf-8")


def test_how_phones_would_take_it_is_told(tmp_path: Path) -> None:
    _, reply = do(sample(tmp_path, "digits_cnn.onnx"), "ort_format")
    mobile = reply["facts"]["mobile"]
    assert set(mobile) == {"NNAPI", "CoreML"}
    for facts in mobile.values():
        assert 0 <= facts["supported"] <= facts["nodes"]
        assert facts["verdict"] in ("yes", "maybe", "no")


def test_a_level_for_this_processor_is_marked(tmp_path: Path) -> None:
    _, reply = do(tiny.conv(tmp_path / "c.onnx"), "ort_format", level="ORT_ENABLE_ALL")
    assert "ORT_ENABLE_ALL" in reply["hardware_bound"]


def test_nothing_can_be_made_of_it(tmp_path: Path) -> None:
    output, _ = do(tiny.mlp(tmp_path / "m.onnx"), "ort_format")
    with pytest.raises(ModelError, match="ORT format"):
        do(output, "metadata", author="A. Uthor")
    with pytest.raises(ModelError, match="ORT format"):
        read_model(output)


@pytest.mark.parametrize("keep", [40, 200, 0.5])
def test_a_cut_file_is_refused(tmp_path: Path, keep: float) -> None:
    output, _ = do(tiny.mlp(tmp_path / "m.onnx"), "ort_format")
    data = output.read_bytes()
    (tmp_path / "cut.ort").write_bytes(data[: int(len(data) * keep) if keep < 1 else int(keep)])
    with pytest.raises(ModelError, match="damaged"):
        inspect_model(str(tmp_path / "cut.ort"))


def test_a_file_of_noise_is_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(4000)
    (tmp_path / "noise.ort").write_bytes(noise[:4] + b"ORTM" + noise)
    with pytest.raises(ModelError, match="damaged"):
        inspect_model(str(tmp_path / "noise.ort"))
