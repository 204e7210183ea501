"""`fleet show`, `report`, `export`, `pick` on made-up runs: documents, files that are read back, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.api.references import config_from
from core.api.session import Session
from core.api.stored import load_result
from core.cli import run
from core.evidence.fleet.fleet_types import FleetRun
from core.evidence.fleet.summary import summarize
from core.evidence.verification import recorded_speedups
from core.run.fleet import answers
from core.show.fleet_files import files
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.subjects import AboutFleet, find
from core.spec import spec_from_yaml
from core.spec.per_machine import pick
from core.spec.strict_yaml import load_strict
from core.store import Store
from core.wire.errors import SpecError
from dashboard.report.page import html_of
from tests import fleet_runs as made
from tests.documents import errors_of
from tests.fleet_runs import THREADS

SURE = {"a": (1.2, 1.19, 1.21), "b": (1.1, 1.09, 1.11)}
OTHER = {"a": (0.9, 0.89, 0.91), "b": (1.1, 1.09, 1.11)}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    return tmp_path / "home"


def two_hosts(**changes: Any) -> FleetRun:
    return made.run({"h1": made.compared(SURE), "h2": made.compared(OTHER)}, **changes)


# --- show ---------------------------------------------------------------------------------------------------


def test_show_prints_the_choice_its_regret_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    made.keep(two_hosts())
    assert run(["fleet", "show", "--wide"]) == 0
    told = capsys.readouterr().out
    assert "One configuration for all hosts: graph BASIC. It loses 9.1 % on h1" in told
    assert "regret of threads 1" in told
    assert "1.200× faster" in told


def test_its_document_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [made.host("h1", "k", price=1.0), made.host("h2", "k", price=2.0)]
    kept = made.keep(two_hosts(hosts=hosts))
    assert run(["fleet", "show", kept.id[:12], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert errors_of("fleet show", document) == []
    [question] = document["questions"]
    assert question["portability"]["outcome"] == "BEST"
    assert question["names"][question["portability"]["worst"][0]["configuration"]] == "graph BASIC"
    assert question["costs"]["hosts"][0]["host"] == "h1"


def test_a_document_of_every_command_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    searched = {"h1": made.searched(THREADS), "h2": made.searched(None, outcome="NO_DIFFERENCE")}
    for number, (command, documents) in enumerate(
        {
            "search": searched,
            "scorecard": {"h1": {"state": "MET", "targets": []}},
            "load": {"h1": {"trial": "l1", "load": {"words": "p99 is 3 ms."}}},
        }.items()
    ):
        one = made.run(documents, command=command)  # type: ignore[arg-type]
        made.keep(replace(one, id=f"20261127-0000000{number}"))
        assert run(["fleet", "show", f"20261127-0000000{number}", "--json"]) == 0
        assert errors_of("fleet show", json.loads(capsys.readouterr().out)) == []
        assert run(["fleet", "show", f"20261127-0000000{number}"]) == 0
        told = capsys.readouterr().out
    assert "p99 is 3 ms." in told


def test_csv_has_one_row_for_each_host_and_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    made.keep(two_hosts())
    assert run(["fleet", "show", "--format", "csv"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("question,host,configuration,verdict,ratio,ratio_low,ratio_high,regret")
    assert len(rows) == 6
    assert rows[1].startswith("1,h1,threads 1,FASTER,1.2,1.19,1.21,0.0,0.0")


@pytest.mark.parametrize("command", ["show", "report", "export"])
def test_an_unknown_run_is_refused_in_two_lines(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", command, "20260101", *(["x"] if command == "export" else [])]) == 2
    told = capsys.readouterr().err.splitlines()
    assert "There is no fleet run `20260101`" in told[0]
    assert len(told) == 2


def test_without_a_run_it_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "show"]) == 2
    assert "ortune fleet search MODEL" in capsys.readouterr().err


# --- files --------------------------------------------------------------------------------------------------


def test_every_exported_file_is_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.keep(two_hosts())
    folder = tmp_path / "out"
    assert run(["fleet", "export", made.run({}).id, str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert errors_of("fleet export", document) == []
    assert [one["file"] for one in document["files"]] == ["h1.yaml", "h2.yaml", "all-hosts.yaml"]
    specs = {one.name: spec_from_yaml(one.read_text("utf-8")) for one in folder.iterdir()}
    assert specs["h1.yaml"].session.intra_op_num_threads == 1
    assert specs["h2.yaml"].session.graph_optimization_level == "ORT_ENABLE_BASIC"
    assert {one.model.path for one in specs.values()} == {made.MODEL.path}
    for name in specs:  # as `tune --config` and `compare --candidate` read them
        assert config_from(str(folder / name), Store())["model"]["sha256"] == made.SHA256


def test_verify_finds_the_recorded_speed_up_and_machine_in_the_file() -> None:
    [first, *_] = files(summarize(two_hosts()))
    data = load_strict(first.text)
    [gain] = recorded_speedups(data["measured"]["contrasts"])
    assert (gain.ratio, gain.low, gain.high) == (1.2, 1.19, 1.21)
    assert data["environment"]["cpu"]["model"] == "CPU h1"
    assert data["measured"]["host"] == "h1"


def test_a_host_without_a_result_has_no_file_but_a_reason(tmp_path: Path) -> None:
    gone = {"type": "WorkerError", "message": "The disk is full.", "hint": ""}
    lost = made.answered("h2", None, state="FAIL", error=gone)
    found = files(summarize(made.run({"h1": made.compared(SURE), "h2": lost})))
    assert [(one.name, one.missing) for one in found] == [
        ("h1.yaml", ""),
        ("h2.yaml", "The disk is full."),
        ("all-hosts.yaml", ""),
    ]


def test_names_of_hosts_and_models_cannot_leave_the_folder_or_replace_another_file() -> None:
    names = ["../../etc/x", "a/b", "A/b", "..", "all-hosts", "con"]
    summary = summarize(made.run({name: made.compared(SURE) for name in names}))
    [one] = summary.sections
    models = [replace(one.matrix, model=name, model_sha256=name) for name in ("a/b", "a b")]
    several = replace(summary, sections=tuple(replace(one, matrix=of) for of in models))
    assert "con.yaml" not in [one.name for one in files(summary)]
    assert len(files(several)) == 2 * len(files(summary))
    written = [one.name for one in files(several)]
    assert len({one.lower() for one in written}) == len(written)
    assert all("/" not in one and not one.startswith(".") for one in written)


def test_undecided_hosts_get_the_default() -> None:
    wide = {"a": (1.02, 0.9, 1.2), "b": (1.01, 0.9, 1.2)}
    [first, *_] = files(summarize(made.run({"h1": made.compared(wide)})))
    assert spec_from_yaml(first.text).session.intra_op_num_threads is None


def test_pick_takes_the_fingerprint_then_the_cpu_then_the_choice() -> None:
    hosts = [made.host("h1", "k1"), made.host("h2", "k2")]
    whole = files(summarize(two_hosts(hosts=hosts)))[-1].text
    by_fingerprint, _ = pick(whole, fingerprint="k1", cpu="")
    by_cpu, why = pick(whole, fingerprint="new", cpu="CPU k1")
    other, _ = pick(whole, fingerprint="new", cpu="new")
    assert by_fingerprint.session.intra_op_num_threads == by_cpu.session.intra_op_num_threads == 1
    assert "CPU k1" in why
    assert other.session.graph_optimization_level == "ORT_ENABLE_BASIC"
    assert by_fingerprint.model == other.model


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("3", "`per_machine` must be a list"),
        ("[3]", "`per_machine.0` must be a dictionary"),
        ("[{cpu: x}]", "is missing"),
        ("[{fingerprint: k, configuration: {targets: []}}]", "unknown section `targets`"),
    ],
)
def test_a_wrong_section_is_refused(section: str, said: str) -> None:
    text = f"schema: 1\nmodel: {{path: x.onnx}}\nper_machine: {section}\n"
    with pytest.raises(SpecError) as error:
        pick(text, fingerprint="k", cpu="x")
    assert said in error.value.message


# --- reports ------------------------------------------------------------------------------------------------


def test_the_report_holds_answer_plots_and_files() -> None:
    hosts = [made.host("h<1>", "k", price=1.0), made.host("h2", "k", price=2.0)]
    documents = {"h<1>": made.compared(SURE), "h2": made.compared(OTHER)}
    kept = made.keep(made.run(documents, hosts=hosts))
    store = Store()
    about = find(store, [kept.id])
    assert isinstance(about, AboutFleet)
    page = html_of(about, store)
    assert "One configuration for all hosts: graph BASIC" in page
    assert 'id="plot-0"' in page
    assert "h&lt;1&gt;" in page
    assert "h<1>" not in page
    assert "intra_op_num_threads: 1" in page
    text = markdown(compose(about, store))
    assert "**One configuration for all hosts: graph BASIC" in text
    assert "regret of threads 1" in text
    assert "disagree on threads 1" in text


def test_a_script_loads_a_run_by_its_id() -> None:
    kept = made.keep(two_hosts())
    with Session() as session:
        found = load_result(kept.id, session=session)
        assert found.kind == "fleet"
        assert found.verdict.startswith("One configuration for all hosts: graph BASIC")
        assert errors_of("fleet show", json.loads(json.dumps(found.to_dict()))) == []
        assert len(found.table().rows) == 2


def test_report_writes_markdown_by_the_name_of_the_file(tmp_path: Path) -> None:
    made.keep(two_hosts())
    assert run(["fleet", "report", "-o", str(tmp_path / "r.md")]) == 0
    assert (tmp_path / "r.md").read_text("utf-8").startswith("### nightly")


# --- reading many runs --------------------------------------------------------------------------------------


def test_documents_are_read_once_and_without_raw_measurements() -> None:
    document = made.compared(SURE, trials={"a": {"latencies_s": [0.1] * 1000, "generations": 3}})
    kept = made.keep(made.run({"h1": document}))
    first = answers.latest(kept.id)
    assert first is not None
    read = first.answers[0].document
    assert read is not None
    assert "latencies_s" not in read["trials"][0]
    assert read["trials"][0]["generations"] == 3
    again = answers.latest(kept.id)
    assert again is not None
    assert again.answers[0].document is read
    assert answers.latest("20260101-ffffffff") is None
    assert [one.id for one in answers.listed(Store())] == [kept.id]
