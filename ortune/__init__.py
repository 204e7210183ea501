"""ORTune for scripts and notebooks.

    import ortune

    result = ortune.tune("digits_cnn", intra_op_num_threads=1, effort="quick")
    result.to_frame()

Every function waits for its result, stores it where the dashboard and the command line find it, and returns a
`Result`. Importing this package disables ONNX Runtime's telemetry in the importing process.
"""

from core.api.explaining import explain
from core.api.exporting import export, verify
from core.api.history import history
from core.api.judging import accuracy, scorecard
from core.api.measuring import compare, measure_longer, profile, tune
from core.api.models import inspect
from core.api.results import Result
from core.api.searching import resume, search
from core.api.session import Session, Status
from core.api.stored import load_result
from core.api.sweeping import sweep
from core.api.variants import transform
from core.wire.errors import (
    BudgetError,
    Cancelled,
    ModelError,
    ProviderError,
    SpecError,
    StoreError,
    TunerError,
    WorkerError,
)
from ortune.plots import plot

__all__ = [
    "BudgetError",
    "Cancelled",
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
    "compare",
    "explain",
    "export",
    "history",
    "inspect",
    "load_result",
    "measure_longer",
    "plot",
    "profile",
    "resume",
    "scorecard",
    "search",
    "sweep",
    "transform",
    "tune",
    "verify",
]
