"""Build a torchvision classifier, with trained weights if available, else with seeded random ones.

Worker side. Only modules that need PyTorch import this one, because torch takes seconds to load.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import pickle
import socket
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torchvision

from core.wire import Progress
from core.wire.catalog import RANDOM_BIASES_NOTE, RANDOM_WEIGHTS_NOTE, TORCHVISION_CLASSIFIERS
from core.wire.errors import SpecError, nearest

REACH_TIMEOUT_S = 8.0  # for the first answer of the download server, name lookup included
STALL_TIMEOUT_S = 20.0  # between two parts of a download

# Exceptions of a failed download: no network, a broken transfer, a file with unexpected content.
_DOWNLOAD_ERRORS = (OSError, http.client.HTTPException, RuntimeError, EOFError, pickle.UnpicklingError)
# Models built for one image size: their weights have a shape that follows from it.
_SIZE_BOUND = ("vit_", "maxvit_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A model in evaluation mode, and the source of its weights."""

    module: torch.nn.Module
    image_size: int  # pixels per side
    weights: Literal["pretrained", "random"]
    weights_name: str  # torchvision's name of the weights; empty when random
    notes: list[str]


def build(
    name: str,
    *,
    pretrained: bool,
    seed: int,
    image_size: int | None,
    progress: Progress,
    biases: bool = True,
) -> Classifier:
    """Build the classifier `name`.

    Random weights give the same graph as trained ones: this function also sets the input size and the options
    that torchvision sets with its weights, and draws random biases.

    Args:
        name: of the classifier in torchvision.
        pretrained: try to load trained weights.
        seed: of random weights and biases.
        image_size: pixels per side; None: torchvision's own.
        progress: receives the size of a download.
        biases: draw random biases; False: keep torchvision's, as in older exports.

    Raises:
        SpecError: torchvision has no such classifier, or it cannot take that image size.
    """
    if name not in TORCHVISION_CLASSIFIERS:
        raise SpecError(
            f"torchvision has no classification model `{name}`.{nearest(name, TORCHVISION_CLASSIFIERS)}",
            hint="Choose one of torchvision's classification models.",
        )
    trained = torchvision.models.get_model_weights(name).DEFAULT
    size = _image_size(name, trained, image_size)
    notes = [RANDOM_WEIGHTS_NOTE, *([RANDOM_BIASES_NOTE] if biases else [])]
    if pretrained:
        try:
            progress("download", 0, 1, f"{trained.meta.get('_file_size', 0):.0f} MiB")
            module = _with_trained_weights(name, trained)
            return Classifier(
                module=module, image_size=size, weights="pretrained", weights_name=trained.name, notes=[]
            )
        except _DOWNLOAD_ERRORS as error:
            notes.append(f"the trained weights could not be had: {_reason(error)}")
    torch.manual_seed(seed)
    module = torchvision.models.get_model(name, weights=None, **_builder_options(name, trained)).eval()
    _randomize_zero_layers(module)
    if biases:
        draw_biases(module, seed)
    _set_batch_norm_statistics(module, size)
    return Classifier(module=module, image_size=size, weights="random", weights_name="", notes=notes)


def _image_size(name: str, trained: Any, requested: int | None) -> int:
    own = int(trained.transforms().crop_size[0])
    if requested is None or requested == own:
        return own
    least = int(trained.meta["min_size"][0])
    if name.startswith(_SIZE_BOUND):
        raise SpecError(
            f"`{name}` takes images of {own} x {own} only, but got {requested}.",
            hint=f"Leave the image size at {own}.",
        )
    if requested < least:
        raise SpecError(
            f"`{name}` takes images of at least {least} x {least}, but got {requested}.",
            hint=f"Use an image size of {least} or more.",
        )
    return requested


def _builder_options(name: str, trained: Any) -> dict[str, Any]:
    """Return the options that torchvision itself sets for a model with these weights."""
    if name in ("googlenet", "inception_v3"):
        # init_weights=False: drawing from a truncated normal takes a minute and changes no timing.
        return {"transform_input": True, "aux_logits": False, "init_weights": False}
    return {"image_size": trained.meta["min_size"][0]} if name.startswith("vit_") else {}


def _randomize_zero_layers(module: torch.nn.Module) -> None:
    """Randomize heads that start at zero (ViT's): with every output 0, a comparison would prove nothing."""
    for weight in module.parameters():
        if weight.ndim >= 2 and not weight.any():
            torch.nn.init.trunc_normal_(weight, std=0.02)


def draw_biases(module: torch.nn.Module, seed: int) -> None:
    """Randomize parameters that start as 0 or 1: folding them away would change the graph that is timed.

    Biases are drawn within ±1/sqrt(inputs of a unit), PyTorch's own default; the scales of normalizations
    by as much around 1.

    Args:
        module: changed in place.
        seed: of the random generator.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in module.modules():
            own = dict(layer.named_parameters(recurse=False))
            for name, one in own.items():
                if "bias" in name and not one.any():
                    weight = own.get(name.replace("bias", "weight"))
                    wide = weight is not None and weight.ndim > 1
                    fan_in = weight[0].numel() if weight is not None and wide else one.numel()
                    one.add_(_uniform(one, 1 / math.sqrt(fan_in), generator))
                elif name == "weight" and one.ndim == 1 and bool((one == 1).all()):
                    one.add_(_uniform(one, min(0.5, 1 / math.sqrt(one.numel())), generator))


def _uniform(like: torch.Tensor, bound: float, generator: torch.Generator) -> torch.Tensor:
    return bound * (2 * torch.rand(like.shape, generator=generator) - 1)


def _set_batch_norm_statistics(module: torch.nn.Module, image_size: int) -> None:
    """Set the statistics of batch normalization from random images, as training would.

    Otherwise the signal of a deep random network decays layer by layer to denormal numbers, which some
    processors compute slowly: the timings would not be those of a trained network.
    """
    layers = [one for one in module.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    if not layers:
        return
    for layer in layers:
        layer.train()
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 1.0  # the statistics become those of this one batch
    with torch.no_grad():
        module(torch.rand(2, 3, image_size, image_size))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()


def _with_trained_weights(name: str, trained: Any) -> torch.nn.Module:
    """Load weights from torch's cache or download them, with a timeout for machines without a network."""
    cached = Path(torch.hub.get_dir()) / "checkpoints" / trained.url.rsplit("/", 1)[-1]
    if not cached.exists():
        _reach(trained.url)
    with _socket_timeout(STALL_TIMEOUT_S):
        module: torch.nn.Module = torchvision.models.get_model(name, weights=trained, progress=False)
    return module.eval()


def _reach(url: str) -> None:
    """Send a HEAD request for the file, through a proxy if one is set; raise OSError without an answer.

    A socket's timeout bounds neither the name lookup nor a host with many dead addresses, hence the thread.
    """
    failure: list[Exception] = [TimeoutError(f"no answer within {REACH_TIMEOUT_S:.0f} s")]

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - https, from torchvision's table
        try:
            with urllib.request.urlopen(request, timeout=REACH_TIMEOUT_S):  # noqa: S310
                failure.clear()
        except (OSError, http.client.HTTPException) as error:
            failure[:] = [error]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_TIMEOUT_S)
    if failure:
        raise failure[0]


@contextlib.contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Set the process-wide socket timeout: torch's downloader has no timeout of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason or type(error).__name__)
