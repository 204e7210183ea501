"""Dynamic batching as part of a configuration: its YAML, what it changes and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core.api.settings import spec_data
from core.evidence.comparison import same_request
from core.run.export_source import export_source_of
from core.show import setting_chips
from core.show.export import export_yaml
from core.spec import (
    NOT_COMPARED,
    TrialSpec,
    ort_default,
    spec_from_dict,
    spec_from_yaml,
    with_changes,
    yaml_from_spec,
)
from core.spec.load import BatchingSpec
from core.spec.strict_yaml import load_strict
from core.store import Store
from core.wire.errors import SpecError
from dashboard import configurations, fields
from tests import builders
from tests.simulated_load import sample_load_result

BATCHING = {"max_batch_size": 8, "max_queue_delay_microseconds": 2000, "preferred_batch_size": [4, 8]}
PLAIN = spec_from_dict({"model": {"path": "m.onnx"}})
BATCHED = spec_from_dict({"model": {"path": "m.onnx"}, "dynamic_batching": BATCHING})


def test_a_yaml_file_holds_it_and_gives_it_back() -> None:
    text = yaml_from_spec(BATCHED)
    assert load_strict(text)["dynamic_batching"] == BATCHING
    read = spec_from_yaml(text)
    assert read == BATCHED
    assert read.dynamic_batching == BatchingSpec(
        max_batch_size=8, max_queue_delay_microseconds=2000, preferred_batch_size=(4, 8)
    )
    assert "dynamic_batching" not in load_strict(yaml_from_spec(PLAIN))


def test_a_comparison_runs_the_same_with_and_without_it() -> None:
    assert BATCHED != PLAIN
    assert BATCHED.key() == PLAIN.key()
    assert same_request(BATCHED, PLAIN)
    assert ort_default(BATCHED).dynamic_batching is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_batch_size": 1}, "max_batch_size"),
        ({"max_batch_size": 8, "preferred_batch_size": [9]}, "1 to 8"),
        ({"max_batch_size": 8, "max_queue_delay_microseconds": -1}, "max_queue_delay_microseconds"),
        ({"max_batch_size": 8, "delay": 1}, "delay"),
        ({"max_queue_delay_microseconds": 5}, "max_batch_size"),
        ({"max_batch_size": "8"}, "max_batch_size"),
    ],
)
def test_wrong_values_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)) as refused:
        spec_from_dict({"model": {"path": "m.onnx"}, "dynamic_batching": wrong})
    assert refused.value.hint


def test_changes_of_settings_and_presets_keep_it() -> None:
    assert with_changes(BATCHED, {"intra_op_num_threads": 2}).dynamic_batching == BATCHED.dynamic_batching
    assert configurations.from_preset("edge", BATCHED).dynamic_batching == BATCHED.dynamic_batching
    given = spec_data(BATCHED.to_dict(), None, {"batch_size": 4})
    assert given["dynamic_batching"] == BATCHING


def test_the_session_of_a_browser_keeps_it() -> None:
    values = fields.values_from_spec(BATCHED)
    read = fields.spec_from_values(values, path="m.onnx", sha256=None, info=None)
    assert read.dynamic_batching == BATCHED.dynamic_batching
    assert fields.values_from_spec(PLAIN)[fields.BATCHING] == ""  # loading another configuration removes it
    for broken in ("{", "[]", "8"):
        with pytest.raises(SpecError, match="dynamic batching"):
            fields.batching_of({fields.BATCHING: broken})


def test_chips_and_differences_name_it() -> None:
    assert setting_chips.chips(BATCHED) == [
        ("batching 8, 2 ms", "dynamic_batching up to 8 samples, delay 2 ms, preferred 4, 8")
    ]
    assert setting_chips.chips(PLAIN) == []
    [found] = setting_chips.differences(BATCHED, PLAIN)
    assert found.chip == "batching 8, 2 ms"
    [found] = setting_chips.differences(PLAIN, BATCHED)
    assert found.chip == "batching off"


def test_every_part_that_is_not_compared_is_a_part_of_a_spec() -> None:
    assert set(NOT_COMPARED) < set(TrialSpec.model_fields)


def test_a_load_test_that_found_the_best_batching_is_exported_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    found = sample_load_result("batching")
    trial = builders.trial("1234567890abcdef", PLAIN, kind="load", result={"load": found})
    source = export_source_of(store, trial)
    best = {"max_batch_size": 8, "max_queue_delay_microseconds": 1000}
    assert source.trial.spec["dynamic_batching"] == best
    assert load_strict(export_yaml(source.trial))["dynamic_batching"] == best
    assert found["batching"] is not None
    found["batching"]["best"] = None  # to run each request alone is best
    assert "dynamic_batching" not in export_source_of(store, trial).trial.spec
    other = builders.trial("2234567890abcdef", PLAIN, kind="load", result={"load": sample_load_result()})
    assert "dynamic_batching" not in export_source_of(store, other).trial.spec


def test_configurations_that_differ_in_it_have_names_that_say_so() -> None:
    assert configurations.labels([PLAIN, BATCHED], 0) == ["ORT default", "batching 8, 2 ms"]
