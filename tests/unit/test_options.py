"""Options of the protocol on the command line: plain data for a spec, or a refusal in their own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.api.references import config_from
from core.api.settings import EFFORT, spec_data
from core.spec import TrialSpec, spec_from_dict
from core.spec.text_values import seconds, share
from core.store import Store
from core.wire.errors import SpecError
from tests.reading import tells


def spec(config: dict[str, Any] | None = None, **given: Any) -> TrialSpec:
    return spec_from_dict(spec_data(config or {}, "m.onnx", given))


def test_effort_is_of_the_protocol_and_precision_of_the_model() -> None:
    both = spec(precision="fp16", **{EFFORT: "publish"})
    assert (both.protocol.effort, both.model.precision) == ("publish", "fp16")
    assert spec(precision="fp16").protocol.effort == "quick"
    assert spec(**{EFFORT: "standard"}).model.precision == "fp32"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("precision", "fp8", "`--precision` accepts fp32, fp16, but got `fp8`"),
        (EFFORT, "quikc", "`--effort` accepts quick, standard, publish, .* Did you mean `quick`"),
        ("execution_mode", "ORT_SERIAL", "`--execution-mode` accepts ORT_SEQUENTIAL, ORT_PARALLEL"),
    ],
)
def test_what_is_no_choice_is_refused_with_its_option(name: str, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        spec(**{name: text})


def test_the_protocol_is_asked_for_in_its_own_units() -> None:
    one = spec(budget_s="2m", margin="3%", runs="50", warmup_runs="0", cpus="0-1")
    assert (one.protocol.budget_s, one.protocol.margin) == (120, 0.03)
    assert (one.protocol.runs, one.protocol.warmup_runs, one.protocol.cpus) == (50, 0, "0-1")


def test_a_file_of_inputs_may_be_a_path() -> None:
    assert spec(feeds=Path("x.npz")).workload.feeds == "x.npz"
    both = spec(feeds=[Path("x.npz"), "sr=16000"]).workload
    assert (both.feeds, both.feed_values) == ("x.npz", {"sr": 16000})


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("2m", 120), ("2 min", 120), ("1h", 3600)]
)
def test_a_duration_has_a_unit_or_is_seconds(text: str, expected: int) -> None:
    assert seconds("--budget", text) == expected


@pytest.mark.parametrize("text", ["", "s", "-5", "1.5m", "5d", "ten", "1m30"])
def test_what_is_no_duration_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(SpecError, match="`--budget`"):
        seconds("--budget", text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0.02", 0.02), ("2%", 0.02), ("2 %", 0.02), ("0", 0.0), ("150%", 1.5)]
)
def test_a_share_is_a_number_or_a_percentage(text: str, expected: float) -> None:
    assert share("--margin", text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["much", "", "-0.1", "-5%", "nan", "inf%"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="`--margin`"):
        share("--margin", text)


@pytest.mark.parametrize(("text", "instead"), [("5", "5%`, or `--margin 0.05"), ("1", "1%"), ("250", "250%")])
def test_five_without_a_percent_sign_is_not_taken_for_500_percent(text: str, instead: str) -> None:
    with pytest.raises(SpecError, match="percentage") as refused:
        share("--margin", text)
    assert instead in refused.value.hint


def test_the_engine_of_a_configuration_stays_unless_another_is_given() -> None:
    config = {"engine": "torch-eager"}
    assert spec(config).engine == "torch-eager"
    assert spec(config, engine="torch-compile").engine == "torch-compile"
    assert spec().engine == "onnxruntime"


def test_the_tolerance_of_outputs_is_a_share() -> None:
    assert spec(tolerance="1e-3").protocol.tolerance == 1e-3
    assert spec(tolerance="5%").protocol.tolerance == 0.05
    assert spec().protocol.tolerance is None
    for text in ("0", "-1", "3", "nan"):
        with pytest.raises(SpecError, match=r"(?i)tolerance"):
            spec(tolerance=text)


def test_what_names_no_configuration_is_refused_with_all_that_names_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    with pytest.raises(SpecError, match="`nothere`") as refused:
        config_from("nothere", store)
    for one in ("history", "YAML", "MODEL.onnx", "variant:NAME", "cpu-latency", "torch:eager"):
        assert one in refused.value.hint
    with pytest.raises(SpecError, match="`edge`"):
        config_from("egde", store)


@pytest.mark.parametrize("key", ["effort", "precision"])
@pytest.mark.parametrize("layout", ["protocol: {%s: publish}\n", "protocol:\n  runs: 5\n  %s: publish\n"])
def test_the_key_of_an_effort_before_1_0_is_read_and_named(tmp_path: Path, key: str, layout: str) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("schema: 1\nmodel: {path: m.onnx, precision: fp16}\n" + layout % key)
    notes: list[str] = []
    assert config_from(str(path), NO_STORE, note=notes.append)["protocol"]["effort"] == "publish"
    said = " ".join(notes)
    assert tells(said, path.name, "protocol.precision", "protocol.effort") == (key == "precision")
    assert bool(said) == (key == "precision")


NO_STORE: Any = None  # a file needs none


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a YAML file with that session, in a folder of its own; the current folder is another."""
    monkeypatch.delenv("ORTUNE_ALLOW_EXPERT", raising=False)
    for name in ("here", "theirs"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def write(session: str) -> str:
        path = tmp_path / "theirs" / "c.yaml"
        path.write_text(f"schema: 1\nmodel: {{path: m.onnx}}\nsession: {session}\n")
        return str(path)

    return write


def test_expert_in_a_file_needs_the_option_or_the_variable(
    configuration: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configuration("{expert: true, session_config_entries: {session.made_up: x}}")
    with pytest.raises(SpecError, match="operator's"):
        config_from(path, NO_STORE)
    assert config_from(path, NO_STORE, expert=True)["session"]["expert"] is True
    monkeypatch.setenv("ORTUNE_ALLOW_EXPERT", "1")
    assert config_from(path, NO_STORE)["session"]["expert"] is True


@pytest.mark.parametrize("value", ["/etc", "../../x"])
def test_a_file_names_files_near_it_only_and_the_command_line_names_any(
    configuration: Callable[[str], str], tmp_path: Path, value: str
) -> None:
    key = "session.node_partition_config_file"
    with pytest.raises(SpecError, match="outside"):
        config_from(configuration(f"{{session_config_entries: {{{key}: {value}}}}}"), NO_STORE)
    near = str(tmp_path / "theirs" / "partition.json")
    config = config_from(configuration(f"{{session_config_entries: {{{key}: {near}}}}}"), NO_STORE)
    typed = spec(config, session_config_entries=[f"{key}={value}"])
    assert typed.session.session_config_entries == {key: value}
