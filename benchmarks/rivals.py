"""Other tuners, each in its own process, which `benchmarks/search.py` starts.

`python benchmarks/rivals.py optuna|olive JSON` prints the chosen settings as JSON. `optuna` is the usual
loop: Optuna's TPE over the same grid, each trial a session in the same process with 10 warm-up runs and the
mean of 20, until the time is over. `olive` is Olive's own pass (`OrtSessionParamsTuning`) and evaluator,
point after point, over the settings that it can vary: on the CPU neither I/O binding nor the arena. It needs
an environment with `olive-ai`, and imports nothing of this project.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)

BEGAN = time.monotonic()
WARM_UPS, TIMED = 10, 20
SPINNING = "session.intra_op.allow_spinning"
LEVELS = {"ORT_DISABLE_ALL": 0, "ORT_ENABLE_BASIC": 1, "ORT_ENABLE_EXTENDED": 2, "ORT_ENABLE_ALL": 99}
KINDS = {"tensor(float)": "float32", "tensor(int64)": "int64"}


def by_optuna(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the best of the configurations that Optuna's TPE evaluated."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    grid: Mapping[str, Sequence[Any]] = asked["grid"]

    def seconds(trial: optuna.Trial) -> float:
        changes = {name: trial.suggest_categorical(name, values) for name, values in grid.items()}
        return statistics.fmean(_timed(asked, changes))

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=asked["seed"]))
    study.optimize(seconds, timeout=max(0.1, asked["time_s"] - (time.monotonic() - BEGAN)))
    return {"changes": study.best_params, "tried": len(study.trials)}


def _timed(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> list[float]:
    """Seconds of 20 runs of a new session."""
    run = _runner(asked, changes)
    for _ in range(WARM_UPS):
        run()
    found = []
    for _ in range(TIMED):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return found


def _runner(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> Callable[[], Any]:
    import numpy as np
    import onnxruntime as ort

    session = ort.InferenceSession(asked["path"], _options(changes), providers=["CPUExecutionProvider"])
    feeds = {
        one.name: np.ones(_shape(one.shape, asked["dims"]), dtype=KINDS[one.type])
        for one in session.get_inputs()
    }
    if not changes["use_io_binding"]:
        return lambda: session.run(None, feeds)
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for one in session.get_outputs():
        binding.bind_output(one.name)
    return lambda: session.run_with_iobinding(binding)


def _options(changes: Mapping[str, Any]) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    for name, value in changes.items():
        if name == "graph_optimization_level":
            options.graph_optimization_level = ort.GraphOptimizationLevel(LEVELS[value])
        elif name == SPINNING:
            options.add_session_config_entry(name, "1" if value else "0")
        elif name != "use_io_binding":
            setattr(options, name, value)
    return options


def _shape(dims: Sequence[int | str | None], asked: Mapping[str, int]) -> list[int]:
    return [one if isinstance(one, int) else asked.get(str(one), 1) for one in dims]


def by_olive(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the point with the lowest latency by Olive's evaluator."""
    os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort
    from olive.data.config import DataConfig
    from olive.evaluator.metric import LatencySubType, Metric, MetricType
    from olive.evaluator.olive_evaluator import OliveEvaluatorConfig
    from olive.hardware.accelerator import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.session_params_tuning import OrtSessionParamsTuning

    inputs = ort.InferenceSession(asked["path"], providers=["CPUExecutionProvider"]).get_inputs()
    rows = {
        "input_names": [one.name for one in inputs],
        "input_shapes": [_shape(one.shape, asked["dims"]) for one in inputs],
        "input_types": [KINDS[one.type] for one in inputs],
    }
    data = DataConfig(
        name="rows",
        type="DummyDataContainer",
        load_dataset_config={"type": "dummy_dataset", "params": rows},
    )
    average = [{"name": LatencySubType.AVG, "priority": 1}]
    metric = Metric(name="latency", type=MetricType.LATENCY, sub_types=average, data_config=data)
    cpu = AcceleratorSpec(accelerator_type="cpu", execution_provider="CPUExecutionProvider")
    names = ("intra_op_num_threads", "graph_optimization_level", SPINNING)
    points = list(product(*(asked["grid"][name] for name in names)))
    random.Random(asked["seed"]).shuffle(points)
    found: list[tuple[float, tuple[Any, ...]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for point in points:
            if found and time.monotonic() - BEGAN > asked["time_s"]:
                break
            threads, level, spins = point
            config = {
                "data_config": data,
                "opt_level_list": LEVELS[level],
                "extra_session_config": {SPINNING: "1" if spins else "0"},
                **({"intra_thread_num_list": threads} if threads else {}),
            }
            tuning = create_pass_from_dict(
                OrtSessionParamsTuning, config, disable_search=True, accelerator_spec=cpu
            )
            tuned = tuning.run(ONNXModelHandler(asked["path"]), f"{folder}/model")
            evaluator = OliveEvaluatorConfig(metrics=[metric]).create_evaluator(tuned)
            said = evaluator.evaluate(tuned, [metric], "cpu", "CPUExecutionProvider")
            found.append((next(iter(said.root.values())).value, point))
    return {"changes": dict(zip(names, min(found)[1], strict=True)), "tried": len(found)}


RIVALS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "optuna": by_optuna,
    "olive": by_olive,
}


if __name__ == "__main__":
    print(json.dumps(RIVALS[sys.argv[1]](json.loads(sys.argv[2]))))
