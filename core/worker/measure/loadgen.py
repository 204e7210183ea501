"""The job `loadgen`: MLCommons' LoadGen sends inferences to a session and judges the run by its own rules.

LoadGen is a library in this process. It calls `issue` from a thread of its own and waits until every
inference is reported complete. Two of its traits decide the design: an exception that leaves a callback ends
the process with SIGSEGV, and a lost completion blocks LoadGen for good. So every callback catches, LoadGen
runs in a background thread, and this thread waits for the first of: the end, an error, the time limit. The
process ends after its reply, whatever LoadGen still does.

One sample of LoadGen is one inference with the batch of the configuration.
"""

from __future__ import annotations

import gc
import json
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlperf_loadgen as loadgen

from core import wire
from core.wire import Progress
from core.wire.errors import WorkerError
from core.worker.measure import timing, warmup
from core.worker.measure.contestant import pin
from core.worker.measure.inference import Inference, contender, count_samples, translate_errors

MARK = ":::MLLOG "
MOST_QUERIES = 1_000_000  # LoadGen prepares all in advance, with about 400 bytes each
EXTRA_QUERIES = 2  # LoadGen prepares twice the number that an expected latency gives
CALL_S = 10e-6  # least time that LoadGen and the callbacks take for an inference
OFFLINE_SHARE = 0.8  # of the expected latency: an offline session may be faster than single calls
REPORT_S = 0.5
PERCENTILES = {
    "p50": "50.00",
    "p90": "90.00",
    "p95": "95.00",
    "p97": "97.00",
    "p99": "99.00",
    "p99.9": "99.90",
}


def run_loadgen(plan: wire.LoadGenPlan, progress: Progress) -> wire.LoadGenReply:
    """Build the session of `plan`, warm it up, and let LoadGen measure it in one scenario.

    Args:
        plan: the configuration, the scenario and its numbers.
        progress: receives the stage "LoadGen", in seconds.

    Raises:
        TunerError: as for `contender`, and what an inference raises.
        WorkerError: LoadGen has not ended in time, or left no result.
    """
    pin(plan["plan"]["cpus"])
    first = contender(plan["plan"])
    with translate_errors():
        first.call()
        rows = count_samples(first, plan["plan"]["feeds"])
        others = [first.with_inputs(plan["plan"]["feeds"]) for _ in range(plan["streams"] - 1)]
        for one in others:
            one.call()
        expected_s = _warm(first, plan["plan"]["warmup_runs"])
    test = run_test(plan, [one.call for one in (first, *others)], expected_s, progress)
    return {
        **first.built.providers(),
        **test.judged,
        "seconds": test.seconds,
        "scenario": plan["scenario"],
        "batch_size": rows,
        "samples_per_s": test.inferences_per_s * rows,
        "notes": [*first.notes, *test.notes],
        "libraries": first.libraries,
    }


def _warm(inference: Inference, runs: int | None) -> float:
    """Warm up as a comparison does, or `runs` times; return the expected latency in seconds."""
    if runs is None:
        latencies = warmup.run_until_steady(lambda count: timing.time_each(inference.call, count))
    else:
        latencies = timing.time_each(inference.call, max(1, runs))
    return statistics.median(latencies[-warmup.window_runs(latencies) :]) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one test of LoadGen gave."""

    judged: wire.LoadGenVerdict
    seconds: float  # duration of the test
    inferences_per_s: float
    notes: list[str]


def run_test(
    plan: wire.LoadGenPlan,
    calls: Sequence[timing.Call],
    expected_s: float,
    progress: Progress,
    *,
    trace: Path | None = None,
) -> Measured:
    """Let LoadGen measure `calls`, one thread each, which take the inferences in the order of issue.

    Args:
        plan: the scenario and its numbers; its configuration is not read.
        calls: inferences that may run at the same time.
        expected_s: latency of one inference when nothing else runs.
        progress: receives the stage "LoadGen".
        trace: file for LoadGen's trace, which holds every latency; it costs time. None: no trace.

    Raises:
        TunerError: what an inference raises.
        WorkerError: LoadGen has not ended in time, or left no result.
    """
    target = Target(calls)
    with tempfile.TemporaryDirectory(prefix="ortune-loadgen-") as name:
        folder = Path(name)
        settings, notes = _settings(plan, expected_s)
        gc.collect()
        gc.disable()
        try:
            began = time.monotonic()
            threading.Thread(
                target=_test, args=(target, settings, folder, trace is not None), daemon=True
            ).start()
            _wait(target, plan, progress)
            seconds = time.monotonic() - began
        finally:
            gc.enable()
        target.end()
        if trace is not None:
            trace.write_bytes((folder / "mlperf_log_trace.json").read_bytes())
        log = read_log((folder / "mlperf_log_detail.txt").read_text(errors="replace").splitlines())
    return Measured(
        judged=judged(log, plan["scenario"]),
        seconds=seconds,
        inferences_per_s=_rate(log, plan["scenario"], target),
        notes=notes,
    )


def _test(target: Target, settings: Any, folder: Path, trace: bool) -> None:
    """Run one test of LoadGen from its start to its end; runs in a thread of its own."""
    try:
        system = loadgen.ConstructSUT(target.issue, _nothing)
        library = loadgen.ConstructQSL(1, 1, _nothing, _nothing)
        output = loadgen.LogOutputSettings()
        output.outdir, output.copy_summary_to_stdout = str(folder), False
        logs = loadgen.LogSettings()
        logs.log_output, logs.enable_trace = output, trace
        # it reads settings of an audit from a file in the current folder unless another file is named
        loadgen.StartTestWithLogSettings(system, library, settings, logs, str(folder / "audit.config"))
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
    except BaseException as error:  # it is raised in the thread that waits
        target.ends.put(error)
    else:
        target.ends.put(None)


def _wait(target: Target, plan: wire.LoadGenPlan, progress: Progress) -> None:
    """Wait until LoadGen has ended, and raise what an inference raised."""
    began, whole = time.monotonic(), max(1, round(plan["duration_s"]))
    while True:
        elapsed = time.monotonic() - began
        progress("LoadGen", min(whole, int(elapsed)), whole, f"{target.answered:,} inferences")
        try:
            error = target.ends.get(timeout=REPORT_S)
        except queue.Empty:
            if elapsed < plan["timeout_s"]:
                continue
            raise WorkerError(
                f"LoadGen has not ended the scenario {plan['scenario']} within {plan['timeout_s']:g} s: "
                f"{target.answered:,} of {target.issued:,} issued inferences were answered.",
                hint="Lower the rate, or choose a shorter duration.",
            ) from None
        if error is not None:
            with translate_errors():
                raise error
        return


class Target:
    """The system under test: threads that run the issued inferences, first come first served."""

    def __init__(self, calls: Sequence[timing.Call]) -> None:
        self.ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()  # one item ends the wait
        self.issued = 0
        self.first_s = 0.0  # time of the first issue
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._servers = [Server(call) for call in calls]
        self._threads = [
            threading.Thread(target=one.serve, args=(self._waiting, self.ends), daemon=True)
            for one in self._servers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def answered(self) -> int:
        """Number of completed inferences."""
        return sum(one.answered for one in self._servers)

    @property
    def last_s(self) -> float:
        """Time of the last completion."""
        return max(one.last_s for one in self._servers)

    def issue(self, samples: Sequence[Any]) -> None:
        """Take over the samples of one query. LoadGen calls it; it must not raise."""
        try:
            if not self.issued:
                self.first_s = time.monotonic()
            self.issued += len(samples)
            for one in samples:
                self._waiting.put(one.id)
        except BaseException as error:  # one that leaves ends the process with SIGSEGV
            self.ends.put(error)

    def end(self) -> None:
        """End the threads; every inference has been answered."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()


@dataclass(slots=True)
class Server:
    """One thread that runs inferences."""

    call: timing.Call
    answered: int = 0
    last_s: float = 0.0  # time of the last completion

    def serve(
        self, waiting: queue.SimpleQueue[int | None], ends: queue.SimpleQueue[BaseException | None]
    ) -> None:
        """Run inferences until None comes; report the first error instead of its completion."""
        try:
            while (number := waiting.get()) is not None:
                self.call()
                loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(number, 0, 0)])
                self.last_s = time.monotonic()
                self.answered += 1
        except BaseException as error:  # it is raised in the thread that waits
            ends.put(error)


def _nothing(*_: object) -> None:
    """A callback of LoadGen for which there is nothing to do."""


# --- settings -----------------------------------------------------------------------------------------------


def _settings(plan: wire.LoadGenPlan, expected_s: float) -> tuple[Any, list[str]]:
    """Return LoadGen's settings for the plan, and notes on what differs from it."""
    scenario, streams = plan["scenario"], plan["streams"]
    found = loadgen.TestSettings()
    found.mode = loadgen.TestMode.PerformanceOnly
    found.scenario = getattr(loadgen.TestScenario, scenario)
    found.min_query_count = plan["min_queries"]
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        setattr(found, name, plan["seed"])
    expected_s = max(expected_s, CALL_S)
    query_s = {  # too low a value costs time or memory; with too high a one, LoadGen runs out of queries
        "SingleStream": expected_s + CALL_S,
        "MultiStream": expected_s * plan["samples_per_query"] / streams,
        "Offline": OFFLINE_SHARE * (expected_s + CALL_S / 2) / streams,
        "Server": 1 / max(1e-9, plan["rate"]),
    }[scenario]
    duration_s, notes = _affordable(plan["duration_s"], query_s)
    found.min_duration_ms = max(1, round(1e3 * duration_s))
    target_ns = max(1, round(1e9 * plan["limit_s"]))
    if scenario == "SingleStream":
        found.single_stream_expected_latency_ns = round(1e9 * query_s)
        found.single_stream_target_latency_percentile = plan["percentile"]
    elif scenario == "MultiStream":
        found.multi_stream_expected_latency_ns = round(1e9 * query_s)
        found.multi_stream_samples_per_query = plan["samples_per_query"]
        found.multi_stream_target_latency_percentile = plan["percentile"]
    elif scenario == "Server":
        found.server_target_qps = plan["rate"]
        found.server_target_latency_ns = target_ns
        found.server_target_latency_percentile = plan["percentile"]
    else:
        found.offline_expected_qps = 1 / query_s
    return found, notes


def _affordable(duration_s: float, query_s: float) -> tuple[float, list[str]]:
    """Return the longest duration up to `duration_s` whose queries fit into memory, and a note if shorter."""
    longest_s = MOST_QUERIES / EXTRA_QUERIES * query_s
    if duration_s <= longest_s:
        return duration_s, []
    text = (
        f"LoadGen prepares all queries before the test. The duration is {longest_s:.3g} s instead of "
        f"{duration_s:g} s, so that at most {MOST_QUERIES:,} queries are prepared."
    )
    return longest_s, [text]


# --- LoadGen's log ------------------------------------------------------------------------------------------


def read_log(lines: Iterable[str]) -> dict[str, Any]:
    """Return what the lines of `mlperf_log_detail.txt` report, by key; a later value replaces an earlier one.

    A line that is no JSON is skipped: LoadGen does not escape every text that it writes.
    """
    found: dict[str, Any] = {}
    for line in lines:
        if line.startswith(MARK):
            try:
                entry = json.loads(line[len(MARK) :], strict=False)
            except ValueError:
                continue
            found[entry["key"]] = entry["value"]
    return found


def judged(log: Mapping[str, Any], scenario: wire.LoadGenScenario) -> wire.LoadGenVerdict:
    """Return what LoadGen's log says about a test.

    Raises:
        WorkerError: the log holds no verdict.
    """
    if "result_validity" not in log:
        raise WorkerError(
            "LoadGen has ended without a result.", hint="Run it again, with a longer duration if it repeats."
        )
    per_query = "_query" if scenario == "MultiStream" else ""
    latency = {one: log[f"result_{one}{per_query}_latency_ns"] / 1e9 for one in ("min", "mean", "max")}
    for name, percentile in PERCENTILES.items():
        of = f"result_{percentile}_percentile{'_per' + per_query if per_query else ''}_latency_ns"
        latency[name] = log[of] / 1e9
    queries = int(log["result_query_count"])
    return {
        "version": str(log.get("loadgen_version", "")).split(" ")[0],
        "valid": log["result_validity"] == "VALID",
        "reasons": _reasons(log),
        "duration_met": bool(log["result_min_duration_met"]),
        "queries_met": bool(log["result_min_queries_met"]),
        "limit_met": log.get("result_perf_constraints_met"),
        "early_stopping_met": bool(log["early_stopping_met"]),
        "early_stopping": _one_line(log.get("early_stopping_result", "")),
        "queries": queries,
        "inferences": queries * int(log["generated_samples_per_query"]),
        "over_limit": log.get("result_overlatency_query_count"),
        "latency_s": latency,
        "settings": {
            name.removeprefix("effective_"): value
            for name, value in log.items()
            if name.startswith("effective_")
        },
        "errors": int(log["num_errors"]),
    }


def _reasons(log: Mapping[str, Any]) -> list[str]:
    """Return why LoadGen calls a run invalid, in its own words; empty: it is valid."""
    if log["result_validity"] == "VALID":
        return []
    said = [_one_line(log.get("result_invalid_reason", ""))]
    if not log["early_stopping_met"]:
        said.append(_one_line(log.get("early_stopping_result", "")))
    return [one for one in said if one]


def _one_line(text: object) -> str:
    """Return a text of LoadGen, a list with asterisks, as sentences."""
    return " ".join(str(text).replace("*", " ").split())


def _rate(log: Mapping[str, Any], scenario: wire.LoadGenScenario, target: Target) -> float:
    """Return inferences per second: LoadGen's number; MultiStream has none, so from the completions."""
    names = {
        "SingleStream": "result_qps_with_loadgen_overhead",
        "Server": "result_completed_samples_per_sec",
        "Offline": "result_samples_per_second",
    }
    if scenario in names:
        return float(log[names[scenario]])
    return target.answered / max(1e-9, target.last_s - target.first_s)
