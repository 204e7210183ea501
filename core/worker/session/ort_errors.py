"""Translate ONNX Runtime's error messages into errors with a remedy.

Pure functions of text; nothing here imports onnxruntime. The patterns are the messages of ONNX Runtime 1.31.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from core.wire.errors import ModelError, ProviderError, SpecError, TunerError, WorkerError

NO_MEMORY = re.compile(
    r"[Ff]ailed to allocate(?: memory for requested buffer of size (?P<size>\d+))?"
    r"|bad_alloc|CUDA failure 2\b|CUDNN_STATUS_ALLOC_FAILED|[Oo]ut of memory"
)
_MISSING_LIBRARY = re.compile(r"([\w.+-]+\.so[\w.]*): cannot open shared object file")
_PROVIDER_LIBRARY = re.compile(r"libonnxruntime_providers_(\w+)\.so")
_PROVIDER_OF_LIBRARY = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
}
_INSTALL_CUDA = 'Install the CUDA and cuDNN libraries with `pip install "onnxruntime-gpu[cuda,cudnn]"`.'
_INSTALL_DRIVER = "Install the NVIDIA driver, or give the container access to the GPU."
_INSTALL_TENSORRT = "Install TensorRT 10 and put its libraries on `LD_LIBRARY_PATH`."
_SMALLER = "Use a smaller batch, smaller dimensions or a smaller model."

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], TunerError]]


def missing_libraries(log: str) -> dict[str, str]:
    """Return {provider: shared library that the dynamic loader did not find} from ORT's log lines."""
    found: dict[str, str] = {}
    for line in log.splitlines():
        provider, library = _PROVIDER_LIBRARY.search(line), _MISSING_LIBRARY.search(line)
        if provider and library:
            name = _PROVIDER_OF_LIBRARY.get(provider.group(1))
            if name:
                found.setdefault(name, library.group(1))
    return found


def load_failure(provider: str, log: str) -> str:
    """Return one sentence on why `provider` did not load, from ORT's log lines or its exception."""
    library = missing_libraries(log).get(provider)
    if library:
        return f"{provider} could not load: {library} is missing."
    detail = clean(log)
    return f"{provider} could not load" + (f": {detail}" if detail else "; ONNX Runtime gave no reason.")


def remedy(provider: str, reason: str) -> str:
    """Return one imperative sentence that makes `provider` load, given `load_failure`'s sentence."""
    if "libcuda.so" in reason or "no CUDA-capable device" in reason or "driver version" in reason:
        return _INSTALL_DRIVER
    if "libnvinfer" in reason or "libnvonnxparser" in reason:
        return _INSTALL_TENSORRT
    if provider == "CUDAExecutionProvider" or "libcu" in reason or "libnv" in reason:
        return _INSTALL_CUDA
    if provider == "TensorrtExecutionProvider":
        return _INSTALL_TENSORRT
    return f"Install the libraries that {provider} needs, or choose another provider."


WITHOUT_IT = "Or switch `allow_fallback` on, or leave the provider out: then the CPU is used."


def provider_error(provider: str, reason: str) -> ProviderError:
    """Return the error for a provider that does not load here."""
    return ProviderError(reason, hint=f"{remedy(provider, reason)} {WITHOUT_IT}")


def blamed_provider(message: str, chain: list[str]) -> str | None:
    """Return the provider of `chain` that caused an exception of session creation, if any."""
    if _first(_SETTINGS, message):
        return None  # a setting that this model does not accept
    message = clean(message)  # the source position at the start names C++ classes such as ProviderOptions
    if re.search(r"(?:provider|EP) option", message, re.IGNORECASE):
        return None  # a wrong option, not a missing provider
    words = {
        "TensorrtExecutionProvider": ("TensorRT", "nvinfer"),
        "CUDAExecutionProvider": ("CUDA", "cuda", "cuDNN", "cublas"),
    }
    for name in chain:
        if any(word in message for word in (name, *words.get(name, ()))):
            return name
    return None


def clean(message: str) -> str:
    """Strip ORT's status code, source position and colours; keep the first informative line."""
    lines = [_clean_line(line) for line in message.splitlines()]
    text = next((line for line in lines if line), "")
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def first_line(error: Exception) -> str:
    """Return the first informative line of an error's text, at most 300 characters."""
    return (clean(str(error)) or type(error).__name__)[:300]


def _clean_line(line: str) -> str:
    line = re.sub(r"\x1b\[[\d;]*m", "", line).strip()
    line = re.sub(r"^\d{4}-\d\d-\d\d [\d:.]+ \[\w:onnxruntime:.*?\] ", "", line)
    line = re.sub(r"^Error in execution: ", "", line)
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line)
    line = re.sub(r"^Load model from .+? failed:", "", line)
    line = re.sub(r"/onnxruntime_src/\S+:\d+ .*?\)\s+(?=\S)", "", line)
    line = re.sub(r"^.{,200}? was false\. ", "", line)  # the condition, in C++
    return line.strip()


def creation_error(
    kind: str, message: str, *, model: str, config_entries: Mapping[str, str] | None = None
) -> TunerError:
    """Translate an exception of session creation into an error with a remedy.

    Args:
        kind: name of the exception's class; "RuntimeError" and "ValueError" come from settings, ONNX
            Runtime's own classes from the model.
        message: its text.
        model: the model's path, to name it.
        config_entries: the session config entries that were set.
    """
    known = _first(_MEMORY + _SETTINGS + _MODEL, message)
    if known:
        return known
    name = Path(model).name
    if any(words in message for words in _NO_MODEL):
        return _not_onnx(model)
    if kind == "NoSuchFile":
        return ModelError(f"There is no model file `{model}`.", hint="Check the path.")
    if kind == "ValueError" and "sto" in message:
        return _not_a_number(config_entries or {})
    if kind in {"RuntimeError", "ValueError", "TypeError"}:
        return SpecError(f"ONNX Runtime refuses the settings: {clean(message)}", hint="Change the setting.")
    return ModelError(
        f"ONNX Runtime cannot load `{name}`: {clean(message)}",
        hint="Check the file with `onnx.checker`; if it is sound, leave out the settings that this is about.",
    )


def unregistered(message: str) -> TunerError | None:
    """Return the error for an operator that none of the named libraries provides; None for another error."""
    return _first((_UNREGISTERED,), message)


def run_error(message: str) -> TunerError:
    """Translate an exception of a run into an error with a remedy."""
    known = _first(_MEMORY + _RUN, message)
    return known or ModelError(
        f"The run failed: {clean(message)}", hint="Check the input data against the inputs of the model."
    )


def _first(rules: tuple[Rule, ...], message: str) -> TunerError | None:
    for pattern, build in rules:
        match = pattern.search(message)
        if match:
            return build(match)
    return None


def _not_onnx(model: str) -> ModelError:
    path = Path(model)
    if path.is_dir():
        return ModelError(f"`{model}` is a folder.", hint="Give the path of an .onnx file in it.")
    if path.is_file() and path.stat().st_size == 0:
        return ModelError(f"`{path.name}` is empty.", hint="Copy or export the model again.")
    return ModelError(
        f"`{path.name}` is not an ONNX model, or it is cut off.", hint="Copy or export the model again."
    )


def _not_a_number(entries: Mapping[str, str]) -> SpecError:
    suspects = [f"`{key}` = {value!r}" for key, value in entries.items() if not value.lstrip("-").isdigit()]
    which = f": {', '.join(suspects)}" if suspects else ""
    return SpecError(
        f"A session config entry must be a whole number and is not{which}.", hint="Give it a whole number."
    )


def _spec(text: str, hint: str) -> Callable[[re.Match[str]], TunerError]:
    return lambda match: SpecError(match.expand(text), hint=match.expand(hint))


def _model(text: str, hint: str) -> Callable[[re.Match[str]], TunerError]:
    return lambda match: ModelError(match.expand(text), hint=match.expand(hint))


def _out_of_memory(match: re.Match[str]) -> WorkerError:
    size = match.groupdict().get("size")
    wanted = f" when it requested {int(size) / 2**30:.1f} GiB at once" if size else ""
    return WorkerError(f"The worker ran out of memory{wanted}.", hint=_SMALLER)


def _in_node(match: re.Match[str]) -> ModelError:
    return ModelError(
        f"The run failed in the {match['op']} node `{match['name']}`: {clean(match['text'])}",
        hint="Check the sizes and values of the inputs against what the model expects.",
    )


_MEMORY: tuple[Rule, ...] = ((NO_MEMORY, _out_of_memory),)

_SETTINGS: tuple[Rule, ...] = (
    (
        re.compile(r"Memory efficient topological order is not enabled"),
        _spec(
            "`execution_order` is MEMORY_EFFICIENT, which training builds of ONNX Runtime alone have.",
            "Choose DEFAULT or PRIORITY_BASED.",
        ),
    ),
    (
        re.compile(r"cannot use the graph capture feature .* nodes have not been partitioned to the (\w+)"),
        _spec(
            r"`enable_cuda_graph` captures a run only if every node runs on \1, and some nodes of this model "
            "run on the CPU.",
            "Turn it off, or lower `graph_optimization_level` to ORT_ENABLE_BASIC: some fusions leave nodes "
            "on the CPU, which `profile` names.",
        ),
    ),
    (
        re.compile(r"disabled fallback to the CPU EP|fallback to CPU EP has been explicitly disabled"),
        _spec(
            "`session.disable_cpu_ep_fallback` is on, but part of the model would run on the CPU.",
            "Turn it off, and leave CPUExecutionProvider out of the chain while it is on.",
        ),
    ),
)

# The last: of an empty file, until ONNX Runtime 1.22
_NO_MODEL = ("Protobuf parsing failed", "No graph was found", "ModelProto does not have a graph")
_UNREGISTERED: Rule = (
    re.compile(r"([\w.]+):(\w+)\(-?\d+\) is not a registered function/op"),
    _model(
        r"The model uses the custom operator `\2` of the domain `\1`, which neither ONNX Runtime nor a "
        r"library that "
        r"is named has.",
        "Name the library that has it with `--custom-op-library`, and allow its folder with "
        "ORTUNE_ALLOW_LIBRARIES. Or export the model with standard operators only.",
    ),
)

_MODEL: tuple[Rule, ...] = (
    (
        re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"),
        _model(
            r"The model has IR version \1; this ONNX Runtime reads at most \2.",
            r"Save it again with `ir_version` \2 or lower.",
        ),
    ),
    (
        re.compile(r"Opset (\d+) is under development.* for domain (\S+) is till opset (\d+)", re.DOTALL),
        _model(
            r"The model uses opset \1 of \2; this ONNX Runtime supports at most \3.",
            r"Export it again with opset \3 or lower.",
        ),
    ),
    *(
        (
            re.compile(pattern),
            _model(r"The model's external data file `\1` is missing.", r"Put `\1` into the model's folder."),
        )
        for pattern in (
            r'External data path does not exist: "(?:.*/)?([^"/]+)"',
            r"cannot get file size: No such file or directory \[(?:.*/)?([^/\]]+)\]",  # until 1.22
            r"GetFileLength for (?:.*/)?(\S+) failed",  # until 1.17
        )
    ),
    (
        re.compile(
            r'External data path (?:for model )?escapes model directory\. External data path: "([^"]+)"'
        ),
        _model(
            r"The model's external data `\1` lies outside the model's folder, which is not allowed.",
            r"Put the data beside the model and save the model with that location.",
        ),
    ),
    (
        re.compile(r"External initializer: (\S+) .*size to read: (\d+) given file_length: (\d+)"),
        _model(
            r"The external data of `\1` is cut off: \2 bytes are needed, the file has \3.",
            r"Copy the external data again.",
        ),
    ),
    (
        re.compile(r"External data path validation failed for initializer: (\S+)\. Error: (.+)"),
        lambda m: ModelError(
            f"The external data of `{m[1]}` is refused: {clean(m[2])}",
            hint="Put a real file beside the model, neither a link nor an absolute path.",
        ),
    ),
    (
        re.compile(r"No Op registered for (\S+) with domain_version of (\d+)"),
        _model(
            r"The model uses the operator `\1`, which opset \2 does not have.",
            r"Export the model with standard operators only.",
        ),
    ),
    _UNREGISTERED,
    (
        re.compile(r"Could not find an implementation for (\w+)\((\d+)\) node with name '(.*?)'"),
        _model(
            r"ONNX Runtime has no kernel for \1 of opset \2 with the types of node `\3`.",
            r"Use another provider, or export the model with another type.",
        ),
    ),
)

_UNBIND = "Switch I/O binding off, on the command line with `--no-io-binding`."

_RUN: tuple[Rule, ...] = (
    (
        re.compile(r"Invalid rank for output: (\S+) Got: (\d+) Expected: (\d+)"),
        _spec(
            r"The output `\1` has rank \2, but the model declares \3: ONNX Runtime refuses that once I/O "
            r"binding uses the output's memory again.",
            _UNBIND,
        ),
    ),
    (
        re.compile(
            r"output OrtValue provided for output '(.+?)' of node .* has shape (\S+) but .* is (\S+)\."
        ),
        _spec(
            r"The output `\1` has shape \2 in one run and \3 in another: with I/O binding ONNX Runtime uses "
            r"its memory again.",
            _UNBIND,
        ),
    ),
    (
        re.compile(r"Did not find an arena based allocator .* shrink list: (\S+)"),
        _spec(
            r"`memory.enable_memory_arena_shrinkage` names `\1`, which has no arena in this session.",
            "Turn `enable_cpu_mem_arena` on, or name devices that the session uses.",
        ),
    ),
    (
        re.compile(
            r"indices element out of data bounds, idx=(-?\d+) must be within.* range \[(-?\d+), ?(-?\d+)\]"
        ),
        _spec(
            r"An input holds the index \1; the model's table allows \2 to \3.",
            r"Use smaller values, for example with `--feed NAME=0`.",
        ),
    ),
    (
        re.compile(r"Got invalid dimensions for input: (\S+) for the following indices\s+(.+)", re.DOTALL),
        lambda m: SpecError(
            f"Input `{m[1]}` got a wrong shape: {' '.join(m[2].split('Please')[0].split())}.",
            hint="Use the model's own shape.",
        ),
    ),
    (
        re.compile(r"No corresponding Numpy type for Tensor Type\.(?: (\w+))?"),
        lambda m: SpecError(  # until 1.22 without the type
            f"Plain `run` cannot return an output of {f'type {m[1]}' if m[1] else 'this type'} to numpy.",
            hint="Turn I/O binding on.",
        ),
    ),
    (
        re.compile(
            r"Non-zero status code returned while running (?P<op>\S+) node\. Name:'(?P<name>.*?)' "
            r"Status Message: (?P<text>.*)"
        ),
        _in_node,
    ),
)
