"""A question names the runtimes whose ONNX Runtime answers it: in their own processes, in the same rounds."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.process import runtimes
from core.store import Store
from core.wire.files import ROOT
from tests import other_runtimes
from tests.command_line import CommandLine
from tests.other_runtimes import needs_older_onnxruntime

simulated = pytest.mark.usefixtures("clock")  # comparisons do not run; all other workers do
FEW = ("--runs", "6", "--warmup-runs", "1", "--quiet")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line with two runtimes of the installed version."""
    one = CommandLine(tmp_path_factory.mktemp("runtimes"), acquainted)
    for name in ("same", "again"):
        other_runtimes.add(one.home, name)
    return one


@pytest.fixture
def changeable(tmp_path: Path, acquainted: Path) -> CommandLine:
    """A command line with a runtime that the test changes or removes."""
    one = CommandLine(tmp_path, acquainted)
    other_runtimes.add(one.home, "same")
    return one


def pinned(line: CommandLine, name: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTUNE_HOME", str(line.home))
        return runtimes.pinned(name)


def ran_in(document: Any) -> dict[str, str]:
    """Label of each configuration of a comparison -> the runtime that it ran in."""
    labels = {one["trial"]: one["label"] for one in document["contestants"]}
    return {labels[one["trial"]]: one["runtime"] for one in document["trials"]}


# --- which configuration runs where -------------------------------------------------------------------------


@simulated
def test_every_configuration_runs_once_in_each_of_several_runtimes(line: CommandLine, square: Path) -> None:
    threads = ("--candidate", "preset:edge")
    done = line.run("compare", str(square), *threads, "--runtime", "same", "--runtime", "own", *FEW, "--json")
    assert done.code in (0, 3), done.err
    same = pinned(line, "same")
    assert ran_in(done.document) == {
        "preset:default (same)": same,
        "preset:default (own)": "own",
        "preset:edge (same)": same,
        "preset:edge (own)": "own",
    }
    assert [one["role"] for one in done.document["contestants"]].count("baseline") == 1
    assert {one["state"] for one in done.document["trials"]} == {"COMPLETE"}


def test_tune_in_two_runtimes_has_the_first_as_the_baseline(line: CommandLine, square: Path) -> None:
    done = line.run("tune", str(square), "--runtime", "same", "--runtime", "again", *FEW, "--json")
    assert done.document["runtime"] == pinned(line, "again")
    store = Store(line.home / "ortune.db")
    comparison = store.comparison(done.document["comparison"])
    assert [(one.label, one.role) for one in comparison.contestants] == [
        ("candidate", "candidate"),
        ("runtime same", "baseline"),
    ]
    assert store.trial(comparison.baseline).spec["runtime"] == pinned(line, "same")


@simulated
def test_a_file_keeps_its_runtime_among_others_and_an_option_replaces_it_alone(
    line: CommandLine, square: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"schema: 1\nmodel:\n  path: {square}\nruntime: same\n")
    both = line.run(
        "compare", str(square), "--candidate", str(file), "--runtime", "again", *FEW[:-1], "--json"
    )
    assert set(ran_in(both.document).values()) == {pinned(line, "same"), pinned(line, "again")}
    assert f"{file} keeps its runtime, same" in both.err
    alone = line.run("tune", "--config", str(file), "--runtime", "own", *FEW, "--json")
    assert alone.document["runtime"] == "own"


@simulated
def test_the_default_of_a_runtime_is_measured_in_that_runtime(line: CommandLine, square: Path) -> None:
    text = ("--intra-op-num-threads", "1", "--runtime", pinned(line, "same"))
    done = line.run("tune", str(square), *text, *FEW, "--json")
    trials = Store(line.home / "ortune.db").trials_of(done.document["comparison"])
    assert [one.spec["runtime"] for one in trials] == [pinned(line, "same")] * 2
    default = line.run("tune", str(square), "--runtime", "same", *FEW, "--json")
    assert len(Store(line.home / "ortune.db").trials_of(default.document["comparison"])) == 1


@simulated
def test_a_runtime_with_and_without_its_hash_is_one_request(
    line: CommandLine, square: Path, tmp_path: Path
) -> None:
    file = tmp_path / "default.yaml"
    file.write_text(f"schema: 1\nmodel:\n  path: {square}\nruntime: same\n")
    asked = ("--runtime", pinned(line, "same"), "--baseline", str(file))
    done = line.run("tune", str(square), *asked, "--runs", "6", "--quiet", "--json")
    trials = Store(line.home / "ortune.db").trials_of(done.document["comparison"])
    assert [one.id for one in trials] == [done.document["trial"]]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("tune", "--runtime", "nope"), "There is no runtime `nope`"),
        (("tune", "--runtime", "sam"), "Did you mean `same`?"),
        (("compare", "--runtime", "No/Name", "--runtime", "same"), "A runtime must be a name"),
        (("tune", "--runtime", f"own@sha256:{'0' * 64}"), "so it has no hash"),
        (("tune", "--runtime", f"same@sha256:{'0' * 64}"), "asks for `000000000000`"),
        (("tune", "--runtime", "same@sha256:12"), "64 digits"),
        (("compare", "--runtime", "same", "--runtime", "same"), "`same` is given twice"),
        (("compare", "--runtime", "same"), "1 to 7 candidates, but got 0"),
        (("tune", *("--runtime", "same", "--runtime", "own", "--runtime", "again")), "got 3 runtimes"),
        (("profile", "--runtime", "same", "--runtime", "own"), "takes one runtime"),
        (("search", "--runtime", "same", "--runtime", "own"), "takes one runtime"),
        (("sweep", "--vary", "runtime=same,nope"), "There is no runtime `nope`"),
        (("search", "--vary", "runtime=nope"), "There is no runtime `nope`"),
        (("load", "--rate", "5", "--runtime", "nope"), "There is no runtime `nope`"),
    ],
)
def test_what_cannot_be_a_runtime_is_refused_before_anything_runs(
    line: CommandLine, square: Path, asked: tuple[str, ...], told: str
) -> None:
    command, *options = asked
    before = len(Store(line.home / "ortune.db").trials())
    done = line.run(command, str(square), *options)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err
    assert len(Store(line.home / "ortune.db").trials()) == before


# --- a changed environment ----------------------------------------------------------------------------------


@simulated
def test_a_repeated_sweep_reuses_an_unchanged_environment_and_never_a_changed_one(
    changeable: CommandLine, square: Path
) -> None:
    asked = ("sweep", str(square), "--vary", "runtime=same,own", "--reuse", *FEW, "--json")

    def reused() -> dict[str, bool]:
        found = changeable.run(*asked).document["points"]
        assert {one["state"] for one in found} == {"COMPLETE"}
        return {one["values"]["runtime"]: one["reused"] for one in found}

    assert reused() == {"same": False, "own": False}
    assert reused() == {"same": True, "own": True}
    other_runtimes.change(changeable.home, "same")
    assert reused() == {"same": False, "own": True}


@simulated
def test_a_trial_of_a_changed_environment_is_not_started_again(changeable: CommandLine, square: Path) -> None:
    done = changeable.run("tune", str(square), "--runtime", "same", *FEW, "--json")
    other_runtimes.change(changeable.home, "same")
    again = changeable.run("tune", "--config", done.document["trial"], *FEW)
    assert again.code == 2
    assert "The runtime `same` is another one" in again.err
    now = changeable.run("tune", "--config", done.document["trial"], "--runtime", "same", *FEW, "--json")
    assert now.document["runtime"] == pinned(changeable, "same") != done.document["runtime"]


# --- sweeps, searches and loads -----------------------------------------------------------------------------


@simulated
def test_two_axes_of_a_sweep_are_the_runtime_and_the_threads(line: CommandLine, square: Path) -> None:
    vary = ("--vary", "runtime=own,same", "--vary", "intra_op_num_threads=1,2")
    found = line.run("sweep", str(square), *vary, *FEW, "--json").document
    assert found["axes"] == {"runtime": ["own", "same"], "intra_op_num_threads": [1, 2]}
    assert [one["runtime"] for one in found["points"]] == ["own", "own", *[pinned(line, "same")] * 2]


@simulated
def test_several_runtimes_of_a_sweep_are_an_axis(line: CommandLine, square: Path) -> None:
    done = line.run("sweep", str(square), "--runtime", "same", "--runtime", "again", *FEW, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [one["runtime"] for one in rows] == ["same", "again"], done.err


@simulated
def test_a_search_varies_the_runtime_and_its_default_stays_in_the_own_one(
    line: CommandLine, square: Path
) -> None:
    found = line.run(
        "search", str(square), "--vary", "runtime=same", "--budget", "6", "--quiet", "--json"
    ).document
    assert found["default"]["spec"].get("runtime", "own") == "own"
    evaluated = [one["changes"] for one in found["trials"] if one["changes"]]
    assert evaluated
    assert all(one == {"runtime": pinned(line, "same")} for one in evaluated)


@simulated
def test_a_search_in_a_runtime_measures_its_default_there(line: CommandLine, square: Path) -> None:
    vary = ("--vary", "intra_op_num_threads=1,2")
    found = line.run(
        "search", str(square), "--runtime", "same", *vary, "--budget", "6", "--quiet", "--json"
    ).document
    assert found["default"]["spec"]["runtime"] == found["spec"]["runtime"] == pinned(line, "same")
    assert not any("runtime" in one["changes"] for one in found["trials"])


def test_a_load_test_serves_from_each_runtime(line: CommandLine, square: Path) -> None:
    short = ("--rate", "20", "--duration", "1", "--turns", "1")
    done = line.run("load", str(square), *short, "--runtime", "own", "--runtime", "same", "--json", "--quiet")
    served = done.document["load"]["configurations"]
    assert [one["label"] for one in served] == ["ORT default (own)", "ORT default (same)"]
    assert [one["spec"].get("runtime", "own") for one in served] == ["own", pinned(line, "same")]
    assert not any(one["error"] for one in served)
    assert ["libraries" in one for one in served] == [False, True]


def test_accuracy_is_measured_in_each_runtime_and_compared_within_it(line: CommandLine) -> None:
    digits, data = ROOT / "sample_models" / "digits_cnn.onnx", ROOT / "sample_models" / "digits_test.npz"
    asked = ("--data", str(data), "--against", str(digits), "--runtime", "own", "--runtime", "same")
    found = line.run("accuracy", str(digits), *asked, "--json", "--quiet").document
    ran = [one["spec"].get("runtime", "own") for one in found["accuracies"]]
    assert ran == ["own", "own", *[pinned(line, "same")] * 2]
    assert len(found["comparisons"]) == 2


@simulated
def test_a_scorecard_judges_the_configuration_in_its_runtime(
    line: CommandLine, square: Path, tmp_path: Path
) -> None:
    file = tmp_path / "goal.yaml"
    target = "- {metric: latency_p50, at_most: 10 s}"
    file.write_text(f"schema: 1\nmodel:\n  path: {square}\nruntime: same\ntargets:\n{target}\n")
    done = line.run("scorecard", str(file), "--runs", "20", "--quiet", "--json")
    assert done.document["spec"]["runtime"] == pinned(line, "same")
    [trial] = done.document["trials"]
    assert Store(line.home / "ortune.db").trial(trial).spec["runtime"] == pinned(line, "same")
    other = line.run(
        "scorecard", str(file), "--runtime", "own", "--reuse", "--runs", "20", "--quiet", "--json"
    )
    assert trial not in other.document["trials"]


@simulated
def test_a_search_in_a_changed_runtime_is_not_continued(changeable: CommandLine, square: Path) -> None:
    asked = ("--vary", "runtime=same", "--budget", "6", "--quiet", "--json")
    study = changeable.run("search", str(square), *asked).document["study"]
    assert changeable.run("search", "--resume", study, "--dry-run").code == 0
    other_runtimes.change(changeable.home, "same")
    again = changeable.run("search", "--resume", study, "--dry-run")
    assert (again.code, "The runtime `same` is another one" in again.err) == (2, True)


# --- files --------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(changeable: CommandLine, square: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A bundle and a YAML file of a trial in the runtime `same`."""
    trial = changeable.run("tune", str(square), "--runtime", "same", *FEW, "--json").document["trial"]
    files = tmp_path / "one.zip", tmp_path / "one.yaml"
    for path, form in zip(files, ("bundle", "yaml"), strict=True):
        assert changeable.run("export", trial, "--format", form, "-o", str(path)).code == 0
    return files


@simulated
def test_files_name_the_runtime_with_its_hash_and_versions(
    changeable: CommandLine, exported: tuple[Path, Path]
) -> None:
    text = exported[1].read_text()
    data = yaml.safe_load(text)
    assert data["runtime"] == pinned(changeable, "same")
    assert any(name.startswith("onnxruntime") for name in data["environment"]["libraries"])
    assert "# RUNTIME: 'same: onnxruntime" in text


@simulated
def test_a_machine_without_the_runtime_says_how_to_add_it(
    changeable: CommandLine, exported: tuple[Path, Path]
) -> None:
    bundle, file = exported
    libraries = yaml.safe_load(file.read_text())["environment"]["libraries"]
    name, version = next(one for one in sorted(libraries.items()) if one[0].startswith("onnxruntime"))
    shutil.rmtree(changeable.home / "runtimes" / "same")
    command = f"ortune runtimes add same --package {name}=={version}"
    done = changeable.run("tune", "--config", str(file), *FEW)
    assert (done.code, command in done.err) == (2, True)
    missing = changeable.run("verify", str(bundle), "--no-measure", "--json")
    assert (missing.code, missing.document["state"]) == (1, "FAILED")
    assert command in missing.document["runs"]["why"]
    assert {"ONNX Runtime", "settings"}.isdisjoint(one["name"] for one in missing.document["checks"])
    own = changeable.run("verify", str(bundle), "--no-measure", "--runtime", "own", "--json")
    check = next(one for one in own.document["checks"] if one["name"] == "runtime")
    assert (own.code, check["state"], check["here"]) == (0, "NOTE", "own")


@simulated
def test_verification_runs_in_the_runtime_of_the_name_and_notes_another_content(
    changeable: CommandLine, exported: tuple[Path, Path]
) -> None:
    def checks() -> dict[str, str]:
        done = changeable.run("verify", str(exported[0]), "--no-measure", "--json")
        assert done.code == 0, done.err
        return {one["name"]: one["state"] for one in done.document["checks"]}

    assert (checks()["runtime"], checks()["ONNX Runtime"]) == ("OK", "OK")
    other_runtimes.change(changeable.home, "same")
    assert (checks()["runtime"], checks()["ONNX Runtime"]) == ("NOTE", "OK")


@simulated
def test_a_recorded_baseline_is_measured_in_its_runtime_or_the_reason_is_told(
    changeable: CommandLine, square: Path, tmp_path: Path
) -> None:
    asked = ("--runtime", "same", "--runtime", "own", "--intra-op-num-threads", "1")
    trial = changeable.run("tune", str(square), *asked, *FEW, "--json").document["trial"]
    bundle = tmp_path / "two.zip"
    assert changeable.run("export", trial, "--format", "bundle", "-o", str(bundle)).code == 0

    def verified() -> Any:
        return changeable.run("verify", str(bundle), "--json", "--quiet").document

    other_runtimes.change(changeable.home, "same")  # its name counts, as on another machine
    _, before = verified()["fast"]["gains"]
    assert (before["against"], before["here"] is None) == ("`runtime same`", False)
    shutil.rmtree(changeable.home / "runtimes" / "same")
    found = verified()
    assert found["fast"]["gains"][1]["here"] is None
    assert any("There is no runtime `same`" in one for one in found["notes"])


@needs_older_onnxruntime
def test_versions_are_those_of_the_runtime_everywhere(changeable: CommandLine, square: Path) -> None:
    other_runtimes.add(changeable.home, "older", older=True)
    done = changeable.run("compare", str(square), "--runtime", "own", "--runtime", "older", *FEW, "--json")
    own, older = sorted(done.document["trials"], key=lambda one: one["runtime"] != "own")
    assert older["environment"]["libraries"]["onnxruntime"] == "1.22.1"
    assert own["fingerprint"] == older["fingerprint"]
    shown = changeable.run("show", done.document["comparison"], "--wide")
    assert "older (onnxruntime 1.22.1)" in " ".join(shown.out.split())
    bundle = changeable.home / "older.zip"
    assert changeable.run("export", older["trial"], "--format", "bundle", "-o", str(bundle)).code == 0
    verified = changeable.run("verify", str(bundle), "--no-measure", "--json").document
    versions = next(one for one in verified["checks"] if one["name"] == "ONNX Runtime")
    assert (versions["state"], versions["here"]) == ("OK", "onnxruntime 1.22.1")
    assert verified["differences"] == []
