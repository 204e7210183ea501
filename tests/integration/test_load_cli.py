"""The command `load`: what is refused before anything starts, what is said, and the exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.api.load import load, load_job
from core.api.loadgen import loadgen
from core.api.session import Session
from core.api.stored import load_result
from core.cli import sheets
from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.evidence.comparison import Configuration
from core.evidence.load.load_types import LoadResult
from core.run import job_types
from core.run.job import Ending, Job, Outcome, Service
from core.show.sheets.loads import load_sheet
from core.spec import TrialSpec
from core.spec.load import LoadSpec
from core.store import Store
from core.wire.errors import SpecError, WorkerError
from core.wire.files import ROOT
from tests import builders, tiny_models
from tests.command_line import CommandLine, Done
from tests.simulated_load import sample_load_result, sample_point, sample_run

pytestmark = pytest.mark.usefixtures("jobs_at_once")

DIGITS = "digits_cnn"
LIMIT = ("--limit", "p99<=20ms")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """One for all that is refused before anything changes."""
    return CommandLine(tmp_path_factory.mktemp("refused"), acquainted)


# --- bad input ----------------------------------------------------------------------------------------------

REFUSED: Sequence[tuple[Sequence[str], str]] = [
    ([], "A load test needs a rate."),
    (["--rate", "99999"], "up to 12 rates of 0.01 to 50,000 requests/s; got 99999."),
    (["--rate", "0"], "rates of 0.01"),
    (["--rate", "many"], "--rate"),
    (["--rate", "20000", "--duration", "30m"], "36,000,000 requests are more than 2,000,000"),
    (["--rate", "100", "--find-max", *LIMIT], "no rate is given"),
    (["--find-max"], "needs a latency limit"),
    (["--find-max", "--find-batching", *LIMIT], "contradict each other"),
    (["--find-batching", *LIMIT], "needs a rate"),
    (["--find-batching", "--rate", "1", "--rate", "2", *LIMIT], "found at one rate, but got 2"),
    (["--rate", "100", "--limit", "p99=20"], "`p99=20` is no limit of a load test"),
    (["--rate", "100", "--limit", "p0<=20ms"], "share of requests between 0 and 1"),
    (["--rate", "100", "--limit", "timeouts<=200%", "--timeout", "1s"], "share of requests between 0 and 1"),
    (["--rate", "100", "--limit", "p99<=0ms"], "must be above 0 s"),
    (["--rate", "100", "--limit", "p99<=20"], "takes a time with a unit"),
    (["--rate", "100", "--limit", "timeouts<=1%"], "A limit on timeouts needs a timeout"),
    (["--rate", "100", "--timeout", "5"], "takes a time with a unit"),
    (["--rate", "100", "--duration", "0s"], "`duration_s` must be"),
    (["--rate", "100", "--turns", "0"], "`turns`"),
    (["--rate", "100", "--size", "sequence=3-4"], "has no free dimension `sequence`"),
    (["--rate", "100", "--size", "sequence"], "`--size` takes NAME=SIZES"),
    (["--rate", "100", "--size", "batch=1", "--size", "batch=2"], "names `batch` twice"),
    (["--rate", "100", "--rows", "0"], "needs 1 to 64 sizes from 1"),
    (["--rate", "100", "--rows", "1-100"], "1 to 64 different sizes"),
    (["--rate", "100", "--arrivals", "burst"], "Did you mean `bursts`?"),
    (["--rate", "100", "--arrivals", "ramp", "--on", "1s"], "`--on` does not concern ramp arrivals"),
    (["--rate", "100", "--arrivals", "steps", "--steps", "1"], "`arrivals.steps` must be 2 to 50"),
    (["--rate", "100", "--arrivals", "trace"], "needs the trace's file"),
    (["--rate", "100", "--together"], "takes 2 to 3 configurations; got 1"),
    (["--rate", "100", "--effort", "quick"], "`--effort` is for comparisons"),
    (["--rate", "100", "--engine", "torch-eager"], "needs the PyTorch source"),
    (
        ["--find-batching", "--rate", "1", *LIMIT, "--engine", "torch-eager"],
        "joins inputs for a session of ONNX",
    ),
    (["--rate", "100", "--engine", "unknown"], "`engine` takes onnxruntime"),
    (["--streams", "1,2", "--rate", "100"], "`--rate` is for traffic"),
    (["--streams", "1,2", "--limit", "p99<=20ms"], "`--limit` is for traffic"),
    (
        ["--streams", "1,2", "--config", "preset:default", "--config", "preset:edge"],
        "takes one configuration",
    ),
    (["--trace", "missing.csv"], "`missing.csv` cannot be read"),
    (["--trace", "missing.csv", "--limit", "timeouts<=1%"], "A limit on timeouts needs a timeout"),
    (["--trace", "missing.csv", "--arrivals", "ramp"], "A trace has its own arrivals"),
    (["--rate", "100", "--scenario", "Server"], "`--scenario` is for LoadGen"),
    (["--engine", "mlperf-loadgen", "--scenario", "unknown"], "must be one of SingleStream"),
    (["--engine", "mlperf-loadgen", "--rate", "100"], "Server needs a latency limit"),
    (["--engine", "mlperf-loadgen", *LIMIT], "Only LoadGen's scenario Server has a rate and a limit"),
    (
        ["--engine", "mlperf-loadgen", "--rate", "1", "--limit", "timeouts<=1%"],
        "takes one limit, on the latency",
    ),
    (["--engine", "mlperf-loadgen", "--rows", "2"], "`--rows` does not concern LoadGen"),
    (["--engine", "mlperf-loadgen", "--find-max"], "`--find-max` does not concern LoadGen"),
    (["--rate", "100", "-o", "no/such/folder/x.html"], "folder"),
]


def refused(done: Done, words: str) -> None:
    assert done.code == EXIT_BAD_INPUT, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert words in done.err, done.err
    assert "Hint: " in done.err


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[" ".join(one) or "none" for one, _ in REFUSED])
def test_bad_input_is_refused_before_anything_starts(
    line: CommandLine, options: Sequence[str], words: str
) -> None:
    refused(line.run("load", DIGITS, *options, "-q"), words)
    assert Store(line.home / "ortune.db").trials() == []


TRACES = {
    "empty": ("", "has no requests"),
    "only a header": ("time,rows\n", "has no requests"),
    "backwards": ("time,rows\n0,1\n1,1\n0.5,1\n", "line 4: the time 0.5 is before"),
    "no time": ("when,rows\n0,1\n", "no column `time`"),
    "another dimension": ("time,rows,sequence\n0,1,4\n1,1,8\n", "has no free dimension `sequence`"),
    "not text": (b"\xff\xfe\x00", "no column `time`"),
}


@pytest.mark.parametrize("name", TRACES)
def test_a_bad_trace_is_refused(line: CommandLine, tmp_path: Path, name: str) -> None:
    content, words = TRACES[name]
    path = tmp_path / "requests.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(line.run("load", DIGITS, "--trace", str(path), "-q"), words)


def test_sizes_that_do_not_fit_the_model_are_refused(line: CommandLine, tmp_path: Path) -> None:
    fixed = str(tiny_models.fixed_batch(tmp_path / "fixed.onnx", batch=2))
    refused(line.run("load", fixed, "--rate", "10", "--rows", "1,2", "-q"), "batch is fixed at 2")


def test_configurations_of_different_models_are_not_compared(line: CommandLine, mlp: str) -> None:
    both = ("--config", f"model:{DIGITS}", "--config", f"model:{mlp}")
    refused(line.run("load", *both, "--rate", "10", "-q"), "The configurations run different models")
    refused(line.run("load", *both, "--together", "--rate", "10", "-q"), "need 2 rates, but got 1")


def test_no_model_is_refused(line: CommandLine) -> None:
    refused(line.run("load", "--rate", "10", "-q"), "No model is given")


# --- LoadGen ------------------------------------------------------------------------------------------------


def test_loadgen_measures_the_same_session(cli: CommandLine) -> None:
    pytest.importorskip("mlperf_loadgen")
    options = ("--engine", "mlperf-loadgen", "--scenario", "singlestream", "--scenario", "offline")
    done = cli.run("load", DIGITS, *options, "--duration", "1s", "--json", "-q")
    document = done.document
    assert done.code == {"PASS": 0, "FAIL": EXIT_FAILED, "UNDECIDED": EXIT_UNDECIDED}[document["verdict"]]
    assert document["label"] == "LoadGen-compatible, unofficial"
    assert [one["scenario"] for one in document["tests"]] == ["SingleStream", "Offline"]
    assert document["words"].startswith("LoadGen-compatible, unofficial: LoadGen")
    assert Store(cli.home / "ortune.db").trials() == []


# --- a closed loop ------------------------------------------------------------------------------------------


def test_streams_are_a_closed_loop_answered_in_samples_per_second(cli: CommandLine, mlp: str) -> None:
    done = cli.run("load", mlp, "--streams", "1,2", "--runs", "10", "--json", "-q")
    assert done.code in (0, EXIT_UNDECIDED), done.err  # a busy machine may reject the comparison
    document = done.document
    assert document["axes"] == {"streams": [1, 2]}
    assert [one["values"] for one in document["points"]] == [{"streams": 1}, {"streams": 2}]
    assert all(one["throughput_per_s"] > 0 for one in document["points"])
    assert "samples/s" in document["verdict"]


def test_one_number_of_streams_without_traffic_is_a_closed_loop_and_with_traffic_a_setting(
    cli: CommandLine, faked: Faked, mlp: str
) -> None:
    assert cli.run("load", DIGITS, "--streams", "2", "--rate", "10", "-q").code == 0
    assert faked.configurations[0].spec.workload.streams == 2
    done = cli.run("load", mlp, "--streams", "2", "--runs", "10", "--json", "-q")
    assert done.document["axes"] == {"streams": [2]}


# --- what the command says of a result ----------------------------------------------------------------------


@dataclass
class Faked:
    """A job that runs no traffic: it keeps what was asked, and ends with `result`."""

    result: LoadResult
    ending: dict[str, Any] = field(default_factory=lambda: {"state": "COMPLETE"})
    asked: LoadSpec | None = None
    configurations: Sequence[Configuration] = ()

    def load(self, configurations: Sequence[Configuration], load: LoadSpec, **options: Any) -> Job:
        self.asked, self.configurations = load, configurations
        trial = job_types._trial(configurations[0].spec, kind="load", model_name=options["model_name"])
        kept: Any = {"load": self.result, "notes": [], "seed": load.seed, "fingerprint": "here"}

        def work(service: Service) -> Outcome:
            ending = Ending(**self.ending, result=kept)
            return Outcome(whole=Ending(**self.ending), trials={trial.id: ending})

        specs = [one.spec for one in configurations]
        return Job(id=trial.id, kind="load", what="load test", work=work, specs=specs, trials=(trial,))


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Faked:
    """Load tests end at once with a sample result."""
    one = Faked(sample_load_result("batching"))
    monkeypatch.setattr(job_types, "load", one.load, raising=False)
    return one


def with_point(run: Any) -> LoadResult:
    result = sample_load_result("traffic")
    result |= {"runs": [run], "points": [sample_point(run, 0)], "contrasts": [], "verdict": run["verdict"]}
    return result


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (sample_load_result("limit"), 0),
        (with_point(sample_run(200)), 0),
        (with_point(sample_run(300)), EXIT_FAILED),
        (with_point(sample_run(500)), EXIT_FAILED),  # saturated
        (with_point(sample_run(200, verdict="UNDECIDED")), EXIT_UNDECIDED),
        (with_point(sample_load_result("limit")["runs"][-1]), EXIT_UNDECIDED),  # no measurement
    ],
)
def test_the_exit_code_is_the_verdict(cli: CommandLine, faked: Faked, result: LoadResult, code: int) -> None:
    faked.result = result
    done = cli.run("load", DIGITS, "--rate", "200", *LIMIT, "--json", "-q")
    assert done.code == code, done.err
    assert done.document["load"]["points"] == result["points"]
    shown = cli.run("show", done.document["trial"])
    assert shown.out.startswith(result["words"])
    assert cli.run("show", done.document["trial"], "--json").document == done.document


def test_a_worker_that_failed_is_1_and_what_was_measured_is_printed(cli: CommandLine, faked: Faked) -> None:
    faked.ending = {"state": "FAIL", "error": WorkerError("The worker died.", hint="Try again.")}
    done = cli.run("load", DIGITS, "--rate", "200", "-q")
    assert done.code == EXIT_FAILED
    assert done.out.startswith(faked.result["words"])
    assert "Error: The worker died." in done.err


def test_options_become_the_question(cli: CommandLine, faked: Faked, tmp_path: Path) -> None:
    model = str(ROOT / "sample_models" / "tiny_transformer.onnx")
    options = ("--rate", "50", "--rate", "100", "--arrivals", "bursts", "--on", "0.5", "--off", "250ms")
    options += ("--duration", "2m", "--rows", "1:0.75,4:0.25", "--size", "sequence=16-17", "--timeout", "1s")
    options += (
        *LIMIT,
        "--limit",
        "timeouts<=0.1%",
        "--turns",
        "3",
        "--seed",
        "9",
        "--intra-op-num-threads",
        "1",
    )
    assert cli.run("load", model, *options, "-q").code == 0
    asked = faked.asked
    assert asked is not None
    assert asked.rates == (50, 100)
    assert (asked.arrivals.process, asked.arrivals.on_s, asked.arrivals.off_s) == ("bursts", 0.5, 0.25)
    assert (asked.duration_s, asked.timeout_s, asked.turns, asked.seed) == (120, 1, 3, 9)
    assert asked.rows == {1: 0.75, 4: 0.25}
    assert asked.dims == {"sequence": {16: 0.5, 17: 0.5}}
    assert [one.text for one in asked.limits] == ["p99<=20ms", "timeouts<=0.1%"]
    (one,) = faked.configurations
    assert one.spec.session.intra_op_num_threads == 1
    assert one.spec.workload.seed == 9


def test_a_search_for_the_highest_rate_has_a_budget(cli: CommandLine, faked: Faked) -> None:
    assert cli.run("load", DIGITS, "--find-max", *LIMIT, "--budget", "2m", "-q").code == 0
    assert faked.asked is not None
    assert (faked.asked.question, faked.asked.budget_s, faked.asked.rates) == ("limit", 120, ())


def test_several_configurations_have_labels(cli: CommandLine, faked: Faked, mlp: str) -> None:
    both = ("--config", "preset:default", "--config", "preset:edge")
    assert cli.run("load", DIGITS, *both, "--rate", "10", "-q").code == 0
    assert [(one.label, one.role) for one in faked.configurations] == [
        ("preset:default", "baseline"),
        ("preset:edge", "candidate"),
    ]
    both = ("--config", f"model:{DIGITS}", "--config", f"model:{mlp}")
    assert cli.run("load", *both, "--together", "--rate", "10", "--rate", "5", "-q").code == 0
    assert [Path(one.spec.model.path).stem for one in faked.configurations] == [DIGITS, "mlp"]
    assert faked.asked is not None
    assert faked.asked.question == "together"


def test_a_trace_is_replayed_as_a_whole(cli: CommandLine, faked: Faked, tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("time,rows\n" + "".join(f"{i},{1 + i % 2}\n" for i in range(31)))
    assert cli.run("load", DIGITS, "--trace", str(path), "-q").code == 0
    assert faked.asked is not None
    assert faked.asked.duration_s == pytest.approx(30 - 2, abs=0.01)  # after the warm-up
    assert cli.run("load", DIGITS, "--trace", str(path), "--rate", "2", "-q").code == 0
    assert faked.asked.duration_s == pytest.approx(15 - 2, abs=0.01)
    assert faked.asked.arrivals.path == str(path)


def test_requests_have_the_batch_size_of_the_configuration(
    cli: CommandLine, faked: Faked, tmp_path: Path
) -> None:
    fixed = str(tiny_models.fixed_batch(tmp_path / "fixed.onnx", batch=2))
    assert cli.run("load", fixed, "--rate", "10", "-q").code == 0
    assert cli.run("load", DIGITS, "--rate", "10", "--batch-size", "4", "-q").code == 0
    assert faked.asked is not None
    assert faked.asked.rows == {}
    assert faked.configurations[0].spec.workload.batch_size == 4


def test_progress_says_what_is_asked(cli: CommandLine, faked: Faked) -> None:
    done = cli.run("load", DIGITS, "--rate", "200", *LIMIT)
    said = "ORT default: latency at the given rates; Poisson arrivals at 200 requests/s, 30 s after 2 s of "
    assert f"{said}warm-up; limits: p99 ≤ 20 ms; about 34 s" in done.err
    both = ("--config", "preset:default", "--config", "preset:edge")
    assert "; about 2 min" in cli.run("load", DIGITS, *both, "--rate", "1").err  # twice 30 s and 6 starts
    assert "about" not in cli.run("load", DIGITS, "--find-max", *LIMIT).err


def test_a_report_is_written_and_history_lists_the_test(
    cli: CommandLine, faked: Faked, tmp_path: Path
) -> None:
    path = tmp_path / "load.md"
    assert cli.run("load", DIGITS, "--rate", "200", "-o", str(path), "-q").code == 0
    assert "**Passed: at 200 requests/s, p99 is 15.4 ms" in path.read_text()
    listed = cli.run("history", "--json").document["trials"]
    assert [one["kind"] for one in listed] == ["load"]
    assert "PASS at 200/s" in cli.run("history").out
    exported = cli.run("export", listed[0]["trial"], "--format", "yaml")
    assert exported.code == 0
    assert faked.result["words"] in exported.out


def test_a_sheet_is_what_the_command_prints(cli: CommandLine, faked: Faked) -> None:
    done = cli.run("load", DIGITS, "--rate", "200", *LIMIT, "-q", "--wide")
    trial = Store(cli.home / "ortune.db").trials()[0]
    assert done.out.splitlines() == sheets.lines(load_sheet(trial))


# --- the same from Python -----------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    with Session(tmp_path / "ortune.db") as opened:
        yield opened


WRONG: Sequence[tuple[dict[str, Any], str]] = [
    ({"rate": "fast"}, "`rate` takes a number"),
    ({"rate": [100, None]}, "`rate` takes a number"),
    ({"rate": float("nan")}, "`rate` takes a number"),
    ({"rate": 1, "rows": True}, "`rows` takes a whole number"),
    ({"rate": 1, "rows": {1: "much"}}, "`rows` takes a number"),
    ({"rate": 1, "sizes": ["batch"]}, "`sizes` takes a dictionary"),
    ({"rate": 1, "sizes": {"batch": "x"}}, r"`sizes\[batch\]` has no size `x`"),
    ({"rate": 1, "limits": [5]}, "`limits` takes text"),
    ({"rate": 1, "arrivals": "random"}, "no arrivals `random`"),
    ({"rate": 1, "arrivals": {"process": "bursts", "on": 1}}, "on"),
    ({"rate": 1, "arrivals": {"process": "steps", "steps": 1}}, "must be 2 to 50"),
    ({"rate": 1, "timeout_s": "soon"}, "takes a time with a unit"),
    ({"rate": 1, "duration_s": "long"}, "`duration_s` takes whole seconds"),
    ({"rate": 1, "find_max": "maybe"}, "`find_max` takes True or False"),
    ({"rate": 1, "trace": 5}, "`trace` takes a path"),
    ({"rate": 1, "turns": 0}, "`turns`"),
    ({"rate": 1, "config": [5]}, "`config` takes a configuration"),
    ({"rate": 1, "config": ["preset:default"] * 5}, "takes 1 to 4 configurations; got 5"),
    ({"rate": 1, "effort": "quick"}, "`effort` does not concern a load test"),
    ({"rate": 1, "config": ["preset:default", {"workload": {"batch_size": 4}}]}, "different batch sizes"),
    ({"rate": 1, "thread_count": 4}, "no setting `thread_count`"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[str(one) for one, _ in WRONG])
def test_wrong_arguments_are_refused_by_their_name(
    session: Session, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        load(DIGITS, session=session, **options)
    assert session.store.trials() == []


def test_a_result_has_a_verdict_a_frame_and_an_id(session: Session, faked: Faked) -> None:
    result = load(DIGITS, rate=[100, 200], limits="p99<=20ms", rows={1: 3, 2: 1}, session=session)
    assert (result.kind, result.verdict) == ("load", faked.result["words"])
    assert repr(result) == f"<load {result.id}: {faked.result['words']}>"
    frame = result.to_frame()
    assert frame["rate_per_s"].tolist() == [200.0, 200.0]
    assert frame["p99_ms"].dtype == float
    assert load_result(result.id, session=session).to_dict() == result.to_dict()
    assert faked.asked is not None
    assert faked.asked.rows == {1: 0.75, 2: 0.25}
    assert session.last is not None
    assert session.last.id == result.id


def test_a_failed_test_raises_and_keeps_what_was_measured(session: Session, faked: Faked) -> None:
    faked.ending = {"state": "FAIL", "error": WorkerError("The worker died.", hint="Try again.")}
    with pytest.raises(WorkerError, match="The worker died"):
        load(DIGITS, rate=100, session=session)
    assert session.last is not None
    assert session.last.verdict == faked.result["words"]


def test_a_session_that_does_not_admit_a_model_says_so_first(tmp_path: Path) -> None:
    def admit(spec: TrialSpec) -> None:
        raise SpecError("Not this one.", hint="Ask.")

    with Session(tmp_path / "ortune.db", admit=admit) as session:
        configuration = Configuration(spec=builders.spec(model={"path": "/etc/passwd"}), label="a")
        with pytest.raises(SpecError, match="Not this one"):
            load_job(session, [configuration], LoadSpec(rates=(1.0,)))


def test_loadgen_runs_one_scenario_by_default(session: Session) -> None:
    pytest.importorskip("mlperf_loadgen")
    result = loadgen(DIGITS, duration_s=0.2, session=session)
    assert [one["scenario"] for one in result.record["tests"]] == ["SingleStream"]
    assert result.verdict == result.record["words"]
    assert result.to_frame()["p50_ms"][0] > 0
