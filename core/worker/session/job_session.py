"""Sessions for a job's own use, the graphs that sessions save, and the job `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from core import wire
from core.wire.errors import ModelError
from core.worker.session import CPU, ORT_ERRORS, build_session, operator_options
from core.worker.session.ort_errors import first_line, unregistered


def load_model(path: str, libraries: Sequence[str] = ()) -> wire.LoadCheckReply:
    """Load the model at `path` on the CPU with ONNX Runtime's defaults, and return its version.

    Args:
        path: of the model.
        libraries: operator libraries, in the form of `access.resolve_library`.

    Raises:
        ModelError: ONNX Runtime refuses the model.
        SpecError: a library is not allowed or cannot be loaded.
        WorkerError: there is not enough memory.
    """
    built = build_session(path, {**wire.default_session_plan(), "custom_op_libraries": list(libraries)})
    return {"version": ort.__version__, "creation_s": built.creation_s, "libraries": built.libraries}


def job_session(
    model: Path,
    level: str,
    *,
    complaint: str,
    hint: str,
    entries: Mapping[str, str] | None = None,
    save_to: Path | None = None,
    disabled: Sequence[str] = (),
) -> ort.InferenceSession:
    """Load a model on the CPU for a job's own use: with the held operators, and without a log.

    Args:
        model: the file; external data lies next to it.
        level: optimization level, by ONNX Runtime's name.
        complaint: start of the message if ONNX Runtime refuses the model.
        hint: of the same error.
        entries: session config entries.
        save_to: path for the optimized graph, if any.
        disabled: optimizers to leave out.

    Raises:
        ModelError: ONNX Runtime refuses it.
        SpecError: ONNX Runtime cannot load a library.
    """
    options = operator_options()
    options.log_severity_level = 4  # errors are raised, so no log is needed
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    if save_to is not None:
        options.optimized_model_filepath = str(save_to)
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    keywords: dict[str, Any] = {"disabled_optimizers": list(disabled)} if disabled else {}
    try:
        return ort.InferenceSession(str(model), options, providers=[CPU], **keywords)
    except ORT_ERRORS as error:
        message = f"{complaint}: {first_line(error)}"
        raise unregistered(str(error)) or ModelError(message, hint=hint) from None


def save_graph(plan: wire.SaveGraphPlan) -> wire.SaveGraphReply:
    """Build the session of `plan`, which saves its optimized graph.

    Raises:
        ModelError: ONNX Runtime refuses the model, or saves no graph.
        TunerError: as for `build_session`.
    """
    built = build_session(plan["model_path"], saving_graph(plan["session"], plan["graph_path"]))
    check_saved(Path(plan["graph_path"]))
    return built.providers()


def check_saved(graph: Path) -> None:
    """Refuse a session that saved no optimized graph.

    Raises:
        ModelError: there is no file.
    """
    if not graph.is_file():
        raise ModelError(
            "ONNX Runtime saved no optimized graph of this session.",
            hint="Choose the CPU provider: a graph that another one has compiled cannot be saved.",
        )


def weights_beside(name: str) -> dict[str, str]:
    """Return the config entries that keep the weights of a saved graph in the file `name` beside it."""
    return {
        "session.optimized_model_external_initializers_file_name": name,
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    }


def saving_graph(plan: wire.SessionPlan, path: str) -> wire.SessionPlan:
    """Return the plan of the same session that also saves its optimized graph to `path`.

    The name of the file with the weights begins with that of the graph.
    """
    weights = weights_beside(f"{Path(path).name}.weights")
    return {
        **plan,
        "attributes": {**plan["attributes"], "optimized_model_filepath": path},
        "config_entries": {**plan["config_entries"], **weights},
    }
