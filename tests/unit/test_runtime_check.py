"""What a runtime lacks is said before anything runs, with what to do; what is unknown is not refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from core import wire
from core.process import runtimes
from core.process.job_worker import refuse_worker
from core.run.accuracy import key_of
from core.run.runtime_check import FILE_NAME, capabilities, check_runtime, known_settings, require_package
from core.spec import TrialSpec, spec_from_dict
from core.spec.settings.config_entries import KNOWN_CONFIG_ENTRIES
from core.wire.errors import ModelError, SpecError, WorkerError
from core.wire.runtime import OWN, OWN_IR_VERSION
from core.worker.machine.loading import why_not
from tests.other_runtimes import change

OLD: wire.Capabilities = {
    "version": "1.17.3",
    "searched": 2,
    "unknown": [
        "session.intra_op.spin_duration_us",
        "CastChainElimination",
        "execution_order MEMORY_EFFICIENT",
    ],
    "numpy": "1.26.4",
    "python": "3.10.13",
    "build": "",
    "ir_version": 9,
    "opsets": {"": 20, "ai.onnx.ml": 4},
    "interfaces": [],
    "modules": [],
    "defaults": {},
    "providers": [
        {
            "name": "TensorrtExecutionProvider",
            "loadable": False,
            "reason": "No driver.",
            "remedy": "Add one.",
        },
        {"name": "CPUExecutionProvider", "loadable": True, "reason": "", "remedy": ""},
    ],
}


class Answers:
    """Starts no worker: it answers with the same reply, and counts."""

    def __init__(self, reply: Mapping[str, Any] = OLD) -> None:
        self.reply = reply
        self.asked: list[str] = []

    def __call__(self, job: Any, payload: Any, **options: Any) -> Any:
        assert job == wire.CAPABILITIES
        self.asked.append(options.get("runtime", OWN))
        return dict(self.reply)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the runtime `old`: an interpreter without a single package."""
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    environment = tmp_path / "runtimes" / "old" / runtimes.ENVIRONMENT_NAME
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").touch()
    (environment / "lib" / "python3.10" / "site-packages").mkdir(parents=True)
    record = {
        **dict.fromkeys(("name", "sha256", "python_version"), "old"),
        "python": str(environment / "bin" / "python"),
        "packages": [],
        "versions": {},
        "size_bytes": 0,
        "managed": True,
        "created_at": 0.0,
    }
    (tmp_path / "runtimes" / "old" / runtimes.RECORD_NAME).write_text(json.dumps(record))
    return tmp_path


def spec(**parts: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}, "runtime": "old", **parts})


def info(*, ir_version: int = 8, dtype: str = "float32", **opset: int) -> wire.ModelInfo:
    told: Any = {
        "ir_version": ir_version,
        "opset": {"": 13} | {name.replace("_", "."): version for name, version in opset.items()},
        "inputs": [{"name": "x", "dtype": dtype, "shape": [1]}],
    }
    return cast(wire.ModelInfo, told)


def refusal(one: TrialSpec, of: wire.ModelInfo | None = None, reply: Mapping[str, Any] = OLD) -> SpecError:
    with pytest.raises(SpecError) as caught:
        check_runtime(one, info() if of is None else of, Answers(reply))
    assert "`old`" in caught.value.message
    assert caught.value.hint
    return caught.value


def test_what_the_runtime_has_is_not_refused() -> None:
    entries = {"session.disable_prepacking": "1"}
    one = spec(session={"intra_op_num_threads": 2, "session_config_entries": entries})
    check_runtime(one, info(ir_version=9, ai_onnx_ml=4), Answers())


def test_a_model_that_is_too_new_is_refused_with_both_versions() -> None:
    error = refusal(spec(), info(ir_version=10, ai_onnx_ml=5))
    assert "(ONNX Runtime 1.17.3)" in error.message
    assert "IR version 10, and it reads at most 9" in error.message
    assert "opset 5 of ai.onnx.ml, and it supports at most 4" in error.message
    assert "`ir_version` 9" in error.hint
    error = refusal(spec(), {**info(), "opset": {"": 21}})
    assert "opset 21 of ai.onnx, and it supports at most 20" in error.message


def test_versions_that_are_unknown_are_not_refused() -> None:
    unknown = {**OLD, "ir_version": 0, "opsets": {}}
    check_runtime(spec(), info(ir_version=99, ai_onnx_ml=99, com_example=7), Answers(unknown))


@pytest.mark.parametrize(
    ("session", "named"),
    [
        ({"session_config_entries": {"session.intra_op.spin_duration_us": "100"}}, "spin_duration_us"),
        ({"disabled_optimizers": ["CastChainElimination"]}, "CastChainElimination"),
        ({"execution_order": "MEMORY_EFFICIENT"}, "execution_order MEMORY_EFFICIENT"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(session: dict[str, Any], named: str) -> None:
    assert named in refusal(spec(session=session)).message


def test_several_unknown_settings_are_said_at_once() -> None:
    entries = {"session.intra_op.spin_duration_us": "100"}
    error = refusal(
        spec(session={"session_config_entries": entries, "disabled_optimizers": ["CastChainElimination"]})
    )
    assert "it does not know `session.intra_op.spin_duration_us` and `CastChainElimination`" in error.message


def test_an_entry_that_ortune_does_not_know_itself_is_run_and_reported() -> None:
    entries = {"my.own.key": "1"}
    check_runtime(spec(session={"session_config_entries": entries, "expert": True}), info(), Answers())


def test_a_provider_that_is_missing_or_does_not_load_is_refused() -> None:
    error = refusal(spec(session={"providers": [{"name": "CUDAExecutionProvider"}]}))
    assert "its build has no CUDAExecutionProvider" in error.message
    assert "Choose among CPUExecutionProvider, or" in error.hint
    error = refusal(spec(session={"providers": [{"name": "TensorrtExecutionProvider"}]}))
    assert "does not load in it: No driver" in error.message
    assert error.hint == "Add one."


def test_a_missing_provider_with_a_fallback_is_run() -> None:
    session = {"providers": [{"name": "CUDAExecutionProvider"}], "allow_fallback": True}
    check_runtime(spec(session=session), info(), Answers())


def test_images_and_bfloat16_need_what_an_old_runtime_lacks(home: Path) -> None:
    assert "no Pillow" in refusal(spec(workload={"feeds": "cats"})).message
    assert "bfloat16" in refusal(spec(), info(dtype="bfloat16")).message
    (home / "runtimes" / "old" / FILE_NAME).unlink()
    newer = {**OLD, "modules": ["PIL"], "interfaces": ["OrtValue.ortvalue_from_numpy_with_onnx_type"]}
    check_runtime(spec(workload={"feeds": "cats"}), info(dtype="bfloat16"), Answers(newer))
    check_runtime(spec(workload={"feeds": "cats.npz"}), info(), Answers())


def test_an_engine_that_runs_a_program_stays_in_ortunes_own_runtime() -> None:
    assert "torch-eager" in refusal(spec(engine="torch-eager")).message


def test_ortunes_own_runtime_is_not_asked_and_has_the_limits_of_its_version() -> None:
    asked = Answers()
    check_runtime(spec(runtime="own"), info(ir_version=OWN_IR_VERSION), asked)
    with pytest.raises(ModelError, match="IR version 99"):
        check_runtime(spec(runtime="own"), info(ir_version=99), asked)
    with pytest.raises(ModelError, match="opset 99"):
        check_runtime(spec(runtime="own"), {**info(), "opset": {"": 99}}, asked)
    require_package("own", "PIL", "pillow", asked, needs="this")
    assert asked.asked == []


def test_nothing_is_refused_while_no_worker_may_start() -> None:
    check_runtime(spec(), info(ir_version=99), refuse_worker)
    require_package("old", "PIL", "pillow", refuse_worker, needs="this")


def test_an_optional_package_is_named() -> None:
    with pytest.raises(SpecError, match="no package `pillow`, which reading images needs"):
        require_package("old", "PIL", "pillow", Answers(), needs="reading images")


# --- capabilities -------------------------------------------------------------------------------------------


def test_a_process_reads_its_own_runtime_once_for_each_content(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Answers()
    for content, times in (("a", 1), ("a", 1), ("b", 2)):
        monkeypatch.setattr(runtimes, "content_hash", lambda python, content=content: content)
        assert capabilities(OWN, asked) == OLD
        assert asked.asked == [OWN] * times


def test_capabilities_are_found_once_for_each_content(home: Path) -> None:
    asked = Answers()
    assert capabilities("old", asked) == capabilities("old", asked) == OLD
    assert asked.asked == [runtimes.pinned("old")]
    change(home, "old")
    capabilities("old", asked)
    assert asked.asked[1] == runtimes.pinned("old") != asked.asked[0]


@pytest.mark.parametrize("text", ["", "{", '{"key": 1}', "[]"])
def test_a_damaged_file_of_capabilities_is_replaced(home: Path, text: str) -> None:
    kept = home / "runtimes" / "old" / FILE_NAME
    kept.write_text(text)
    assert capabilities("old", Answers()) == OLD
    assert capabilities("old", cast(Any, refuse_worker)) == OLD


def test_capabilities_of_a_runtime_that_fails_are_not_kept(home: Path) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise WorkerError("It crashed.")

    with pytest.raises(WorkerError):
        capabilities("old", fails)
    assert not (home / "runtimes" / "old" / FILE_NAME).exists()
    check_runtime(spec(), info(ir_version=99), fails)  # the run shows it


def test_every_known_setting_is_looked_for() -> None:
    asked = known_settings()
    assert set(KNOWN_CONFIG_ENTRIES) <= set(asked["keys"])
    assert {"intra_op_num_threads", "use_per_session_threads"} <= set(asked["attributes"])
    assert "ORT_ENABLE_LAYOUT" in asked["enums"]["graph_optimization_level"]


@pytest.mark.parametrize(
    ("text", "onnxruntime", "numpy", "said"),
    [
        ("", "1.17.3", "2.2.6", "built for numpy 1, and numpy 2.2.6"),
        ("libx.so: no such file", "1.20.1", "2.2.6", "1.20.1 cannot be imported in the runtime: libx.so"),
        ("", "", "", "ONNX Runtime cannot be imported"),
    ],
)
def test_a_failed_import_is_explained(text: str, onnxruntime: str, numpy: str, said: str) -> None:
    message, hint = why_not(text, onnxruntime, numpy)
    assert said in message
    assert hint


def test_accuracies_of_two_runtimes_are_not_the_same(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    data.touch()
    one = spec(dataset={"path": str(data)})
    own = one.model_copy(update={"runtime": "own"})
    pinned = one.model_copy(update={"runtime": runtimes.pinned("old")})
    assert key_of(own, "m") != key_of(one, "m") == key_of(pinned, "m")
