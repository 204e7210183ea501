"""The page of the YAML configuration format, from the pydantic models of `core/spec`."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from core.show.schema import commented_classes
from core.spec import (
    SCHEMA,
    ModelRef,
    ProtocolSpec,
    ProviderSpec,
    SessionSpec,
    TrialSpec,
    WorkloadSpec,
    spec_from_dict,
    spec_from_yaml,
    with_changes,
    yaml_from_spec,
)
from core.spec.datasets import DatasetSpec, PreprocessingSpec
from core.spec.effort import EFFORTS
from core.spec.load import BatchingSpec
from core.spec.openvino import OpenVinoSpec
from core.spec.settings import ENTRIES, SETTINGS
from core.spec.targets import TargetSpec
from docs.generator.markdown import bullets, code, codes, fence, link, page, table, value

# part of a file -> its model, and what it holds
PARTS: dict[str, tuple[type[BaseModel], str]] = {
    "model": (ModelRef, "Which model."),
    "session": (SessionSpec, "What ORTune asks of ONNX Runtime's session. What is absent is not passed on."),
    "session.providers": (ProviderSpec, "A list: the provider chain, in order of preference."),
    "workload": (WorkloadSpec, "The inputs of one inference, and how ORTune passes them."),
    "protocol": (ProtocolSpec, "How precisely to measure, and for how long."),
    "openvino": (
        OpenVinoSpec,
        "Settings of the engine OpenVINO, by its own names.",
    ),
    "dynamic_batching": (
        BatchingSpec,
        "Dynamic batching of requests in front of the session; the keys are Triton's. Load tests use it, and "
        "`--format triton` writes it. Comparisons run without it.",
    ),
    "dataset": (DatasetSpec, "Labelled data for accuracy. Has no influence on timing."),
    "dataset.preprocessing": (PreprocessingSpec, "What ORTune does to each image, in this order."),
    "targets": (TargetSpec, "A list: limits that `ortune scorecard` checks."),
}
_SECTIONS = {"attribute": "session", "trial": ""}
_ROWS = {
    (_SECTIONS.get(one.target, one.target), one.field): one for one in SETTINGS if one.target not in ENTRIES
}
_OWN = {  # keys that no table describes
    ("model", "path"): "Path of the `.onnx` file, name of a library model, or hash of one.",
    ("model", "sha256"): "SHA-256 of the `.onnx` file. ORTune refuses another file under the same path.",
    ("session.providers", "name"): "ONNX Runtime's full name, such as `CUDAExecutionProvider`.",
    ("session.providers", "options"): "Options as texts, see [Execution providers](providers.md).",
    ("dataset", "path"): "An `.npz` file, a CSV file, or a folder of images with one folder per class.",
    ("dataset", "preprocessing"): "See [`dataset.preprocessing`](#datasetpreprocessing).",
    ("targets", "metric"): "What to limit. See [Metrics](metrics.md#metrics). Required, unless the target is "
    "under `load`.",
    (
        "targets",
        "load",
    ): "A rate with a latency limit, `200/s with p99<=20ms`. Such a target has no other key. "
    "See [Targets under load](metrics.md#targets-under-load).",
    ("targets", "at_most"): "Upper limit with its unit, such as `3 ms`.",
    ("targets", "at_least"): "Lower limit with its unit, such as `98 %`.",
}
_KINDS = {
    **dict.fromkeys((("targets", "at_most"), ("targets", "at_least")), "number, or text with a unit"),
    ("targets", "load"): "text",
}


def yaml_format() -> str:
    """Return the page of the YAML format."""
    return page(
        "# YAML configuration",
        "A YAML file holds one configuration. `ortune export --format yaml` and `ortune search -o` write "
        "it; every command that takes `--config` reads it. Unknown keys, duplicate keys and wrong types are "
        "errors.",
        fence("ortune export TRIAL --format yaml -o best.yaml\nortune tune --config best.yaml", "sh"),
        "## Example",
        fence(example(), "yaml"),
        "## Top level",
        table(["Key", "Type", "Default", "Meaning"], _top()),
        *(text for name, (model, about) in PARTS.items() for text in _part(name, model, about)),
        "## Config entries",
        "`session.session_config_entries` and `session.run_config_entries` map ONNX Runtime's keys to texts. "
        'Write switches as `"0"` and `"1"`. These keys have a setting of their own:',
        bullets(
            f"{link(code(one.name), one.name, 'settings.md')} in {code(f'session.{ENTRIES[one.target]}')}"
            for one in SETTINGS
            if one.target in ENTRIES
        ),
        "Other keys are accepted if ONNX Runtime knows them. `expert` accepts any key, but a file cannot "
        "turn `expert` on by itself: use `--expert` or `ORTUNE_ALLOW_EXPERT=1`.",
    )


def example() -> str:
    """Return a configuration that reads back as it is."""
    effort = next(one.name for one in SETTINGS if one.choices == tuple(EFFORTS))
    plain = spec_from_dict(
        {
            "model": {"path": "model.onnx"},
            "dynamic_batching": {"max_batch_size": 8, "max_queue_delay_microseconds": 2000},
            "dataset": {"path": "labelled.npz"},
            "targets": [
                {"metric": "latency_p99", "at_most": "3 ms", "batch_size": 1},
                {"metric": "accuracy", "at_least": "97 %"},
                {"load": "200/s with p99<=20ms"},
            ],
        }
    )
    wanted = with_changes(
        plain,
        {
            "intra_op_num_threads": 4,
            "graph_optimization_level": "ORT_ENABLE_EXTENDED",
            "session.intra_op.allow_spinning": False,
            "providers": ("CPUExecutionProvider",),
            "batch_size": 8,
            "dims": {"sequence": 128},
            effort: "standard",
        },
    )
    text = yaml_from_spec(wanted)
    assert spec_from_yaml(text) == wanted, "the example is a valid configuration"
    return text


def _top() -> Iterator[list[str]]:
    yield ["`schema`", "whole number", "required", f"Version of the format: {SCHEMA}."]
    for name, field in TrialSpec.model_fields.items():
        described = PARTS.get(name)
        row = _ROWS.get(("", name))
        meaning = f"{described[1]} See {link(code(name), name)}." if described else row.help if row else ""
        kind = "list" if name == "targets" else "mapping" if described else type_text(field.annotation)
        yield [code(name), kind, "required" if field.is_required() else _top_default(field), meaning]
    yield ["`measured`", "mapping", "absent", "What was measured. Informative; ORTune does not read it."]
    yield [
        "`environment`",
        "mapping",
        "absent",
        "Where it was measured. Informative; ORTune does not read it.",
    ]


def _top_default(field: Any) -> str:
    default = field.get_default(call_default_factory=True)
    return "absent" if default is None or isinstance(default, BaseModel) or default == () else value(default)


def _part(name: str, model: type[BaseModel], about: str) -> Iterator[str]:
    yield f"## {code(name)}"
    yield about
    comments = _comments(model)
    yield table(
        ["Key", "Type", "Default", "Meaning"],
        (
            [
                code(key),
                _KINDS.get((name, key)) or type_text(field.annotation),
                _default(field),
                _meaning(name, key, comments),
            ]
            for key, field in model.model_fields.items()
        ),
    )


def _meaning(part: str, key: str, comments: dict[str, str]) -> str:
    if (part, key) in _OWN:
        return _OWN[(part, key)]
    if (row := _ROWS.get((part, key))) is not None:
        return f"{row.label}. See {link(code(row.name), row.name, 'settings.md')}."
    text = comments.get(key, "")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _comments(model: type[BaseModel]) -> dict[str, str]:
    found = {name: told for name, (_, told) in commented_classes(sys.modules[model.__module__]).items()}
    return found[model.__name__]


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined or default is None or default in ((), {}, ""):
        return "absent"
    if isinstance(default, bool):
        return code(str(default).lower())
    return "absent" if isinstance(default, BaseModel) else value(default)


_NAMES = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`", Any: "any value"}


def type_text(annotation: Any) -> str:
    """Return the type of a key in words: `list of numbers`, `text or whole number`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(inner[0])
    if origin is Literal:
        return "one of " + codes('""' if one == "" else one for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(one) for one in inner if one is not type(None))
    if origin in (tuple, list):
        return f"list of {_plural(type_text(inner[0]))}"
    if origin is dict:
        return f"mapping of names to {_plural(type_text(inner[1]))}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _NAMES[typing.cast(Any, annotation)]


def _plural(kind: str) -> str:
    return f"{kind}s" if kind in ("text", "whole number", "number", "mapping") else kind
