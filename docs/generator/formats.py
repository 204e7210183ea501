"""The page of export formats."""

from __future__ import annotations

from collections.abc import Mapping

from core.show.export import formats_table, records
from core.show.table import md_cell, md_text
from docs.generator.markdown import code, fence, page, table

# What tests do with each format: tests/unit/test_export_cli.py, test_export_formats.py, test_bundle.py
TESTED: Mapping[str, str] = {
    "yaml": "read back by ORTune; gives an equal configuration",
    "python": "run with the installed ONNX Runtime",
    "javascript": "run with Node and onnxruntime-node where they are installed",
    "cpp": "compiled with g++ and run where ONNX Runtime's C++ header is installed",
    "perf-test": "parsed as a command line; not run",
    "ort-config": "loaded by ONNX Runtime, which reports the settings; `onnx.checker`",
    "triton": "parsed with tritonclient's `ModelConfig` message; no Triton server",
    "openvino": "parsed as YAML; OpenVINO is not run",
    "dockerfile": "parsed with dockerfile-parse; the image is not built",
    "olive": "parsed with Olive's own configuration reader where it is installed; passes are not run",
    "bundle": "opened and verified by ORTune, also when it was tampered with",
}


def export_formats() -> str:
    """Return the page of export formats."""
    names = [one["name"] for one in records()]
    assert set(names) == set(TESTED), "every format says how it is tested"
    return page(
        "# Export formats",
        "`ortune export TRIAL --format NAME -o FILE` and the Export page write a stored result in these "
        "formats. All are written from the same resolved settings. Each file names the settings that it does "
        "not carry, with the reason. A format refuses a result that it would turn into something else.",
        fence("ortune export TRIAL --format yaml -o best.yaml\nortune export --list", "sh"),
        md_text(formats_table(), cell=md_cell),
        "For other targets, [Use the settings in C# or another runtime](../how-to/other-runtimes.md) names "
        "the settings.",
        "## Tests",
        "The test suite checks each format with its target tool where that tool is installed.",
        table(["Format", "Tested"], ([code(name), TESTED[name]] for name in names)),
        "## Bundle",
        "A bundle is a zip file: the model with its external data, the YAML configuration, inputs and "
        "outputs recorded with this configuration, a Python script, pinned requirements and a README. The "
        "same result gives the same bytes. `ortune verify best.zip` checks a bundle on another machine.",
    )
