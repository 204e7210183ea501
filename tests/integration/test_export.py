"""Exporting PyTorch models for real: torch, torchvision and ONNX Runtime, without network.

The smallest classifiers represent all of them; `test_every_name...` keeps the list of names complete.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from core import wire
from core.wire.catalog import (
    DEFAULT_OPSET,
    RANDOM_BIASES_NOTE,
    RANDOM_WEIGHTS_NOTE,
    SAMPLE_EXPORTS,
    TORCHVISION_CLASSIFIERS,
)
from core.wire.errors import ModelError, SpecError
from core.worker.models import inspect_model
from tests.builders import export_plan
from tests.command_line import CommandLine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch and torchvision warn about their own internals when imported
    import torch
    import torchvision

    from core.worker.make.export import export
    from core.worker.session.torch_programs import classifiers as torchvision_models

SMALL = "squeezenet1_1"


def plan(output: Path, **changes: Any) -> wire.ExportPlan:
    return export_plan(output, **{"name": SMALL, "opset": DEFAULT_OPSET, "image_size": 64, **changes})


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """A listener that does not care."""


def run(path: Path, rows: int, size: int = 64) -> np.ndarray:
    image = np.random.default_rng(0).random((rows, 3, size, size), dtype=np.float32)
    (output,) = ort.InferenceSession(path).run(None, {"input": image})
    return np.asarray(output)


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, wire.ExportReply, list[tuple[str, int]]]:
    """One export that several tests read."""
    path = tmp_path_factory.mktemp("exported") / "small.onnx"
    stages: list[tuple[str, int]] = []
    reply = export(plan(path), lambda stage, done, total, text="": stages.append((stage, done)))
    return path, reply, stages


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, wire.ExportReply]:
    """Another export, with every option other than its default."""
    path = tmp_path_factory.mktemp("unusual") / "m.onnx"
    return path, export(plan(path, dynamic_batch=False, external_data="always", opset=25), silent)


def test_the_reply_describes_the_file_that_was_written(exported: Any) -> None:
    path, reply, _ = exported
    info = inspect_model(str(path))
    for name in ("path", "sha256", "size_bytes", "nodes", "op_counts", "parameters", "ir_version"):
        assert reply[name] == info[name], name  # type: ignore[literal-required]
    assert reply["opset"] == info["opset"][""] == DEFAULT_OPSET
    assert reply["op_counts"]["Conv"] == 26
    assert 1_200_000 < reply["parameters"] < 1_300_000
    assert reply["seconds"] > 0


def test_the_batch_is_dynamic_and_called_batch(exported: Any) -> None:
    path, _, _ = exported
    info = inspect_model(str(path))
    assert (info["batch_dim"], info["batch_axes"]) == ("batch", {"input": 0})
    assert run(path, 1).shape == (1, 1000)
    assert run(path, 5).shape == (5, 1000)


def test_pytorch_and_onnx_runtime_were_compared_at_two_batches(exported: Any) -> None:
    _, reply, _ = exported
    assert [one["batch"] for one in reply["differences"]] == [1, 3]  # traced with 2
    assert all(one["max_rel"] < 1e-4 for one in reply["differences"])


def test_random_weights_say_so_in_the_reply_and_in_the_file(exported: Any) -> None:
    path, reply, _ = exported
    assert reply["weights"] == "random"
    assert reply["notes"][0] == RANDOM_WEIGHTS_NOTE
    metadata = inspect_model(str(path))["metadata"]
    assert metadata["ortune.note"] == RANDOM_WEIGHTS_NOTE
    assert metadata["ortune.source"] == f"torchvision {SMALL}"
    assert metadata["ortune.seed"] == "0"
    assert metadata["ortune.torch"] == torch.__version__


def test_no_bias_of_random_weights_is_constant_so_that_nothing_is_folded_away(exported: Any) -> None:
    path, reply, _ = exported
    biases = [
        onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer if "bias" in one.name
    ]
    assert len(biases) == 26  # one of each convolution of squeezenet
    assert all(np.ptp(one) > 0 and np.abs(one).max() <= 1 for one in biases)
    assert RANDOM_BIASES_NOTE in reply["notes"]


def test_normalizations_scale_and_shift_at_random_with_a_fixed_seed() -> None:
    def layers() -> torch.nn.Module:
        found = torch.nn.Sequential(torch.nn.Linear(9, 4), torch.nn.BatchNorm1d(4), torch.nn.LayerNorm(4))
        torch.nn.init.zeros_(found[0].bias)
        torchvision_models.draw_biases(found, 3)
        return found

    one, again = layers().state_dict(), layers().state_dict()
    assert 0 < one["0.bias"].abs().max() <= 1 / 3
    for name in ("0.bias", "1.weight", "1.bias", "2.weight", "2.bias"):
        assert one[name].unique().numel() == 4
        assert torch.equal(one[name], again[name])


def test_random_weights_keep_the_signal_alive() -> None:
    """A signal that dies away ends in denormal numbers: the timings would not be a real model's."""
    built = torchvision_models.build(
        "mobilenet_v3_small", pretrained=False, seed=0, image_size=64, progress=silent
    )
    with torch.inference_mode():
        assert built.module(torch.rand(2, 3, 64, 64)).abs().max() > 1e-3


@pytest.mark.slow
def test_a_sample_model_is_made(tmp_path: Path) -> None:
    reply = export(plan(tmp_path / "m.onnx", name="mobilenet_v3_small"), silent)
    assert reply["op_counts"]["Conv"] == 52
    assert 2_400_000 < reply["parameters"] < 2_600_000
    assert all(one["max_rel"] < 1e-4 for one in reply["differences"])
    assert np.abs(run(tmp_path / "m.onnx", 2)).max() > 1e-3


def test_the_file_does_not_tell_where_it_was_made(exported: Any) -> None:
    path, _, _ = exported
    content = path.read_bytes()
    assert b"site-packages" not in content
    assert str(Path(torch.__file__).parents[1]).encode() not in content


def test_stages_are_reported_in_order(exported: Any) -> None:
    _, _, stages = exported
    assert [stage for stage, _ in stages] == ["model", "export", "check", "compare", "write", "write"]
    assert [done for _, done in stages] == [0, 1, 2, 3, 4, 5]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    def weights(seed: int) -> bytes:
        built = torchvision_models.build(SMALL, pretrained=False, seed=seed, image_size=64, progress=silent)
        return b"".join(one.numpy().tobytes() for one in built.module.state_dict().values())

    assert weights(0) == weights(0) != weights(1)


def test_a_fixed_batch_is_one(unusual: tuple[Path, wire.ExportReply]) -> None:
    _, reply = unusual
    info = inspect_model(reply["path"])
    assert (info["batch_dim"], info["fixed_batch"]) == (None, 1)
    assert [one["batch"] for one in reply["differences"]] == [1]


def test_the_opset_asked_for_is_the_opset_written(tmp_path: Path) -> None:
    reply = export(plan(tmp_path / "m.onnx", opset=15), silent)
    assert reply["opset"] == inspect_model(reply["path"])["opset"][""] == 15
    assert run(tmp_path / "m.onnx", 2).shape == (2, 1000)


def test_an_opset_that_torch_cannot_reach_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="opset 13") as caught:
        export(plan(tmp_path / "m.onnx", opset=13), silent)
    assert "18" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_external_data_lies_beside_the_model_under_its_name(unusual: tuple[Path, wire.ExportReply]) -> None:
    path, reply = unusual
    assert sorted(one.name for one in path.parent.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert [one["location"] for one in inspect_model(reply["path"])["external_data"]] == ["m.onnx.data"]
    assert path.stat().st_size < 500_000 < reply["size_bytes"]
    assert run(path, 1).shape == (1, 1000)
    assert reply["opset"] == inspect_model(reply["path"])["opset"][""] == 25


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "squeezenet1_2"}, "Did you mean `squeezenet1_"),
        ({"image_size": 3}, "at least"),
        ({"name": "vit_b_16", "image_size": 64}, "224 x 224 only"),
    ],
)
def test_a_plan_that_cannot_be_done_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        export(plan(tmp_path / "m.onnx", **changes), silent)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"m\.onnx"):
        export(plan(tmp_path / "file" / "m.onnx"), silent)


# --- trained weights ----------------------------------------------------------------------------------------


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of torch without any downloaded weights, and a downloader that reads its proxy anew."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(urllib.request, "_opener", None)
    before = torch.hub._hub_dir  # type: ignore[attr-defined]
    torch.hub._hub_dir = None  # type: ignore[attr-defined]
    yield tmp_path / "torch"
    torch.hub._hub_dir = before  # type: ignore[attr-defined]


def test_no_network_means_random_weights_in_seconds(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy on a port where nobody listens, held so that nobody else does: offline, on any machine.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{held.getsockname()[1]}")
        built = torchvision_models.build(SMALL, pretrained=True, seed=0, image_size=64, progress=silent)
    assert built.weights == "random"
    assert built.notes[0] == RANDOM_WEIGHTS_NOTE
    assert os.strerror(errno.ECONNREFUSED) in built.notes[-1]


def test_a_server_that_never_answers_is_given_up(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        monkeypatch.setattr(torchvision_models, "REACH_TIMEOUT_S", 0.5)
        built = torchvision_models.build(SMALL, pretrained=True, seed=0, image_size=64, progress=silent)
    assert built.weights == "random"
    assert built.notes[-1] not in (RANDOM_WEIGHTS_NOTE, RANDOM_BIASES_NOTE), "why there are none"


def test_downloaded_weights_are_used(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights lie in torch's cache, as after a download; a real one is not to be had in a test."""
    trained = torchvision.models.get_model_weights(SMALL).DEFAULT
    torch.manual_seed(7)
    state = torchvision.models.get_model(SMALL, weights=None).state_dict()
    checkpoints = empty_cache / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    torch.save(state, checkpoints / trained.url.rsplit("/", 1)[-1])
    reply = export(plan(tmp_path / "m.onnx", pretrained=True), silent)
    assert reply["weights"] == "pretrained"
    assert reply["notes"] == []
    metadata = inspect_model(reply["path"])["metadata"]
    assert metadata["ortune.weights_name"] == trained.name
    assert "ortune.note" not in metadata
    stored = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(reply["path"]).graph.initializer}
    np.testing.assert_array_equal(stored["classifier.1.weight"], state["classifier.1.weight"].numpy())


def test_a_broken_download_falls_back_to_random_weights(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = torchvision.models.get_model_weights(SMALL).DEFAULT
    checkpoints = empty_cache / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / trained.url.rsplit("/", 1)[-1]).write_bytes(b"half a file")
    built = torchvision_models.build(SMALL, pretrained=True, seed=0, image_size=64, progress=silent)
    assert built.weights == "random"
    assert built.notes[-1] not in (RANDOM_WEIGHTS_NOTE, RANDOM_BIASES_NOTE), "why there are none"


def test_the_process_wide_socket_timeout_is_put_back(empty_cache: Path) -> None:
    assert socket.getdefaulttimeout() is None
    torchvision_models.build(SMALL, pretrained=True, seed=0, image_size=64, progress=silent)
    assert socket.getdefaulttimeout() is None
    assert threading.active_count() < 50


def test_random_weights_have_no_dead_head() -> None:
    """torchvision starts ViT's head at zero: every output would be 0 and every comparison perfect."""
    built = torchvision_models.build("vit_b_32", pretrained=False, seed=0, image_size=None, progress=silent)
    assert all(one.any() for one in built.module.parameters() if one.ndim >= 2)


# --- names --------------------------------------------------------------------------------------------------


def test_every_name_of_the_catalogue_is_a_classifier_of_torchvision() -> None:
    assert sorted(TORCHVISION_CLASSIFIERS) == sorted(
        torchvision.models.list_models(module=torchvision.models)
    )
    assert set(SAMPLE_EXPORTS) <= set(TORCHVISION_CLASSIFIERS)


def test_the_image_size_is_the_one_the_weights_were_trained_for() -> None:
    weights = torchvision.models.get_model_weights
    assert torchvision_models._image_size("inception_v3", weights("inception_v3").DEFAULT, None) == 299
    assert torchvision_models._image_size("efficientnet_b3", weights("efficientnet_b3").DEFAULT, None) == 300
    assert torchvision_models._image_size("resnet18", weights("resnet18").DEFAULT, None) == 224


# --- .pt2 ---------------------------------------------------------------------------------------------------


class TwoInputs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20, 8)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        vectors = self.table(ids)
        return {"mean": vectors.mean(dim=1) * scale, "all": vectors}


def save_pt2(path: Path, *, smallest: int | None = None) -> Path:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=smallest, max=64)
    sample = (torch.randint(0, 20, (4, 6)), torch.rand(4, 1))
    program = torch.export.export(TwoInputs().eval(), sample, dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, path)
    return path


def pt2_plan(path: Path, output: Path, **changes: Any) -> wire.ExportPlan:
    return plan(output, source="pt2", name="", path=str(path), **changes)


@pytest.mark.filterwarnings("ignore::UserWarning:torch")  # about its own archive format
def test_a_pt2_keeps_its_inputs_and_dynamic_dimension(tmp_path: Path) -> None:
    reply = export(pt2_plan(save_pt2(tmp_path / "m.pt2"), tmp_path / "m.onnx"), silent)
    info = inspect_model(reply["path"])
    assert [one["name"] for one in info["inputs"]] == ["ids", "scale"]
    assert len(info["free_dims"]) == 1
    assert info["batch_axes"] == {"ids": 0, "scale": 0}
    assert (info["inputs"][0]["low"], info["inputs"][0]["high"]) == (0, 20)
    assert reply["weights"] == "file"
    assert [one["batch"] for one in reply["differences"]] == [1, 3]
    assert all(one["max_rel"] < 1e-5 for one in reply["differences"])
    assert info["metadata"]["ortune.source"] == "torch.export m.pt2"


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_a_batch_that_the_pt2_forbids_is_noted_and_another_compared(tmp_path: Path) -> None:
    reply = export(pt2_plan(save_pt2(tmp_path / "m.pt2", smallest=3), tmp_path / "m.onnx"), silent)
    assert [one["batch"] for one in reply["differences"]] == [3]
    assert "batch 1" in reply["notes"][0]


class Zeros(torch.nn.Module):
    """An output that is zero for every input, like that of an untrained ViT."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_agreement_of_zeros_is_called_no_proof(tmp_path: Path) -> None:
    program = torch.export.export(
        Zeros().eval(), (torch.randn(2, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(program, tmp_path / "m.pt2")
    reply = export(pt2_plan(tmp_path / "m.pt2", tmp_path / "m.onnx"), silent)
    assert sum("proves nothing" in note for note in reply["notes"]) == len(reply["differences"])


def test_what_is_no_pt2_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk.pt2").write_bytes(b"junk" * 100)
    torch.save(TwoInputs().state_dict(), tmp_path / "weights.pt")
    torch.save(TwoInputs().state_dict(), tmp_path / "weights.pt2")
    for name, words in (
        ("junk.pt2", "cannot be loaded"),
        ("weights.pt2", "cannot be loaded"),
        ("weights.pt", "not a `.pt2`"),
        ("nothing.pt2", "no file"),
    ):
        with pytest.raises(ModelError, match=words) as caught:
            export(pt2_plan(tmp_path / name, tmp_path / "out" / "m.onnx"), silent)
        assert caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []


# --- the command -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:::torch")
def test_the_command_makes_a_checked_model_that_the_library_knows(cli: CommandLine, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "tiny.pt2")
    done = cli.run("convert", "tiny.pt2", "-o", "tiny.onnx", "--json", "--quiet", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.document["state"] == "COMPLETE"
    assert all(one["max_abs"] < 1e-5 for one in done.document["differences"])
    assert (tmp_path / "tiny.onnx").is_file()
    assert cli.run("inspect", "tiny", "--json").document["batch_dim"] is not None
