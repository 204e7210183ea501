"""Call ONNX's and ONNX Runtime's tools: `quiet` silences them, `tool_errors` explains their failures."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from core.wire.errors import ModelError, TunerError, WorkerError
from core.worker.make.transform.model_io import TOOL_ERRORS
from core.worker.session import ORT_ERRORS
from core.worker.session.ort_errors import NO_MEMORY, first_line

_FEWER = "Use fewer calibration samples, the MinMax method, or smaller dimensions."
_EXCLUDE = "Exclude the node it names, choose other operator types, or simplify the model first."


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the tools from printing, logging and warning: errors are raised, or checked afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def tool_errors(what: str) -> Iterator[None]:
    """Translate the exceptions of ONNX Runtime's tools.

    Raises:
        WorkerError: there is not enough memory.
        ModelError: any other exception.
    """
    try:
        yield
    except TunerError:
        raise
    except MemoryError:
        raise WorkerError(f"There is not enough memory to {what}.", hint=_FEWER) from None
    except (*TOOL_ERRORS, *ORT_ERRORS) as error:
        if NO_MEMORY.search(str(error)):
            raise WorkerError(f"There is not enough memory to {what}.", hint=_FEWER) from None
        raise ModelError(f"ONNX Runtime cannot {what}: {first_line(error)}", hint=_EXCLUDE) from None
