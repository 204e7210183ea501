"""The command line, run for real: one JSON document, progress on stderr, exit codes, nothing left behind."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml

from core import FORMAT_VERSION, __version__
from core.api.references import config_from
from core.api.settings import provider_name, spec_data
from core.cli.options import Given, settings_with_option, with_settings
from core.cli.output import EXIT_FAILED, EXIT_UNDECIDED
from core.cli.sheets import lines
from core.evidence.comparison import DEFAULT_LABEL
from core.evidence.measurement import RESULT_FIELDS
from core.process import runtimes
from core.process.machine_queue import MachineQueue
from core.run.best_point import rank_points
from core.run.known_trials import known_trials
from core.run.sweep import configurations, expand, join
from core.show.sheets import Sheet, sweeps
from core.show.table import csv_text
from core.spec import TrialSpec, requested_value, spec_from_dict, spec_from_yaml
from core.spec.axes import axes_of_study
from core.spec.settings import SETTINGS, TrialSetting
from core.spec.settings.provider_options import KNOWN_PROVIDERS
from core.store import STORE_NAME, Store
from core.wire.errors import SpecError
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine, Done, is_comparing, works
from tests.simulated_clock import Model
from tests.waiting import WAIT_S, wait_until

CONTRACT = {"trial", "state", "error", "model", "spec", "fingerprint", "started_at", *RESULT_FIELDS}
QUICK = ("--runs", "20", "--warmup-runs", "2")


def ok(done: Done) -> Done:
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return done


def measured(done: Done) -> Done:
    """Measured, whatever the verdict: under background load it may be UNDECIDED or graded F."""
    assert done.code in (0, EXIT_UNDECIDED), done.err
    assert "Traceback" not in done.err
    return done


# --- options and the table --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parse() -> Callable[..., Given]:
    """Typer's own parser over the options of the table."""
    seen: list[Given] = []
    app = typer.Typer(add_completion=False)

    @app.command()
    @with_settings
    def capture(*, given: Given) -> None:
        seen.append(given)

    def parsed(*args: str) -> Given:
        app(args=list(args), standalone_mode=False)
        return seen.pop()

    return parsed


PINNED = f"same@sha256:{'0' * 64}"


def spec_of(given: Given, config: dict[str, Any] | None = None) -> TrialSpec:
    return spec_from_dict(spec_data(config or {}, "m.onnx", given))


def example(setting: TrialSetting) -> tuple[list[str], Any]:
    """An option with a value other than the default, and the spec that it must give."""
    special: dict[str, tuple[list[str], Any]] = {
        "providers": (["cuda", "cpu"], ("CUDAExecutionProvider", "CPUExecutionProvider")),
        "disabled_optimizers": (
            ["ConstantFolding", "NchwcTransformer"],
            ("ConstantFolding", "NchwcTransformer"),
        ),
        "custom_op_libraries": (["libops.so", "more/libb.so"], ("libops.so", "more/libb.so")),
        "provider_libraries": (["libep.so"], ("libep.so",)),
        "session_config_entries": (["session.disable_prepacking=1"], {"session.disable_prepacking": "1"}),
        "run_config_entries": (["gpu_graph_id=1"], {"gpu_graph_id": "1"}),
        "free_dimension_overrides": (["n=3", "a=b=4"], {"n": 3, "a=b": 4}),
        "session.intra_op_thread_affinities": (["2;3;4"], "2;3;4"),
        "dims": (["n=3", "x:1=4"], {"n": 3, "x:1": 4}),
        "feeds": (["a.npz"], "a.npz"),
        "image_mean": (["0.5,0.25"], (0.5, 0.25)),
        "image_std": (["0.5,0.25"], (0.5, 0.25)),
        "cpus": (["0-3,6"], "0-3,6"),
        "tolerance": (["200%"], 2.0),
        "runtime": (["same"], PINNED),
        "openvino.device": (["AUTO:GPU,CPU"], "AUTO:GPU,CPU"),
        "openvino.properties": (["MODEL_PRIORITY=LOW"], {"MODEL_PRIORITY": "LOW"}),
    }
    if setting.name in special:
        values, wanted = special[setting.name]
        return [text for value in values for text in (setting.flag, value)], wanted
    if setting.kind == "bool":
        flag = setting.flag.replace("--", "--no-") if setting.default else setting.flag
        return [flag], not setting.default
    if setting.kind == "choice":
        value = next(one for one in setting.choices if one != setting.default)
        return [setting.flag, value], value
    return [setting.flag, str(setting.high)], setting.high


@pytest.mark.parametrize("setting", settings_with_option(), ids=lambda one: one.name)
def test_every_setting_of_the_table_has_an_option_that_reaches_the_spec(
    parse: Callable[..., Given], setting: TrialSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "pinned", {"same": PINNED}.__getitem__)
    args, wanted = example(setting)
    if setting.name == "session.intra_op_thread_affinities":
        args += ["--intra-op-num-threads", "4"]
    if setting.name == "run_config_entries":
        args += ["--expert"]
    if setting.target == "openvino":
        args += ["--engine", "openvino"]
    assert requested_value(spec_of(parse(*args)), setting.name) == wanted


def test_fixed_values_share_the_option_of_the_feeds() -> None:
    assert {one.name for one in SETTINGS} - {one.name for one in settings_with_option()} == {"feed_values"}


@pytest.mark.parametrize("flag", ["--effort", "--precision"])
def test_effort_and_precision_are_two_settings(
    parse: Callable[..., Given], capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """The words of the effort are accepted under its earlier name, which is said, and nothing on stdout."""
    one = spec_of(parse(flag, "publish", "--precision", "fp16"))
    assert (one.protocol.effort, one.model.precision) == ("publish", "fp16")
    hint = "" if flag == "--effort" else "--precision publish is now --effort publish\n"
    assert tuple(capsys.readouterr()) == ("", hint)


@pytest.mark.parametrize(
    ("args", "budget_s", "margin"),
    [
        (["--budget", "90"], 90, 0.02),
        (["--budget", "60s", "--margin", "5%"], 60, 0.05),
        (["--budget", "2m", "--margin", "0.01"], 120, 0.01),
        (["--budget", " 1 h "], 3600, 0.02),
        (["--margin", " 2.5 % "], None, 0.025),
    ],
)
def test_durations_and_shares_are_read_as_people_write_them(
    parse: Callable[..., Given], args: list[str], budget_s: int | None, margin: float
) -> None:
    protocol = spec_of(parse(*args)).protocol
    assert (protocol.budget_s, protocol.margin) == (budget_s, pytest.approx(margin))


def test_no_option_asks_for_nothing(parse: Callable[..., Given]) -> None:
    assert parse() == {}
    assert spec_of({}).to_dict() == {"model": {"path": "m.onnx"}}


def test_it_says_which_version_it_is(cli: CommandLine) -> None:
    assert ok(cli.run("--version")).out.split() == ["ORTune", __version__]


@pytest.mark.parametrize("command", ["tune", "profile", "sweep"])
def test_the_help_of_each_measuring_command_names_every_option(cli: CommandLine, command: str) -> None:
    text = ok(cli.run(command, "-h")).out
    for setting in settings_with_option():
        assert setting.flag in text
    for flag in ("--config", "--preset", "--provider-option", "--json", "--quiet"):
        assert flag in text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", "CPUExecutionProvider"),
        ("CUDA", "CUDAExecutionProvider"),
        ("tensorrt", "TensorrtExecutionProvider"),
        ("trt", "TensorrtExecutionProvider"),
        ("openvino", "OpenVINOExecutionProvider"),
        ("cudaexecutionprovider", "CUDAExecutionProvider"),
        ("nonsense", "nonsense"),
        *((name, name) for name in KNOWN_PROVIDERS),
    ],
)
def test_providers_may_be_named_shortly(text: str, name: str) -> None:
    assert provider_name(text) == name


@pytest.mark.parametrize(
    ("texts", "feeds", "values"),
    [
        (["sr=16000"], "random", {"sr": 16000}),
        (["x=1.5", "m=true"], "random", {"x": 1.5, "m": True}),
        (["x=[[1, 2], [3, 4]]"], "random", {"x": [[1, 2], [3, 4]]}),
        (["x=.5", "y=-1e3", "z=False"], "random", {"x": 0.5, "y": -1000.0, "z": False}),
        (["a/b:0=3"], "random", {"a/b:0": 3}),
        (["x=some text"], "random", {"x": "some text"}),
        (['x=["first", "second"]'], "random", {"x": ["first", "second"]}),
        (["feeds.npz"], "feeds.npz", {}),
        (["photos", "scale=2"], "photos", {"scale": 2}),
    ],
)
def test_feeds_are_values_or_one_source(
    parse: Callable[..., Given], texts: list[str], feeds: str, values: dict[str, Any]
) -> None:
    one = spec_of(parse(*(part for text in texts for part in ("--feed", text))))
    assert one.workload.feeds == feeds
    assert one.workload.feed_values == values


def test_a_file_whose_name_holds_an_equals_sign_is_a_source(
    parse: Callable[..., Given], tmp_path: Path
) -> None:
    path = tmp_path / "a=b.npz"
    np.savez(path, x=np.zeros(1))
    assert spec_of(parse("--feed", str(path))).workload.feeds == str(path)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--feed", "a.npz", "--feed", "b.npz"], "names 2 sources"),
        (["--feed", "x=[abc"], "takes a number"),
        (["--feed", "x=@none.txt"], "file of lines"),
        (["--feed", "x=1", "--feed", "x=2"], "is given twice"),
        (["--feed", "x=NaN"], "finite"),
        (["--feed", "x=null"], "finite"),
        (["--feed", "x=" + "[" * 5000], "takes a number"),
        (["--feed", "=1"], "NAME=VALUE"),
        (["--dim", "n"], "NAME=VALUE"),
        (["--dim", "n=1.5"], "whole number"),
        (["--dim", "n=1", "--dim", "n=2"], "is given twice"),
        (["--batch-size", "1,2"], "whole number"),
        (["--batch-size", "²"], "whole number"),
        (["--runs", "0x10"], "whole number"),
        (["--image-mean", "a,b"], "numbers"),
        (["--session-config", "session.disable_prepacking"], "NAME=VALUE"),
        (["--session-config", "session.disable_prepackin=1"], "Did you mean"),
        (["--provider-option", "cuda.use_tf32=0"], "not in the provider chain"),
        (["--provider", "cuda", "--provider-option", "use_tf32=0"], "PROVIDER.KEY=VALUE"),
        (["--provider", "cuda", "--provider-option", "cuda.use_tf=0"], "Did you mean `use_tf32`"),
        (["--provider", "cuda", "--provider", "cuda"], "is given twice"),
        (["--provider", "cudda"], "Unknown execution provider"),
        (["--graph-optimization-level", "ALL"], "ORT_ENABLE_ALL"),
        (["--budget", "soon"], "60s or 2m"),
        (["--budget", "1.5m"], "60s or 2m"),
        (["--budget", "0"], "budget_s"),
        (["--margin", "lots"], "lots"),
        (["--margin", "90%"], "margin"),
        (["--effort", "exact"], "`effort` takes quick, standard, publish"),
        (["--effort", "publsh"], "Did you mean `publish`"),
        (["--precision", "exact"], "`precision` takes fp32, fp16"),
        (["--precision", "quick", "--precision", "publish"], "`--effort publish` contradicts"),
        (["--precision", "quick", "--effort", "publish"], "`--effort quick` contradicts"),
        (["--precision", "fp32", "--precision", "fp16"], "`--precision fp16` contradicts"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused_in_words(
    parse: Callable[..., Given], args: list[str], words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(parse(*args))
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_options_are_laid_over_a_configuration(parse: Callable[..., Given]) -> None:
    config = {
        "model": {"path": "old.onnx", "precision": "fp16"},
        "session": {
            "providers": [{"name": "CUDAExecutionProvider", "options": {"device_id": "1"}}],
            "session_config_entries": {"session.disable_prepacking": "1"},
        },
        "workload": {"batch_size": 8, "dims": {"seq": 16}},
    }
    given = parse(
        *("--provider", "cuda", "--provider", "cpu", "--provider-option", "cuda.use_tf32=0"),
        *("--batch-size", "2", "--dim", "other=3", "--session-config", "session.x64quantprecision=1"),
    )
    one = spec_of(given, config)
    assert one.model.path == "m.onnx"
    assert one.model.precision == "fp16"
    assert [(p.name, p.options) for p in one.session.providers] == [
        ("CUDAExecutionProvider", {"device_id": "1", "use_tf32": "0"}),
        ("CPUExecutionProvider", {}),
    ]
    assert set(one.session.session_config_entries) == {
        "session.disable_prepacking",
        "session.x64quantprecision",
    }
    assert one.workload.batch_size == 2
    assert one.workload.dims == {"seq": 16, "other": 3}


# --- bench, and what can be done with its trial -----------------------------------------------------------


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, acquainted: Path, mlp: str) -> tuple[CommandLine, Done]:
    """A command line that has measured once, and what it said."""
    line = CommandLine(tmp_path_factory.mktemp("tuned"), acquainted)
    done = line.run(
        *("tune", mlp, *QUICK, "--batch-size", "3", "--io-binding", "--intra-op-num-threads", "1"),
        *("--no-intra-op-allow-spinning", "--json", "--quiet"),
    )
    return line, measured(done)


def test_tune_prints_one_document_under_the_names_of_the_contract_and_keeps_the_trial(
    tuned: tuple[CommandLine, Done],
) -> None:
    cli, done = tuned
    document = done.document
    assert done.err == ""
    assert set(document) >= CONTRACT
    assert document["state"] == "COMPLETE"
    assert document["error"] is None
    assert document["batch_size"] == 3
    assert document["runs"] == len(document["latencies_s"]) == 20
    assert len(document["warmup_latencies_s"]) == 3  # the first run, and two more
    assert document["fallback"] is False
    assert document["effective_providers"] == ["CPUExecutionProvider"]
    latency = document["latency"]
    assert latency["p50_s"] is not None
    assert latency["min_s"] <= latency["p50_s"] <= latency["max_s"]
    assert document["latency"]["p99_s"] is None
    assert document["latency"]["needs_runs"]["p99_s"] >= 368
    (contrast,) = document["contrasts"]
    assert contrast["candidate"] == document["trial"]
    assert document["grade"] in ("A", "B", "C", "D", "F")
    assert done.code == (3 if document["grade"] == "F" or contrast["verdict"] == "UNDECIDED" else 0)
    assert document["spec"]["session"] == {
        "intra_op_num_threads": 1,
        "session_config_entries": {"session.intra_op.allow_spinning": "0"},
    }
    stored = Store(cli.home / STORE_NAME).trial(document["trial"])
    assert {"format_version": FORMAT_VERSION, **stored.to_dict()} == document


def test_a_short_yaml_names_no_folder_and_finds_its_model(
    tuned: tuple[CommandLine, Done], mlp: str, tmp_path: Path
) -> None:
    cli, first = tuned[0], tuned[1].document
    path = tmp_path / "short.yaml"
    ok(cli.run("export", first["trial"][:8], "-o", str(path)))
    assert str(Path(mlp).parent) not in path.read_text()
    assert spec_from_yaml(path.read_text()).model.sha256 == first["spec"]["model"]["sha256"]


@pytest.mark.usefixtures("clock")
def test_a_trial_goes_round_through_yaml_python_history_and_settings(
    tuned: tuple[CommandLine, Done], mlp: str, tmp_path: Path
) -> None:
    cli, first = tuned[0], tuned[1].document
    config = tmp_path / "config.yaml"
    ok(cli.run("export", first["trial"][:8], "--format", "yaml", "--all", "-o", str(config)))
    data = yaml.safe_load(config.read_text())
    assert data["measured"]["trial"] == first["trial"]
    assert data["environment"]["fingerprint"] == first["fingerprint"]

    read = config_from(str(config), Store(cli.home / STORE_NAME))
    assert spec_from_dict(spec_data(read, None, {})).to_dict() == first["spec"]
    changed = measured(
        cli.run("tune", mlp, "--config", first["trial"], "--batch-size", "5", "--json")
    ).document
    assert changed["trial"] != first["trial"]
    assert changed["batch_size"] == 5
    assert changed["spec"]["protocol"] == first["spec"]["protocol"]

    script = ok(cli.run("export", first["trial"], "--format", "python")).out
    emitted = ok(cli.run("export", first["trial"], "--format", "python", "--json")).document
    assert (emitted["trial"], emitted["format"], emitted["text"]) == (first["trial"], "python", script)
    listed = ok(cli.run("export", "--list", "--json")).document["formats"]
    for one in listed:
        if one["name"] == "bundle":  # has tests of its own
            continue
        path = tmp_path / f"model{one['file']}"
        done = cli.run("export", first["trial"], "--format", one["name"], "-o", str(path))
        if one["name"] == "openvino":  # of a trial that does not run on it
            assert (done.code, path.exists()) == (2, False)
            assert "not on OpenVINO" in done.err
            continue
        shown = ok(cli.run("export", first["trial"], "--format", one["name"]))
        assert done.code == 0
        assert first["trial"] in shown.out
        assert one["takes_model"] is (path.read_bytes() != shown.out.encode())
        assert one["takes_model"] is ("includes the model" in shown.err)
    assert not list(tmp_path.glob(".*.part"))
    assert all(one["cannot"].split()[0] in ok(cli.run("export", "--list")).out for one in listed)

    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("y [3, ")

    listed = ok(cli.run("history", "--json")).document["trials"]
    assert [one["trial"] for one in listed] == [changed["trial"], first["trial"]]
    text = ok(cli.run("history", "--model", mlp, "--limit", "1")).out
    assert changed["trial"][:8] in text
    assert first["trial"][:12] not in text


@pytest.mark.usefixtures("clock")
def test_the_table_for_people_has_units_intervals_and_says_what_the_runs_cannot_tell(
    cli: CommandLine, mlp: str
) -> None:
    done = measured(cli.run("tune", mlp, *QUICK, "--preset", "cpu-latency", "--inter-op-num-threads", "4"))
    assert re.search(r"needs \d+ runs", done.out)
    assert f"versus {DEFAULT_LABEL}" in done.out
    assert re.search(r"grade [ABCDF]", done.out)
    assert "95 % CI [" in done.out
    assert "samples/s" in done.out
    assert "CPUExecutionProvider" in done.out
    assert "use_io_binding=on" in done.out
    assert "no effect     inter_op_num_threads: " in done.out


def test_feeds_from_values_npz_and_dimensions_reach_the_model(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros((6, 16), np.float32))
    done = measured(
        cli.run("tune", mlp, *QUICK, "--feed", "rows.npz", "--batch-size", "6", "--json", cwd=tmp_path)
    )
    assert done.document["inputs"] == [{"name": "x", "dtype": "float32", "shape": [6, 16]}]
    unnamed = str(tiny_models.unnamed_dims(tmp_path / "unnamed.onnx"))
    info = ok(cli.run("inspect", unnamed, "--json")).document
    dims = [part for dim in info["free_dims"] if dim != info["batch_dim"] for part in ("--dim", f"{dim}=5")]
    assert any(":" in part for part in dims)
    with simulated_clock.machine():
        first = measured(cli.run("tune", unnamed, *QUICK, *dims, "--json")).document
    assert first["state"] == "COMPLETE"
    again = ok(cli.run("profile", unnamed, "--runs", "3", "--json"))  # sizes are as in the last run
    assert again.document["spec"]["workload"]["dims"] == first["spec"]["workload"]["dims"]
    assert set(again.document["sizes_from"].values()) == {"last run"}
    assert f"{next(iter(again.document['sizes_from']))}=5" in again.err
    assert (
        ok(cli.run("inspect", unnamed, "--json")).document["suggested_from"] == again.document["sizes_from"]
    )


def test_a_provider_that_fell_back_is_marked_in_the_document_and_in_the_table(
    cli: CommandLine, mlp: str
) -> None:
    args = ("tune", mlp, *QUICK, "--provider", "openvino", "--provider", "cpu", "--allow-fallback")
    done = measured(cli.run(*args))
    assert "FALLBACK" in done.out
    assert "OpenVINOExecutionProvider" in done.out
    document = ok(cli.run("history", "--json")).document["trials"][0]
    assert document["fallback"] is True
    assert document["effective_providers"] == ["CPUExecutionProvider"]
    assert "FALLBACK: ran on CPU" in ok(cli.run("history", "--wide")).out
    assert "FALLBACK" in ok(cli.run("history")).out


# --- profile and sweep ------------------------------------------------------------------------------------


def test_profile_shows_operators_and_leaves_the_trace(cli: CommandLine, mlp: str, tmp_path: Path) -> None:
    import json

    trace = tmp_path / "trace.json"
    done = ok(cli.run("profile", mlp, "--runs", "10", "--trace", str(trace), "--top", "1"))
    for word in ("operator", "node", "ms/run", "share", "overhead", "CPUExecutionProvider", "more nodes"):
        assert word in done.out
    events = json.loads(trace.read_text())
    assert sum(event["name"] == "model_run" for event in events) >= 10
    document = ok(cli.run("history", "--json")).document["trials"][0]
    assert document["kind"] == "profile"


def test_sweep_measures_every_combination_and_takes_earlier_points_when_asked(
    cli: CommandLine, mlp: str
) -> None:
    args = ("sweep", mlp, *QUICK, "--batch-size", "1,2", "--intra-op-num-threads", "1,2")
    document = measured(cli.run(*args, "--json")).document
    assert document["axes"] == {"batch_size": [1, 2], "intra_op_num_threads": [1, 2]}
    values = [tuple(point["values"].values()) for point in document["points"]]
    assert values == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [point["batch_size"] for point in document["points"]] == [1, 1, 2, 2]
    assert {point["state"] for point in document["points"]} == {"COMPLETE"}
    assert not any(point["reused"] for point in document["points"])

    again = measured(
        cli.run(
            "sweep", mlp, *QUICK, "--batch-size", "2,4", "--intra-op-num-threads", "2", "--reuse", "--json"
        )
    ).document
    comparison = document[
        "comparison"
    ]  # what was rejected, or measured on a busy machine, is not taken again
    worth = comparison["grade"] != "F" and comparison["busy"] is None
    assert [point["reused"] for point in again["points"]] == [worth, False]
    assert (again["points"][0]["trial"] == document["points"][3]["trial"]) is worth


@pytest.mark.usefixtures("clock")
def test_two_settings_give_the_table_that_the_browser_makes_of_the_store(cli: CommandLine, mlp: str) -> None:
    grid = ("--vary", "execution_mode=ORT_SEQUENTIAL,ORT_PARALLEL", "--vary", "inter-op-num-threads=1,2")
    done = measured(cli.run("sweep", mlp, *QUICK, *grid, "--line", "500", "--format", "csv"))
    assert "`inter_op_num_threads` has no effect: used by ORT_PARALLEL only" in done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["inter_op_num_threads"] for row in rows] == ["1", "2", "1", "2"]
    assert [row["same_as"] for row in rows] == ["", "ORT_SEQUENTIAL, inter_threads 1", "", ""]
    assert rows[0]["trial"] == rows[1]["trial"]
    assert {row["over_line"] for row in rows} == {"False"}
    assert all(float(row["rows_per_s_low"]) <= float(row["rows_per_s"]) for row in rows)

    store = Store(cli.home / STORE_NAME)
    (comparison,) = store.comparisons()
    assert len(comparison.contestants) == 4  # three of the four combinations, and ONNX Runtime's default
    axes = axes_of_study(comparison.study)
    assert [axis.name for axis in axes] == ["execution_mode", "inter_op_num_threads"]
    base = spec_from_dict(store.trials_of(comparison.id)[0].spec)
    points = expand(base, axes)
    known = known_trials(store, configurations(points), study=comparison.study)
    found = join(points, known)
    stands = rank_points(found, line_s=0.5, margin=base.protocol.margin)
    table = sweeps.points(found, stands)
    assert csv_text(table) == done.out.rstrip("\n")
    header, *shown = lines(Sheet(headline="", parts=[table]))
    assert header.split()[:2] == ["execution_mode", "inter_op_num_threads"]
    assert [line.split()[0] for line in shown[:4]] == [row["execution_mode"] for row in rows]


def test_a_sweep_goes_on_beside_points_that_are_refused_or_fail_and_says_where_each_stands(
    cli: CommandLine, mlp: str
) -> None:
    def fails_at_four(label: str, plan: Mapping[str, Any]) -> Model:
        return Model(load_error="Too many samples." if plan["feeds"]["batch_size"] == 4 else "")

    pinned = ("--session-config", "session.intra_op_thread_affinities=1", "--intra-op-num-threads", "2")
    varied = ("--vary", "batch_size=2,4", "--vary", "intra_op_num_threads=2,4")
    options = ("--no-enable-cpu-mem-arena", "--line", "0.000001", "--json")
    with simulated_clock.machine(fails_at_four):
        done = cli.run("sweep", mlp, *QUICK, *pinned, *varied, *options)
    assert done.code == EXIT_FAILED
    document = done.document
    assert document["axes"] == {"batch_size": [2, 4], "intra_op_num_threads": [2, 4]}
    assert document["line_s"] == pytest.approx(1e-9)
    complete, refused, failed, also_refused = document["points"]
    states = [point["state"] for point in (complete, refused, failed, also_refused)]
    assert states == ["COMPLETE", "REFUSED", "FAIL", "REFUSED"]
    assert (complete["over_line"], complete["place"]) == (True, "")
    assert complete["front"]
    assert complete["spec"]["session"]["enable_cpu_mem_arena"] is False  # one value beside --vary stays
    assert "intra_op_thread_affinities" in refused["why"]
    assert refused["why"] in done.err
    assert failed["error"]["message"] in done.err


def test_a_sweep_without_values_says_what_to_give(cli: CommandLine, mlp: str) -> None:
    done = cli.run("sweep", mlp)
    assert done.code == 2
    assert "`vary`" in done.err


# --- models and machine -----------------------------------------------------------------------------------


def test_inspect_shows_dimensions_and_operators(cli: CommandLine, tmp_path: Path) -> None:
    path = str(tiny_models.tokens(tmp_path / "tokens.onnx"))
    text = ok(cli.run("inspect", path)).out
    info = ok(cli.run("inspect", path, "--json")).document
    assert info["free_dims"]
    for word in (*info["free_dims"], "int64", info["sha256"], "Gather"):
        assert word in text
    proposed = ok(cli.run("inspect", path, "--suggest")).out
    assert proposed == f"{info['suggested']}\n" == "--batch-size 1 --dim sequence=128\n"
    assert info["suggested_from"] == {"sequence": "names"}


def test_inspect_says_with_the_words_of_tune_that_an_input_cannot_be_fed(
    cli: CommandLine, tmp_path: Path
) -> None:
    path = str(tiny_models.sequence_input(tmp_path / "sequence.onnx"))
    why = ok(cli.run("inspect", path, "--json")).document["not_fed"]
    assert "seq(tensor(float))" in why
    text = ok(cli.run("inspect", path)).out
    assert why in " ".join(text.split())
    done = cli.run("tune", path)
    assert done.code == 2
    assert why in done.err


# --- waiting, stopping, failing ---------------------------------------------------------------------------


@pytest.fixture
def somebody_else(cli: CommandLine) -> Iterator[threading.Event]:
    """The machine is taken until the event is set."""
    release, taken = threading.Event(), threading.Event()

    def hold() -> None:
        with MachineQueue(cli.queue).turn("Ada", "measure resnet"):
            taken.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(WAIT_S)
    yield release
    release.set()
    thread.join()


def test_waiting_is_said_with_who_has_the_machine_and_ctrl_c_gives_the_place_back(
    cli: CommandLine, mlp: str, somebody_else: threading.Event
) -> None:
    process = cli.start("tune", mlp, *QUICK, "--intra-op-num-threads", "1", "--json")
    assert process.stderr is not None
    while "Ada" not in process.stderr.readline():
        assert process.poll() is None
    first, own = MachineQueue(cli.queue).entries()
    assert (first.owner, own.owner == "Ada") == ("Ada", False)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert [entry.owner for entry in MachineQueue(cli.queue).entries()] == ["Ada"]


def test_a_signal_while_a_model_loads_cancels_and_leaves_no_process(cli: CommandLine, tmp_path: Path) -> None:
    slow = str(tiny_models.slow(tmp_path / "slow.onnx"))
    process = cli.start("tune", slow, "--json")
    wait_until(lambda: works(process) and bool(Store(cli.home / STORE_NAME).trials()))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert cli.left_over() == []
    assert "Traceback" not in err
    document = Done(code=process.returncode, out=out, err=err).document
    assert document["state"] == "CANCELLED"
    (trial,) = Store(cli.home / STORE_NAME).trials()
    assert trial.state == "CANCELLED"
    assert trial.id == document["trial"]


def test_a_stopped_sweep_shows_what_was_measured(cli: CommandLine, mlp: str) -> None:
    process = cli.start("sweep", mlp, "--batch-size", "1,2,4", "--runs", "200000", "--json")
    wait_until(lambda: is_comparing(process))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    document = Done(code=process.returncode, out=out, err=err).document
    assert cli.left_over() == []
    assert (process.returncode, document["state"]) == (130, "CANCELLED")
    assert [point["state"] for point in document["points"]] == ["CANCELLED"] * 3
    measured_runs = [len(point["latencies_s"] or []) for point in document["points"]]
    assert measured_runs == [
        sum(one["runs"] for one in point["blocks"] or []) for point in document["points"]
    ]


def test_a_hang_is_a_failed_trial_with_exit_code_1_and_a_document(cli: CommandLine, tmp_path: Path) -> None:
    slow = str(tiny_models.slow(tmp_path / "slow.onnx"))
    done = cli.run("tune", slow, "--timeout-s", "1", "--json", "--quiet")
    assert done.code == 1
    document = done.document
    assert document["state"] == "FAIL"
    assert document["error"]["type"] == "WorkerError"
    assert "1 s" in document["error"]["message"]
    assert len(done.err.splitlines()) <= 2
    assert Store(cli.home / STORE_NAME).trial(document["trial"]).state == "FAIL"


def test_a_reader_that_leaves_early_gives_no_traceback(cli: CommandLine) -> None:
    process = cli.start("export", "--list", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait(timeout=WAIT_S)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    process.stderr.close()


def test_the_command_line_reads_no_model_and_no_onnxruntime_in_its_own_process() -> None:
    script = (
        "import sys, core.cli\n"
        "heavy = {'onnxruntime', 'onnx', 'torch', 'torchvision', 'streamlit', 'plotly', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert done.stdout.strip() == "[]", done.stderr
