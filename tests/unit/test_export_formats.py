"""Every export format, compared with the settings table and opened by its target tool.

Tests run for real where they can: the program for Node where Node and its package are installed, the one in
C++ where its header is, ONNX Runtime on the copy of the model. Others use the target tool's parser.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from core.run.export_source import ExportSource
from core.show.export import FORMATS, format_named, formats_table
from core.show.export.header import NOT_EXPORTED
from core.show.export.ort_config import KEY, NOTE_KEY
from core.show.export.programs import OTHER_RUNTIMES
from core.show.table import md_cell, md_text
from core.spec import requested_value, spec_from_dict, without_effect
from core.spec.settings import ENTRIES, PROVIDER_OPTIONS, SETTINGS
from core.spec.steps import STEPS, Step
from core.wire.errors import ModelError, SpecError
from core.wire.output_check import OUTPUTS_DIFFER
from core.worker.models import inspect_model
from tests import builders, tiny_models
from tests.reading import tells

NAMES = [one.name for one in FORMATS]
PROGRAMS = ("python", "javascript", "cpp", "perf-test")
CUDA, TENSORRT, OPENVINO = (f"{name}ExecutionProvider" for name in ("CUDA", "Tensorrt", "OpenVINO"))
CPU = "CPUExecutionProvider"


@functools.cache
def inspected(path: str, changed_at: int) -> Any:
    return inspect_model(path)


def source_of(path: Path, *, steps: tuple[Step, ...] = (), original: str = "", **parts: Any) -> ExportSource:
    """A complete trial of the model at `path` as the store would give it, with parts of its spec."""
    info = inspected(str(path), path.stat().st_mtime_ns)
    model = {"path": str(path), "sha256": info["sha256"], **parts.pop("model", {})}
    spec = spec_from_dict({"model": model, **parts})
    rows = spec.workload.batch_size or spec.workload.dims.get("batch") or 2
    sizes = {"batch": rows, **spec.workload.dims}
    result = {
        side: [
            {
                "name": one["name"],
                "dtype": one["dtype"],
                "shape": [
                    sizes.get(size, 2) if isinstance(size, str) else size for size in one["shape"] or []
                ],
            }
            for one in info[side]  # type: ignore[literal-required]
        ]
        for side in ("inputs", "outputs")
    }
    trial = builders.trial(
        "0123456789abcdef",
        spec,
        model_name="tiny",
        state="COMPLETE",
        result={**result, "batch_size": rows, "environment": {"python": "3.12.4"}},
    )
    return ExportSource(trial=trial, info=info, steps=steps, original=original)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.mlp(tmp_path_factory.mktemp("emitters") / "m.onnx")


def write(name: str, what: ExportSource, accepted: str = "") -> str:
    return format_named(name).text(what, accepted)


def refusal(name: str, what: ExportSource) -> str | None:
    """Why a format does not take a trial; None: it takes it."""
    try:
        write(name, what)
    except SpecError as error:
        return f"{error.message} {error.hint}" if error.hint else "without a hint"
    return None


def lost(text: str) -> dict[str, str]:
    """What a file says that it does not carry: the setting's name and the rest of the line."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if NOT_EXPORTED in line), len(lines))
    found = {}
    for line in lines[start + 1 :]:
        match = re.match(r"(?:#|//)   (.+?) = (.+)", line)
        if match is None:
            break
        found[match[1]] = match[2]
    return found


def body(text: str) -> list[str]:
    """The lines that are no comment."""
    return [line for line in text.splitlines() if not line.startswith(("#", "//"))]


# --- no setting is lost in silence --------------------------------------------------------------------------

SAMPLES: dict[str, dict[str, Any]] = {
    "providers": {"session": {"providers": [{"name": CUDA}, {"name": CPU}]}},
    "allow_fallback": {"session": {"allow_fallback": True}},
    "graph_optimization_level": {"session": {"graph_optimization_level": "ORT_ENABLE_BASIC"}},
    "disabled_optimizers": {"session": {"disabled_optimizers": ["ConstantFolding"]}},
    "custom_op_libraries": {"session": {"custom_op_libraries": ["libops.so@sha256:" + "a" * 64]}},
    "provider_libraries": {"session": {"provider_libraries": ["libep.so"]}},
    "execution_mode": {"session": {"execution_mode": "ORT_PARALLEL"}},
    "execution_order": {"session": {"execution_order": "PRIORITY_BASED"}},
    "use_deterministic_compute": {"session": {"use_deterministic_compute": True}},
    "free_dimension_overrides": {"session": {"free_dimension_overrides": {"batch": 2}}},
    "intra_op_num_threads": {"session": {"intra_op_num_threads": 3}},
    "inter_op_num_threads": {"session": {"inter_op_num_threads": 2}},
    "use_per_session_threads": {"session": {"use_per_session_threads": False}},
    "enable_cpu_mem_arena": {"session": {"enable_cpu_mem_arena": False}},
    "enable_mem_pattern": {"session": {"enable_mem_pattern": False}},
    "enable_mem_reuse": {"session": {"enable_mem_reuse": False}},
    "session_config_entries": {"session": {"session_config_entries": {"session.disable_prepacking": "1"}}},
    "run_config_entries": {"session": {"run_config_entries": {"my.key": "1"}, "expert": True}},
    "expert": {"session": {"expert": True}},
    "engine": {"engine": "torch-eager"},
    "runtime": {"runtime": "ort130"},
    "precision": {"model": {"precision": "fp16"}},
    "keep_io_types": {"model": {"precision": "fp16", "keep_io_types": False}},
    "batch_size": {"workload": {"batch_size": 5}},
    "dims": {"workload": {"dims": {"batch": 5}}},
    "use_io_binding": {"workload": {"use_io_binding": True}},
    "streams": {"workload": {"streams": 3}},
    "stream_type": {"workload": {"streams": 2, "stream_type": "processes"}},
    "feeds": {"workload": {"feeds": "feeds.npz"}},
    "feed_values": {"workload": {"feed_values": {"x": 0.5}}},
    "image_mean": {"workload": {"feeds": "feeds.npz", "image_mean": [0.5]}},
    "image_std": {"workload": {"feeds": "feeds.npz", "image_std": [0.5]}},
    "seed": {"workload": {"seed": 7}},
    "protocol.effort": {"protocol": {"effort": "publish"}},
    "budget_s": {"protocol": {"budget_s": 77}},
    "margin": {"protocol": {"margin": 0.3}},
    "tolerance": {"protocol": {"tolerance": 0.3}},
    "warmup_runs": {"protocol": {"warmup_runs": 7}},
    "runs": {"protocol": {"runs": 77}},
    "timeout_s": {"protocol": {"timeout_s": 77}},
    "cpus": {"protocol": {"cpus": "0"}},
}
OPENVINO_VALUES: dict[str, Any] = {
    "device": "AUTO",
    "NUM_STREAMS": 2,
    "INFERENCE_NUM_THREADS": 3,
    "properties": {"MODEL_PRIORITY": "HIGH"},
}
ENTRY_VALUES: dict[str, Any] = {
    "session.intra_op_thread_affinities": "1",
    "memory.enable_memory_arena_shrinkage": "cpu:0",
}


def sample(name: str) -> dict[str, Any]:
    trial_setting = next(one for one in SETTINGS if one.name == name)
    if (part := ENTRIES.get(trial_setting.target)) is not None:
        number = {"bool": str(int(not trial_setting.default)), "int": "4"}.get(trial_setting.kind)
        threads = {"intra_op_num_threads": 2} if name.endswith("affinities") else {}
        return {"session": {part: {name: number or ENTRY_VALUES[name]}, **threads}}
    if trial_setting.target == "openvino":
        value = OPENVINO_VALUES.get(trial_setting.field)
        if value is None:
            value = trial_setting.choices[-1] if trial_setting.choices else not trial_setting.default
        return {"engine": "openvino", "openvino": {trial_setting.field: value}}
    return SAMPLES[name]


def based_on(emitter: str, parts: dict[str, Any], base: dict[str, Any] | None = None) -> dict[str, Any]:
    """The sample on a trial that the format takes; one format is for OpenVINO alone."""
    merged = {**parts, "session": dict(parts.get("session", {}))}
    if emitter == "openvino" and "providers" not in merged["session"] and "engine" not in parts:
        chain = [{"name": OPENVINO, "options": {"device_type": "CPU"}}]
        merged["session"] |= {"providers": chain, "expert": True}
    return merged


@pytest.mark.parametrize("emitter", NAMES)
def test_no_format_loses_a_setting_in_silence(model: Path, emitter: str) -> None:
    plain = write(emitter, source_of(model, **based_on(emitter, {})))
    names = [one.name for one in SETTINGS]
    assert len(names) > 40
    for name in names:
        if (emitter, name) == ("openvino", "stream_type"):  # its provider has no streams that are processes
            continue
        is_not_lost_in_silence(model, emitter, name, plain)


def is_not_lost_in_silence(model: Path, emitter: str, name: str, plain: str) -> None:
    what = source_of(model, **based_on(emitter, sample(name)))
    spec = spec_from_dict(what.trial.spec)
    assert requested_value(spec, name) not in (
        None,
        next(one.default for one in SETTINGS if one.name == name),
    ), "a sample"
    if (refused := refusal(emitter, what)) is not None:
        of_engine = name == "engine" or name.startswith("openvino.")
        assert of_engine or name in ("precision", "keep_io_types") or "OpenVINO" in refused
        return
    text = write(emitter, what)
    entries = ("session_config_entries", "run_config_entries")
    names = [next(iter(sample(name)["session"][name]))] if name in entries else [name]
    for one in names:
        carried = body(text) != body(plain) or one in without_effect(spec)
        carried |= any(by == emitter and words in text for by, words in BY_NATURE.get(one, ()))
        carried |= emitter == "dockerfile" and "All settings are in the bundle" in text
        assert one in lost(text) or carried, f"{emitter} neither carries {one} nor names it"
        assert one not in lost(plain) or one == "expert"


BY_NATURE = {"use_io_binding": [("triton", "always binds inputs and outputs, as the trial did")]}


@pytest.mark.parametrize("emitter", NAMES)
@pytest.mark.parametrize("provider", [CUDA, TENSORRT, OPENVINO])
def test_no_format_loses_an_option_of_a_provider(model: Path, emitter: str, provider: str) -> None:
    known = PROVIDER_OPTIONS.get(provider, ())
    options = {one.name: option_value(one) for one in known if not one.native_code}
    options = options or {
        "device_type": "GPU",
        "precision": "FP16",
        "num_of_threads": "5",
        "load_config": "c.json",
    }
    chain = [{"name": provider, "options": options}, {"name": CPU}]
    session = {"providers": chain, "expert": not known}
    what = source_of(model, session=session)
    if (refused := refusal(emitter, what)) is not None:
        assert provider in refused
        return
    text = write(emitter, what)
    carried = "\n".join(body(text))
    for key in options:
        told = f"{provider}.{key}" in lost(text)
        in_words = key.removeprefix("trt_") in carried or TRITON_WORDS.get(key, key) in carried
        in_words |= emitter == "javascript" and key == "device_id" and "deviceId" in carried
        in_words |= emitter == "dockerfile"
        assert told or in_words, f"{emitter} neither carries {key} nor names it"


TRITON_WORDS = {
    "trt_fp16_enable": "precision_mode",
    "trt_bf16_enable": "precision_mode",
    "trt_int8_enable": "precision_mode",
    "device_id": "gpus: [ 1 ]",
}


def option_value(option: Any) -> str:
    if option.kind == "bool":
        return "0" if option.default in ("1", "True") else "1"
    if option.kind == "choice":
        return str(next(one for one in option.choices if one != option.default))
    return "1" if option.kind == "int" else "text"


@pytest.mark.parametrize("emitter", NAMES)
def test_a_trial_without_wishes_loses_nothing(model: Path, emitter: str) -> None:
    assert lost(write(emitter, source_of(model, **based_on(emitter, {})))).keys() <= {"expert"}


@pytest.mark.parametrize("emitter", NAMES)
def test_outputs_that_differ_leave_only_with_words(model: Path, emitter: str) -> None:
    what = source_of(model, **based_on(emitter, {}))
    guard = {"breach": True, "why": "largest error 0.5"}
    what = replace(what, trial=replace(what.trial, result={**what.trial.facts, "guard": guard}))
    with pytest.raises(SpecError, match=OUTPUTS_DIFFER):
        write(emitter, what)
    reason = "we accept this"
    text = write(emitter, what, reason)
    assert guard["why"] in text
    assert "accepted_breach" in text
    assert reason in text


@pytest.mark.parametrize("emitter", [one for one in NAMES if one != "yaml"])
def test_another_engine_is_refused_with_a_way_out(model: Path, emitter: str) -> None:
    with pytest.raises(SpecError, match="torch-eager") as refused:
        write(emitter, source_of(model, engine="torch-eager"))
    assert "YAML" in refused.value.hint


def test_the_table_says_of_every_format_what_it_cannot_express() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for one in FORMATS:
        assert one.purpose
        assert one.cannot
        assert one.ending.startswith(".")
    with pytest.raises(SpecError, match="trition") as refused:
        format_named("trition")
    assert "`triton`" in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["csharp", "counterparts"])
def test_a_removed_format_names_the_page_that_replaces_it(name: str) -> None:
    with pytest.raises(SpecError, match=f"{name}.*removed") as refused:
        format_named(name)
    assert OTHER_RUNTIMES in refused.value.hint
    assert (Path(__file__).parents[2] / OTHER_RUNTIMES).is_file()


def test_the_documentation_has_the_table_as_the_code_has_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "export-formats.md").read_text(
        encoding="utf-8"
    )
    assert md_text(formats_table(), cell=md_cell) in page


# --- programs -----------------------------------------------------------------------------------------------

EVERYTHING: dict[str, Any] = {
    "session": {
        "graph_optimization_level": "ORT_ENABLE_EXTENDED",
        "execution_mode": "ORT_PARALLEL",
        "intra_op_num_threads": 2,
        "inter_op_num_threads": 2,
        "enable_cpu_mem_arena": False,
        "enable_mem_pattern": False,
        "disabled_optimizers": ["ConstantFolding", "GemmActivationFusion"],
        "session_config_entries": {"session.intra_op.allow_spinning": "0", "session.disable_prepacking": "1"},
    },
    "workload": {"batch_size": 3, "seed": 5},
}


@functools.cache
def has_node() -> str:
    """Why no program of Node can run here; empty: one can."""
    if shutil.which("node") is None:
        return "there is no node"
    found = subprocess.run(["node", "-e", 'require("onnxruntime-node")'], capture_output=True)
    return "" if found.returncode == 0 else "node has no onnxruntime-node (npm install; NODE_PATH)"


def run(command: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(bool(has_node()), reason=has_node() or "-")
@pytest.mark.parametrize("parts", [{}, EVERYTHING], ids=["default", "everything"])
def test_the_program_for_node_runs(model: Path, tmp_path: Path, parts: dict[str, Any]) -> None:
    rows = parts.get("workload", {}).get("batch_size", 2)
    (tmp_path / "run.js").write_text(write("javascript", source_of(model, **parts)), encoding="utf-8")
    assert run(["node", "run.js"], tmp_path).strip() == f"y [{rows},4]"


@pytest.mark.skipif(bool(has_node()), reason=has_node() or "-")
def test_the_program_for_node_feeds_every_type_and_passes_entries_on(tmp_path: Path) -> None:
    path = tiny_models.every_dtype(tmp_path / "every.onnx")
    (tmp_path / "run.js").write_text(write("javascript", source_of(path)), encoding="utf-8")
    run(["node", "run.js"], tmp_path)
    # ONNX Runtime complains of what it reads: so it read the entry
    name = "session.intra_op_thread_affinities"
    session = {"intra_op_num_threads": 2, "session_config_entries": {name: "1"}}
    text = write("javascript", source_of(path, session=session))
    assert f'"{name}": "1"' in text
    (tmp_path / "bad.js").write_text(
        text.replace(f'"{name}": "1"', f'"{name}": "nonsense"'), encoding="utf-8"
    )
    done = subprocess.run(["node", "bad.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "ReadThreadAffinityConfig" in done.stderr


@pytest.mark.skipif(bool(has_node()), reason=has_node() or "-")
def test_the_program_for_node_stops_on_another_model(tmp_path: Path) -> None:
    path = tiny_models.mlp(tmp_path / "m.onnx")
    (tmp_path / "run.js").write_text(write("javascript", source_of(path)), encoding="utf-8")
    tiny_models.mlp(path, hidden=8)
    done = subprocess.run(["node", "run.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "measured" in done.stderr


def cpp_headers() -> list[str] | None:
    """Options with which g++ finds ONNX Runtime's C++ header; None: it does not."""
    if shutil.which("g++") is None:
        return None
    places = [
        f"{root}/include/onnxruntime{sub}" for root in ("/usr", "/usr/local") for sub in ("", "/core/session")
    ]
    for options in ([], *(["-I", place] for place in places if Path(place).is_dir())):
        tried = subprocess.run(
            ["g++", "-std=c++17", *options, "-fsyntax-only", "-x", "c++", "-"],
            input=b"#include <onnxruntime_cxx_api.h>\n",
            capture_output=True,
        )
        if tried.returncode == 0:
            return list(options)
    return None


NO_HEADER = "g++ finds no onnxruntime_cxx_api.h (CPLUS_INCLUDE_PATH)"


def library() -> Path:
    """ONNX Runtime's library in the installed package."""
    import onnxruntime

    (found,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    return found


@pytest.mark.skipif(cpp_headers() is None, reason=NO_HEADER)
@pytest.mark.parametrize(
    "parts",
    [
        {},
        EVERYTHING,
        {"workload": {"batch_size": 2, "use_io_binding": True, "feed_values": {"x": 0.25}}},
        {"session": {"use_per_session_threads": False, "free_dimension_overrides": {"batch": 2}}},
        {"session": {"run_config_entries": {"memory.enable_memory_arena_shrinkage": "cpu:0"}}},
    ],
    ids=["default", "everything", "bound", "pools", "run entry"],
)
def test_the_program_in_cpp_compiles_and_runs(model: Path, tmp_path: Path, parts: dict[str, Any]) -> None:
    rows = parts.get("workload", {}).get("batch_size", 2)
    assert compiled(write("cpp", source_of(model, **parts)), tmp_path) == f"y [{rows}, 4]"


@pytest.mark.skipif(cpp_headers() is None, reason=NO_HEADER)
def test_the_program_in_cpp_feeds_every_type(tmp_path: Path) -> None:
    assert compiled(write("cpp", source_of(tiny_models.every_dtype(tmp_path / "every.onnx"))), tmp_path)


@pytest.mark.skipif(cpp_headers() is None, reason=NO_HEADER)
def test_the_program_in_cpp_feeds_bfloat16(tmp_path: Path) -> None:
    what = source_of(tiny_models.identity(tmp_path / "b.onnx", "bfloat16"))
    assert compiled(write("cpp", what), tmp_path) == "y [2, 4]"


@pytest.mark.skipif(cpp_headers() is None, reason=NO_HEADER)
@pytest.mark.parametrize("provider", [CUDA, TENSORRT, OPENVINO])
def test_the_program_in_cpp_names_providers_as_the_header_does(
    model: Path, tmp_path: Path, provider: str
) -> None:
    chain = [{"name": provider, "options": {"device_id": "0"}}, {"name": CPU}]
    session = {"providers": chain, "expert": True}
    text = write("cpp", source_of(model, session=session, workload={"use_io_binding": True}))
    (tmp_path / "run.cpp").write_text(text, encoding="utf-8")
    run(["g++", "-std=c++17", *(cpp_headers() or []), "-fsyntax-only", "run.cpp"], tmp_path)


def compiled(text: str, folder: Path) -> str:
    (folder / "run.cpp").write_text(text, encoding="utf-8")
    (folder / "libonnxruntime.so.1").symlink_to(library())  # the name that is written into programs
    options = [*(cpp_headers() or []), "-Wall", "run.cpp", "-o", "run", "libonnxruntime.so.1", "-Wl,-rpath,."]
    run(["g++", "-std=c++17", *options], folder)
    return run(["./run"], folder, ORT_DISABLE_TELEMETRY="1").strip()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_says_that_it_was_not_compiled_or_needs_no_compiler(model: Path, name: str) -> None:
    assert ("COMPILED" in write(name, source_of(model))) is (name == "cpp")


@pytest.mark.parametrize(
    ("dtype", "value", "written"),
    [
        ("int64", 2**53 + 1, ("9007199254740993n", "INT64_C(9007199254740993)")),
        ("int64", -(2**63), ("-9223372036854775808n", "INT64_MIN")),
        (
            "uint64",
            2**64 - 1,
            ("18446744073709551615n", "UINT64_C(18446744073709551615)"),
        ),
    ],
)
def test_whole_numbers_are_fed_exactly(
    tmp_path: Path, dtype: str, value: int, written: tuple[str, str]
) -> None:
    what = source_of(tiny_models.identity(tmp_path / "i.onnx", dtype), workload={"feed_values": {"x": value}})
    for name, text in zip(("javascript", "cpp"), written, strict=True):
        assert text in write(name, what)


def test_disabled_optimizers_are_told_by_a_config_entry_that_does_the_same(
    model: Path, tmp_path: Path
) -> None:
    """Only programs in Python have an argument for them: the entry must give the same graph."""
    import onnxruntime as ort

    path = tiny_models.conv(tmp_path / "conv.onnx")
    (entry,) = re.findall(
        r'"(optimization[^"]+)": "([^"]+)"',
        write(
            "javascript",
            source_of(path, session={"disabled_optimizers": ["ConvActivationFusion", "ConvBNFusion"]}),
        ),
    )
    graphs = {}
    for name in ("argument", "entry", "neither"):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(tmp_path / f"{name}.onnx")
        if name == "entry":
            options.add_session_config_entry(*entry)
        names = entry[1].split(";") if name == "argument" else []
        ort.InferenceSession(str(path), options, providers=[CPU], disabled_optimizers=names)
        graphs[name] = [node.op_type for node in onnx.load(tmp_path / f"{name}.onnx").graph.node]
    assert graphs["argument"] == graphs["entry"] != graphs["neither"]


def test_the_command_line_of_perf_test_holds_every_setting(model: Path) -> None:
    text = write("perf-test", source_of(model, **{**EVERYTHING, "protocol": {"runs": 50, "cpus": "0-1"}}))
    words = shlex.split(text.split("exec ", 1)[1])
    assert words[:4] == ["taskset", "-c", "0-1", "onnxruntime_perf_test"]
    pairs = dict(itertools.pairwise(words))
    assert (pairs["-e"], pairs["-x"], pairs["-y"], pairs["-o"], pairs["-r"]) == ("cpu", "2", "2", "2", "50")
    assert {"-P", "-A", "-M", "-I"} <= set(words)
    assert "session.disable_prepacking|1" in pairs["-C"].split()
    assert pairs["--data_shape"] == "x:[3,16]"
    assert words[-1] == str(model)


def test_perf_test_takes_one_accelerator_and_says_what_it_leaves_out(model: Path) -> None:
    session = {"providers": [{"name": TENSORRT, "options": {"trt_fp16_enable": "1"}}, {"name": CUDA}]}
    text = write("perf-test", source_of(model, session=session))
    assert CUDA in lost(text)["providers"]
    assert "trt_fp16_enable|True" in shlex.split(text.split("exec ", 1)[1])


# --- the model's own metadata -------------------------------------------------------------------------------

READ_BACK = """
import json, sys
import onnxruntime as ort
found = []
for path in sys.argv[1:]:
    options = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).get_session_options()
    found.append([options.intra_op_num_threads, options.inter_op_num_threads, options.execution_mode.name,
                  options.graph_optimization_level.name])
print(json.dumps(found))
"""


def read_back(paths: Sequence[Path], folder: Path, switch: str = "1") -> list[Any]:
    """What a session has of each model, all in one process."""
    variables = {"ORT_LOAD_CONFIG_FROM_MODEL": switch, "ORT_DISABLE_TELEMETRY": "1"}
    return list(json.loads(run([sys.executable, "-c", READ_BACK, *map(str, paths)], folder, **variables)))


LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")


def test_onnx_runtime_takes_the_settings_from_the_copy(model: Path, tmp_path: Path) -> None:
    copies = [tmp_path / f"{level}.onnx" for level in LEVELS]
    for level, path in zip(LEVELS, copies, strict=True):
        session = {**EVERYTHING["session"], "graph_optimization_level": level, "intra_op_num_threads": 3}
        path.write_bytes(format_named("ort-config").content(source_of(model, session=session)))
    assert read_back(copies, tmp_path) == [[3, 2, "ORT_PARALLEL", level] for level in LEVELS]
    assert read_back(copies[:1], tmp_path, "0") == [[0, 0, "ORT_SEQUENTIAL", "ORT_ENABLE_ALL"]]
    copy = onnx.load(copies[-1])
    onnx.checker.check_model(copy)
    metadata = {one.key: one.value for one in copy.metadata_props}
    assert json.loads(metadata[KEY])["session_options"]["intra_op_num_threads"] == 3
    assert "enable_cpu_mem_arena" in metadata[NOTE_KEY]
    original = onnx.load(model)
    assert copy.graph == original.graph


def test_the_copy_is_refused_where_it_would_be_another_model(model: Path, tmp_path: Path) -> None:
    config = format_named("ort-config")
    with pytest.raises(SpecError, match="FP16"):
        config.text(source_of(model, model={"precision": "fp16"}))
    with pytest.raises(SpecError, match="external weights"):
        config.text(source_of(tiny_models.external_data(tmp_path / "e.onnx")))
    path = tiny_models.mlp(tmp_path / "m.onnx")
    what = source_of(path)
    tiny_models.mlp(path, hidden=8)
    with pytest.raises(ModelError, match=re.escape(path.name)):
        config.content(what)
    path.unlink()
    with pytest.raises(ModelError, match=re.escape(path.name)):
        config.content(what)
    taken = onnx.load(model)
    entry = taken.metadata_props.add()
    entry.key, entry.value = KEY, "{}"
    onnx.save(taken, tmp_path / "taken.onnx")
    with pytest.raises(SpecError, match="already"):
        config.text(source_of(tmp_path / "taken.onnx"))


# --- Triton -------------------------------------------------------------------------------------------------


def triton_config(what: ExportSource) -> Any:
    """The file, read into Triton's own message."""
    pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed (extra `triton`)")
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse(write("triton", what), model_config_pb2.ModelConfig())


def test_triton_reads_inputs_batch_and_instances(model: Path) -> None:
    config = triton_config(source_of(model, workload={"batch_size": 4}))
    assert (config.name, config.backend, config.max_batch_size) == ("tiny", "onnxruntime", 4)
    (fed,), (got,) = config.input, config.output
    assert (fed.name, list(fed.dims), got.name, list(got.dims)) == ("x", [16], "y", [4])
    assert (
        fed.data_type
        == fed.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name["TYPE_FP32"].number
    )
    (group,) = config.instance_group
    assert (group.count, group.kind) == (1, group.KIND_CPU)
    assert not config.HasField("dynamic_batching")
    (warm,) = config.model_warmup
    assert warm.batch_size == 4
    assert list(warm.inputs["x"].dims) == [16]
    assert warm.inputs["x"].random_data


BATCHING = {"max_batch_size": 8, "max_queue_delay_microseconds": 2000, "preferred_batch_size": [4, 8]}


def test_triton_reads_dynamic_batching(model: Path) -> None:
    what = source_of(model, workload={"batch_size": 4}, dynamic_batching=BATCHING)
    config = triton_config(what)
    assert config.max_batch_size == 8  # Triton forms no larger batch
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    assert config.model_warmup[0].batch_size == 4  # what was measured
    assert "dynamic_batching" not in lost(write("triton", what))
    plain = triton_config(source_of(model, dynamic_batching={"max_batch_size": 2}))
    assert plain.HasField("dynamic_batching")
    assert list(plain.dynamic_batching.preferred_batch_size) == []


def test_triton_says_where_it_batches_differently(model: Path, tmp_path: Path) -> None:
    what = source_of(model, workload={"batch_size": 16}, dynamic_batching=BATCHING)
    assert triton_config(what).max_batch_size == 16
    assert "16 samples" in lost(write("triton", what))["dynamic_batching.max_batch_size"]
    fixed = source_of(tiny_models.fixed_batch(tmp_path / "f.onnx"), dynamic_batching=BATCHING)
    assert not triton_config(fixed).HasField("dynamic_batching")
    assert "max_batch_size" in lost(write("triton", fixed))["dynamic_batching"]


@pytest.mark.parametrize("emitter", NAMES)
def test_other_formats_carry_dynamic_batching_or_say_that_they_do_not(model: Path, emitter: str) -> None:
    text = write(emitter, source_of(model, **based_on(emitter, {"dynamic_batching": BATCHING})))
    if emitter in ("yaml", "bundle", "triton", "dockerfile"):
        assert "dynamic_batching" not in lost(text)
        assert emitter == "dockerfile" or "max_queue_delay_microseconds" in text
    else:
        assert "the server's" in lost(text)["dynamic_batching"]


def test_triton_reads_every_setting_that_its_back_end_knows(model: Path) -> None:
    session = {
        **EVERYTHING["session"],
        "run_config_entries": {"memory.enable_memory_arena_shrinkage": "cpu:0"},
    }
    config = triton_config(source_of(model, session=session, protocol={"warmup_runs": 3}))
    told = {key: value.string_value for key, value in config.parameters.items()}
    assert told == {
        "intra_op_thread_count": "2",
        "inter_op_thread_count": "2",
        "execution_mode": "1",
        "enable_mem_arena": "0",
        "enable_mem_pattern": "0",
        "memory.enable_memory_arena_shrinkage": "cpu:0",
    }
    assert config.optimization.graph.level == 1
    assert config.model_warmup[0].count == 3
    text = write("triton", source_of(model, session=session))
    assert {"disabled_optimizers", "session.disable_prepacking", "session.intra_op.allow_spinning"} <= lost(
        text
    ).keys()


def test_triton_reads_accelerators_with_their_options(model: Path) -> None:
    tensorrt = {
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": "1024",
        "trt_cuda_graph_enable": "1",
        "device_id": "1",
    }
    cuda = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC", "enable_cuda_graph": "1"}
    chain = [{"name": TENSORRT, "options": tensorrt}, {"name": CUDA, "options": cuda}]
    config = triton_config(source_of(model, session={"providers": chain}))
    (group,) = config.instance_group
    assert (group.kind, list(group.gpus)) == (group.KIND_GPU, [1])
    first, second = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert (first.name, dict(first.parameters)) == (
        "tensorrt",
        {"precision_mode": "FP16", "max_workspace_size_bytes": "1024", "trt_cuda_graph_enable": "1"},
    )
    assert (second.name, dict(second.parameters)) == ("cuda", {"use_tf32": "0", "enable_cuda_graph": "1"})
    # one of the four that the back end takes from the model's parameters alone
    assert config.parameters["cudnn_conv_algo_search"].string_value == "1"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (tiny_models.fixed_batch, "batch is fixed"),
        (tiny_models.scalar, "is not a batch dimension"),
    ],
)
def test_a_model_that_triton_cannot_batch_goes_without_and_says_so(
    tmp_path: Path, make: Any, why: str
) -> None:
    what = source_of(make(tmp_path / "m.onnx"))
    config = triton_config(what)
    assert config.max_batch_size == 0
    text = write("triton", what)
    assert "max_batch_size: 0  # " in text
    assert what.info is not None
    assert len(config.input) == len(what.info["inputs"])
    for one, declared in zip(config.input, what.info["inputs"], strict=True):
        free = [size if isinstance(size, int) else -1 for size in declared["shape"] or []]
        assert list(one.dims) == (free or [1])
        assert one.HasField("reshape") is (not free)


def test_the_zip_is_a_model_repository(tmp_path: Path) -> None:
    path = tiny_models.external_data(tmp_path / "e.onnx")
    with zipfile.ZipFile(io.BytesIO(format_named("triton").content(source_of(path)))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["tiny/config.pbtxt", "tiny/1/model.onnx", "tiny/1/weights.bin"]
        assert archive.read("tiny/1/model.onnx") == path.read_bytes()
        archive.extractall(tmp_path / "repository")
    import onnxruntime as ort

    ort.InferenceSession(str(tmp_path / "repository/tiny/1/model.onnx"), providers=[CPU])


def test_weights_that_are_not_those_that_were_measured_go_into_no_repository(tmp_path: Path) -> None:
    what = source_of(tiny_models.external_data(tmp_path / "e.onnx"))
    beside = tmp_path / "weights.bin"
    data = beside.read_bytes()
    beside.write_bytes(bytes(len(data)))
    with pytest.raises(ModelError, match=r"weights\.bin`"):
        format_named("triton").content(what)
    beside.unlink()
    with pytest.raises(ModelError, match=r"weights\.bin`"):
        format_named("triton").content(what)
    assert what.info is not None
    outside = {"location": "../weights.bin", "size_bytes": 1, "sha256": "0" * 64}
    with pytest.raises(SpecError, match="folder"):
        format_named("triton").content(replace(what, info={**what.info, "external_data": [outside]}))


def test_triton_refuses_what_it_cannot_serve(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="DmlExecutionProvider"):
        write("triton", source_of(model, session={"providers": [{"name": "DmlExecutionProvider"}]}))
    with pytest.raises(SpecError, match="known"):
        write("triton", replace(source_of(model), info=None))
    with pytest.raises(SpecError, match="describe"):
        write("triton", source_of(tiny_models.rank_unknown(tmp_path / "r.onnx")))


# --- OpenVINO, and the same setting in other formats --------------------------------------------------------


def test_the_settings_for_openvino_hold_device_streams_precision_and_hint(model: Path) -> None:
    options = {
        "device_type": "GPU.1",
        "precision": "FP16",
        "num_streams": "2",
        "num_of_threads": "5",
        "cache_dir": "c",
    }
    session = {
        "providers": [{"name": OPENVINO, "options": options}, {"name": CPU}],
        "intra_op_num_threads": 3,
        "expert": True,
    }
    text = write("openvino", source_of(model, session=session))
    data = yaml.safe_load(text)
    assert data["device"] == "GPU.1"
    assert data["onnxruntime"] == {"provider": OPENVINO, "provider_options": options}
    assert data["openvino"] == {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f16",
        "NUM_STREAMS": 2,
        "INFERENCE_NUM_THREADS": 5,
        "CACHE_DIR": "c",
    }
    assert "intra_op_num_threads" in lost(text)
    with pytest.raises(SpecError, match="OpenVINO") as refused:
        write("openvino", source_of(model))
    assert OTHER_RUNTIMES in refused.value.hint


# --- Dockerfile ---------------------------------------------------------------------------------------------


def test_the_dockerfile_installs_from_a_folder_and_ends_with_verify(model: Path, tmp_path: Path) -> None:
    parser = pytest.importorskip("dockerfile_parse", reason="dockerfile-parse is not installed")
    chain = [{"name": CUDA}]
    text = write("dockerfile", source_of(model, session={"providers": chain}, protocol={"cpus": "0-1"}))
    read = parser.DockerfileParser(str(tmp_path))
    read.content = text
    steps = [(one["instruction"], one["value"]) for one in read.structure if one["instruction"] != "COMMENT"]
    assert [name for name, _ in steps][-2:] == ["ENV", "CMD"]
    assert json.loads(steps[-1][1]) == ["python", "-m", "core", "verify", "bundle.zip"]
    assert ("COPY", "${BUNDLE} bundle.zip") in steps
    assert ("ARG", "BUNDLE=bundle.zip") in steps
    assert ("RUN", "pip install --no-cache-dir /opt/ortune") in steps
    assert read.baseimage == "python:3.12-slim"
    assert "--gpus all" in text
    assert "--cpuset-cpus 0-1" in text
    assert "index" in text


# --- Olive --------------------------------------------------------------------------------------------------

CHAINS: dict[str, list[Step]] = {
    "none": [],
    **{one.kind: [Step(one.kind)] for one in STEPS if one.kind != "fix_dims"},
    "fix_dims": [Step("fix_dims", {"dims": {"batch": 2}})],
    "chain": [
        Step("fix_dims", {"dims": {"batch": 2}}),
        Step("int8_static", {"per_channel": True, "calibrate_method": "Percentile", "exclude_nodes": ["a"]}),
    ],
}


def olive_python() -> str | None:
    """The interpreter that has Olive: this one, or the one beside `olive` on the path."""
    try:
        importlib.metadata.version("olive-ai")
    except importlib.metadata.PackageNotFoundError:
        found = shutil.which("olive")
        return str(Path(found).with_name("python")) if found else None
    return sys.executable


PARSE = """
import sys
from olive.workflows.run.config import RunConfig
from olive.package_config import OlivePackageConfig
from olive.hardware import AcceleratorSpec
package = OlivePackageConfig.load_default_config()
for path in sys.argv[1:]:
    config = RunConfig.parse_file_or_obj(path)
    for passes in config.passes.values():
        for one in passes:
            kind = package.import_pass_module(one.type)
            cpu = AcceleratorSpec("cpu", "CPUExecutionProvider")
            kind.generate_config(cpu, one.config, disable_search=True)
print("read", len(sys.argv) - 1)
"""


@pytest.mark.skipif(
    olive_python() is None,
    reason="Olive is not installed (extra `olive`, or `olive` of another environment on the path)",
)
def test_olive_reads_every_workflow(model: Path, tmp_path: Path) -> None:
    paths = []
    for name, steps in CHAINS.items():
        what = source_of(model, steps=tuple(steps), original=str(model), **EVERYTHING)
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(write("olive", what), encoding="utf-8")
    told = run([olive_python() or "", "-c", PARSE, *map(str, paths)], tmp_path, OLIVE_DISABLE_TELEMETRY="1")
    assert f"read {len(CHAINS)}" in told


@pytest.mark.parametrize("name", CHAINS)
def test_olive_gets_a_pass_for_a_step_or_is_told_that_there_is_none(model: Path, name: str) -> None:
    text = write("olive", source_of(model, steps=tuple(CHAINS[name]), original="original.onnx"))
    data = yaml.safe_load(text)
    assert data["input_model"]["model_path"] == "original.onnx"
    for number, step in enumerate(CHAINS[name], start=1):
        named = any(one.startswith(f"step {number}, ") for one in lost(text))
        assert f"{number}_{step.kind}" in data["passes"] or named
    if name == "chain":
        made = data["passes"]["2_int8_static"]
        assert (made["per_channel"], made["nodes_to_exclude"]) == (True, ["a"])
        assert data["data_configs"][0]["name"] == made["data_config"]
        assert tells(lost(text), " 2, ")


def test_olive_gets_the_session_and_the_fp16_copy(model: Path) -> None:
    data = yaml.safe_load(write("olive", source_of(model, **EVERYTHING, model={"precision": "fp16"})))
    settings = data["input_model"]["inference_settings"]
    assert settings["execution_provider"] == [CPU]
    assert settings["session_options"]["intra_op_num_threads"] == 2
    assert settings["session_options"]["extra_session_config"]["session.disable_prepacking"] == "1"
    assert data["passes"] == {"fp16": {"type": "OnnxFloatToFloat16", "keep_io_types": True}}


# --- free dimensions and several inputs ---------------------------------------------------------------------


@pytest.mark.parametrize("emitter", [one for one in NAMES if one != "openvino"])
@pytest.mark.parametrize("make", [tiny_models.tokens, tiny_models.unnamed_dims, tiny_models.sum_free])
def test_free_dimensions_are_written_with_the_sizes_that_were_fed(
    tmp_path: Path, emitter: str, make: Any
) -> None:
    path = make(tmp_path / "m.onnx")
    text = write(emitter, source_of(path))
    assert text.strip()
    if emitter in PROGRAMS:
        for one in source_of(path).trial.facts["inputs"]:
            shape = re.sub(r"\s", "", ",".join(map(str, one["shape"])))
            assert shape in re.sub(r"\s", "", text)


@pytest.mark.parametrize("emitter", NAMES)
def test_a_trial_that_failed_leaves_or_says_why_not(model: Path, emitter: str) -> None:
    bare = replace(source_of(model), info=None)
    bare = replace(bare, trial=replace(bare.trial, state="FAIL", result=None))
    refused = refusal(emitter, bare)
    assert refused is None or any(word in refused for word in ("known", "OpenVINO", "complete"))
