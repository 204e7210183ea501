"""ORTune for scripts and notebooks.

    import ortune

    result = ortune.tune("digits_cnn", intra_op_num_threads=1, effort="quick")
    print(result.verdict)
    result.to_frame()

Every function waits for its result, stores it where the dashboard and the command line find it, and returns a
`Result`. Importing this package disables ONNX Runtime's telemetry in the importing process.
"""

from core import __version__ as __version__
from core.api.explaining import explain
from core.api.exporting import export, verify
from core.api.graphs import graph, node_errors
from core.api.history import history
from core.api.importing import import_result
from core.api.judging import accuracy, scorecard
from core.api.load import load
from core.api.loadgen import loadgen
from core.api.machine import machine, peaks, self_test
from core.api.measuring import compare, measure_longer, profile, tune
from core.api.models import convert, inspect
from core.api.provenance import provenance
from core.api.results import Result
from core.api.runtimes import add_runtime, check_runtime, remove_runtime, runtimes
from core.api.searching import resume, search
from core.api.session import Session, Status
from core.api.session import default_session as session
from core.api.signing import sign
from core.api.stored import load_result
from core.api.sweeping import sweep
from core.api.upgrading import upgrade
from core.api.variants import transform, variants
from core.wire.errors import (
    BudgetError,
    Cancelled,
    MissingError,
    ModelError,
    ProviderError,
    SpecError,
    StoreError,
    TunerError,
    WorkerError,
)
from ortune._plots import plot

__all__ = [
    "BudgetError",
    "Cancelled",
    "MissingError",
    "ModelError",
    "ProviderError",
    "Result",
    "Session",
    "SpecError",
    "Status",
    "StoreError",
    "TunerError",
    "WorkerError",
    "accuracy",
    "add_runtime",
    "check_runtime",
    "compare",
    "convert",
    "explain",
    "export",
    "graph",
    "history",
    "import_result",
    "inspect",
    "load",
    "load_result",
    "loadgen",
    "machine",
    "measure_longer",
    "node_errors",
    "peaks",
    "plot",
    "profile",
    "provenance",
    "remove_runtime",
    "resume",
    "runtimes",
    "scorecard",
    "search",
    "self_test",
    "session",
    "sign",
    "sweep",
    "transform",
    "tune",
    "upgrade",
    "variants",
    "verify",
]
