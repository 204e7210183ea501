"""Benchmarks of a fleet and of runtimes: the figures from made-up records, the simulated hosts, the model."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import fleet_figures, fleet_hosts, fleet_kinds, runtime_figures, tables
from benchmarks.figures import Row
from core.run.fleet import folders
from tests.waiting import wait_until

HEAD = {"options": {}, "machine": "AMD EPYC, kernel 6.1-fc-v1", "fingerprint": "f", "version": "1"}
QUIET = {"steal": 0.001, "others": 0.02, "quiet": True, "at": 1_790_000_000}


def of_fleet(kind: str, rows: list[dict[str, Any]]) -> list[Row]:
    return list(fleet_figures.rows_of_kind(HEAD, kind, [{"kind": kind, **QUIET, **row} for row in rows]))


def of_runtimes(kind: str, rows: list[dict[str, Any]]) -> list[Row]:
    return list(runtime_figures.rows_of_kind(HEAD, kind, [{"kind": kind, **row} for row in rows]))


# --- a fleet ------------------------------------------------------------------------------------------------


def seconds(extra_s: float) -> dict[str, Any]:
    return {"plain_s": 3.0, "fleet_s": 3.0 + extra_s, "embedded_s": 5.0, "cluster_s": 0.5}


def test_what_a_fleet_adds_is_the_difference_of_each_turn() -> None:
    fleet, embedded, cluster = of_fleet("extra", [seconds(one) for one in (0.3, 0.4, 0.5, 0.6, 0.7)])
    assert (fleet.n, fleet.estimate, fleet.unit, fleet.met) == ("5", "0.50", "s", "yes")
    assert 0.3 <= float(fleet.low) <= 0.5 <= float(fleet.high) <= 0.7
    assert fleet.more["with it"] == "3.50 s"
    assert fleet.more["other programs"] == "0.02 cores"
    assert (fleet.machine, fleet.script) == ("EPYC v1", "fleet.py --only extra")
    assert (embedded.estimate, embedded.target, cluster.estimate) == ("2.00", "", "0.50")


def test_a_fleet_that_adds_too_much_misses_its_target_and_few_results_have_no_interval() -> None:
    fleet, *_ = of_fleet("extra", [seconds(1.4), seconds(1.6)])
    assert (fleet.estimate, fleet.met, fleet.low, fleet.high) == ("1.50", "no", "", "")


def test_only_the_host_has_a_target_for_its_cpu_time() -> None:
    rows = of_fleet(
        "idle",
        [
            {"state": "idle", "seconds": 20.0, "shares": {"host": 0.002, "scheduler": 0.03}},
            {"state": "measuring", "seconds": 20.0, "shares": {"host": 0.02, "client": 0.01}},
        ],
    )
    assert [(one.condition, one.estimate, one.met) for one in rows] == [
        ("nothing is asked", "0.20", "yes"),
        ("nothing is asked", "3.00", ""),
        ("a question measures", "2.00", "no"),
        ("a question measures", "1.00", ""),
    ]


def compared(side: str, half_width: float | None, verdict: str = "EQUIVALENT") -> dict[str, Any]:
    return {"side": side, "half_width": half_width, "verdict": verdict}


def test_half_widths_are_compared_in_pairs() -> None:
    rows = [compared("without", 0.01), compared("beside", 0.02), compared("beside", 0.02, "FASTER")]
    rows += [compared("without", 0.01), compared("without", None), compared("beside", 0.5)]
    beside, without, wider = of_fleet("aa", rows)
    assert (beside.n, beside.estimate, beside.met) == ("3", "33.3", "no")
    assert (without.n, without.estimate, without.target) == ("3", "0.0", "")
    assert (wider.n, wider.estimate, wider.met) == ("2", "2.00", "no")


def test_the_sides_alternate_and_each_is_first_as_often() -> None:
    found = [fleet_kinds.side_of(number) for number in range(8)]
    assert all(set(pair) == set(fleet_kinds.SIDES) for pair in zip(found[::2], found[1::2], strict=True))
    assert found[::2].count("beside") == 2


def test_what_many_hosts_cost() -> None:
    row = {
        "hosts": 200,
        "question_s": 5.0,
        "document_kib": 61.2,
        **dict.fromkeys(fleet_figures._OF_HOSTS, 7.0),
    }
    rows = of_fleet("hosts", [row, {**row, "collect_s": 9.0}])
    assert len(rows) == len(fleet_figures._OF_HOSTS)
    assert {one.condition for one in rows} == {"200 simulated hosts; answers of 61.2 KiB after 5 s"}
    (collected,) = [one for one in rows if "until the client has all" in one.measure]
    assert (collected.n, collected.estimate, collected.unit) == ("2", "8.0", "s")


def test_a_model_that_is_sent_again_misses_the_target() -> None:
    row = {"hosts": 5, "megabytes": 2000, "first_s": 60.0, "second_s": 10.0, "second_megabytes": 0.3}
    row |= {"client_peak_mib": 150.0, "scheduler_peak_mib": 90.0, "host_peak_mib": 200.0}
    *_, rate, again = of_fleet("model", [row])
    assert (rate.estimate, rate.unit, again.estimate, again.met) == ("200", "MB/s", "0.00", "yes")
    assert of_fleet("model", [{**row, "second_megabytes": 10_000.0}])[-1].met == "no"
    slow = of_fleet("model", [{**row, "second_s": 60.0}])
    assert all("rate" not in one.measure for one in slow)


def test_a_question_without_a_record_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (fleet_figures, runtime_figures):
        monkeypatch.setattr(module, "RECORD", tmp_path / "none.jsonl")
        rows = module.every_row()
        assert len(rows) == len(module.KINDS)
        assert {one.met for one in rows} == {"not measured"}


def test_a_record_fills_its_questions_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = tmp_path / "fleet.jsonl"
    lines = [{"head": HEAD}, {"kind": "extra", **QUIET, **seconds(0.5)}]
    record.write_text("".join(json.dumps(one) + "\n" for one in lines))
    monkeypatch.setattr(fleet_figures, "RECORD", record)
    missing = [one.question for one in fleet_figures.every_row() if one.met == "not measured"]
    assert missing == ["fleet-idle", "fleet-aa", "fleet-hosts", "fleet-model"]


def test_every_question_has_a_table_on_the_page() -> None:
    names = tables.headings(tables.TEMPLATE.read_text())
    assert {f"fleet-{one}" for one in fleet_figures.KINDS} <= set(names)
    assert {f"runtime-{one}" for one in runtime_figures.KINDS} <= set(names)


# --- what it measures with ----------------------------------------------------------------------------------


def test_a_simulated_host_answers_with_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    document, folder = tmp_path / "d.json", folders.answer("a key")
    document.write_text('{"state": "COMPLETE"}')
    folder.mkdir(parents=True)
    fleet_hosts.made_up(document, 0.05)(folder)
    wait_until(lambda: (folders.read_json(folder / folders.STATE) or {})["state"] == "COMPLETE", "No answer.")
    found = folders.read_json(folder / folders.STATE)
    assert found is not None
    assert found["started_at"] <= found["finished_at"] <= time.time()
    assert found["files"][folders.DOCUMENT]["bytes"] == (folder / folders.DOCUMENT).stat().st_size == 21
    assert folders.read_json(folder / folders.DOCUMENT) == {"state": "COMPLETE"}


def test_a_large_model_is_valid_and_as_large_as_it_says(tmp_path: Path) -> None:
    path = fleet_kinds.large_model(tmp_path / "m" / "large.onnx", 1)
    assert (path.parent / "weights.bin").stat().st_size == 1_000_000
    onnx.checker.check_model(str(path), full_check=True)


# --- runtimes -----------------------------------------------------------------------------------------------


def contrast(ratio: float, low: float | None, holds: bool = True) -> dict[str, Any]:
    bounds = {"ratio": ratio, "ratio_low": low, "ratio_high": None if low is None else ratio + 0.1}
    return {**bounds, "verdict": "SLOWER", "holds": holds, "generations": 6, "rounds": 100}


def test_every_version_of_a_model_has_a_row() -> None:
    contrasts = {"ort122": contrast(0.9, 0.85), "openvino": contrast(1.2, None, holds=False)}
    row = {"model": "digits_cnn", "contrasts": contrasts, "p50_s": {"ort122": 2e-5}, **QUIET}
    old, other = of_runtimes("versions", [row])
    assert (old.condition, old.estimate, old.low, old.high) == (
        "digits_cnn; onnxruntime==1.22.1",
        "0.90",
        "0.85",
        "1.00",
    )
    assert (old.n, old.more["p50"], old.note) == ("6 launches", "0.020 ms", "")
    assert (other.low, other.more["p50"], other.note) == ("", "–", "Rejected by the A/A control.")


def test_the_target_counts_all_equal_environments() -> None:
    rows = [{"model": name, "verdict": "EQUIVALENT", **QUIET} for name in ("a", "b", "a", "b")]
    rows[1]["verdict"] = "SLOWER"
    found = {one.condition: one for one in of_runtimes("same", rows)}
    assert {name: (one.n, one.estimate, one.met) for name, one in found.items()} == {
        "a": ("2", "0.0", ""),
        "b": ("2", "50.0", ""),
        "all": ("4", "25.0", "no"),
    }


def test_the_cost_of_another_interpreter_is_the_difference_of_each_turn() -> None:
    row = {"own_s": 0.2, "other_s": 0.25, "own_server_s": 0.1, "other_server_s": 0.4}
    launch, server = of_runtimes("start", [row, {**row, "other_s": 0.35}])
    assert (launch.estimate, launch.more["in ORTune's own"], launch.date) == ("0.100", "0.200 s", "")
    assert server.estimate == "0.300"
