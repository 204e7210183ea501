"""Messages of a worker are not trusted: whatever comes, it is a valid value or an error in words."""

from __future__ import annotations

import json
import math
import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import wire
from core.process.reply_checks import _PATHS, MOST_NUMBER, check_times, checked_reply, is_below
from core.wire.channel import BrokenChannel, RequestChannel, line
from core.wire.errors import TunerError, WorkerError, error_from_record
from core.wire.plain_data import plain
from core.wire.profile import profile_from_dict

REQUESTS = sorted(one for one in vars(wire).values() if isinstance(one, wire.Request))
EXTREME = [10**400, "\x1b[2J", "\ud800", "<script>", -1]
ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([10**400, "\x1b[2J"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def anything_like(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a reply's type, now and then with something else in their place."""
    return ANY_VALUE | _like(kind) if kind is not Any else ANY_VALUE


def _like(kind: Any) -> st.SearchStrategy[Any]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        hints = {name: _like(one) for name, one in typing.get_type_hints(kind).items()}
        required = {name: one for name, one in hints.items() if name in kind.__required_keys__}
        optional = {name: one for name, one in hints.items() if name not in kind.__required_keys__}
        return st.fixed_dictionaries(required, optional=optional)
    if origin is list:
        return st.lists(_like(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), _like(inner[1]), max_size=3)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if inner:  # a union
        return st.one_of(*map(_like, inner))
    plain_kinds: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(),
        str: st.text(max_size=8),
        type(None): st.none(),
    }
    return plain_kinds.get(kind, ANY_VALUE)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_whatever_comes_is_a_valid_value_or_an_error_in_words(request_: wire.Request[Any], data: Any) -> None:
    channel_state = RequestChannel()
    channel_state.request(request_, {})
    said = data.draw(st.sampled_from(["ok", "error", "live", "nonsense"]) | st.just("ok"))
    value = data.draw(anything_like(request_.reply))
    channel_state.receive_bytes(line({"id": 1, said: value}))
    found, problem = None, ""
    try:
        if (reply := channel_state.reply()) is not None:
            found = checked_reply(reply, request_, "The worker", {"path": "/m.onnx"})
            check_times(found, request_, 1.0, "The worker")
    except BrokenChannel:
        problem = "noise"
    except TunerError as error:
        found, problem = None, error.message
    assert "\x1b" not in problem
    assert found is not None or problem or said == "live"
    if found is not None:
        text = json.dumps(found, allow_nan=False).encode()
        assert msgspec.json.decode(text, type=request_.reply) is not None
        assert plain(found) == found


@given(value=ANY_VALUE)
def test_a_profile_that_is_none_is_refused_in_words(value: Any) -> None:
    with pytest.raises(WorkerError):
        profile_from_dict(value)


WARM = {"latencies_ns": [5, 6], "steady": True, "median_ns": 5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"latencies_ns": [5, -1, 6]}, "must not be negative"),
        ({"median_ns": -1}, "must not be negative"),
        ({"latencies_ns": [5, 1 << 63]}, "must be at most 9,223,372,036,854,775,807"),
        ({"median_ns": 10**400}, "longer than 60 digits"),
        ({"more": math.nan}, "must be a number"),
        ({"more": [1.0, math.inf]}, "must be a number"),
        ({"more": [math.nan, 1.0]}, "must be a number"),
        ({"more": "\ud800"}, "no valid text"),
        ({"more": {"\ud800": 1}}, "no valid text"),
        ({"more": json.loads("[" * 50 + "]" * 50)}, "more than 32 levels"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_place(change: dict[str, Any], words: str) -> None:
    assert checked_reply(WARM, wire.WARM, "The worker") == WARM
    with pytest.raises(WorkerError, match=words) as caught:
        checked_reply(WARM | change, wire.WARM, "The worker")
    assert "hostile" in caught.value.hint
    assert caught.value.message.isprintable()


def test_the_largest_values_that_can_be_are_accepted() -> None:
    most = WARM | {"median_ns": MOST_NUMBER, "latencies_ns": [0, MOST_NUMBER], "more": -1.5}
    assert checked_reply(most, wire.WARM, "The worker") == most


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        ({"latencies_ns": [600_000_000, 900_000_000]}, "latencies_ns"),
        ({"latencies_ns": [900_000_000] * 4, "stream_runs": [1, 3]}, "latencies_ns"),
        ({"session_creation_s": 1.6}, "session_creation_s"),
        ({"first_run_ns": 1_600_000_000}, "first_run_ns"),
        ({"refill_ns": 1_600_000_000}, "refill_ns"),
        ({"window_s": 1e300}, "window_s"),
        ({"counters": {"wall_s": 1.6}}, "counters.wall_s"),
        ({"median_ns": MOST_NUMBER}, "median_ns"),
        ({"unprofiled_latencies_ns": [900_000_000] * 2}, "unprofiled_latencies_ns"),
        ({"plain_ns": [900_000_000] * 2}, "plain_ns"),
        ({"seconds": 1.6}, "seconds"),
    ],
)
def test_times_longer_than_the_wait_for_them_are_refused(reply: dict[str, Any], name: str) -> None:
    asked = (wire.BLOCK, wire.LOAD, wire.WARM, wire.PROFILE, wire.PROFILED_PASS, wire.LOADGEN)
    request = next(one for one in asked if name.partition(".")[0] in one.reply.__annotations__)
    check_times(reply, request, 10.0**301, "The worker")
    with pytest.raises(WorkerError, match=rf"`{name}` is .* but the reply came after 1\.000 s"):
        check_times(reply, request, 1.0, "The worker")


def test_a_warm_up_without_runs_expects_the_first_run_which_was_part_of_the_load() -> None:
    reply = {"latencies_ns": [], "steady": False, "median_ns": 1_600_000_000}
    check_times(reply, wire.WARM, 0.1, "The worker", loaded_s=1.5)
    with pytest.raises(WorkerError, match=r"`median_ns` is 1\.600 s, but the reply came after 1\.000 s"):
        check_times(reply, wire.WARM, 0.1, "The worker", loaded_s=1.0)


def test_fields_that_a_reply_has_not_are_not_read() -> None:
    check_times({"latencies_ns": ["x"], "counters": 3}, wire.SAVE_OUTPUTS, 1.0, "The worker")


def test_streams_run_at_the_same_time() -> None:
    check_times({"latencies_ns": [900_000_000] * 3, "stream_runs": [1, 1, 1]}, wire.BLOCK, 1.0, "The worker")


@pytest.mark.parametrize("location", ["/etc/passwd", "../x", "a/../../x", "a\\..\\x", "", "x\0y"])
def test_weights_outside_the_models_folder_are_refused(location: str) -> None:
    assert not is_below(location)
    assert is_below("weights/a..b.bin")


WITH_PATHS = [one for one in REQUESTS if one.reply in _PATHS and one.reply is not wire.InstallReply]


def least(kind: Any) -> Any:
    """The smallest value of a reply's type."""
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        return {name: least(hints[name]) for name in kind.__required_keys__}
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return inner[0]
    if type(None) in inner:
        return None
    return (origin or (inner and inner[0]) or (dict if kind is Any else kind))()


def named(path: str) -> dict[str, Any]:
    return {"path": path, "notes": []}


class TestPaths:
    def test_a_path_of_the_plan_or_in_its_folder_is_accepted(self, tmp_path: Path) -> None:
        (tmp_path / "copy.onnx").touch()
        plan = {"model_path": "/models/m.onnx", "folder": str(tmp_path)}
        for path in ("/models/m.onnx", str(tmp_path / "copy.onnx")):
            assert checked_reply(named(path), wire.NAMED_MODEL, "The worker", plan) == named(path)

    def test_another_path_and_a_link_out_of_the_folder_are_refused(self, tmp_path: Path) -> None:
        folder, secret = tmp_path / "scratch", tmp_path / "secret"
        folder.mkdir()
        secret.write_text("s")
        (folder / "link").symlink_to(secret)
        (folder / "up").symlink_to(tmp_path)
        plan = {"model_path": str(tmp_path / "m.onnx"), "folder": str(folder)}
        for path in (
            secret,
            folder / "link",
            folder / "up" / "secret",
            f"{folder}/../secret",
            folder / "none",
        ):
            with pytest.raises(WorkerError, match="which the job was not given"):
                checked_reply(named(str(path)), wire.NAMED_MODEL, "The worker", plan)
        with pytest.raises(WorkerError, match="which the job was not given"):
            checked_reply(named(f"{folder}/\0"), wire.NAMED_MODEL, "The worker", plan)

    @pytest.mark.parametrize("request_", WITH_PATHS, ids=str)
    def test_no_reply_names_a_file_that_its_plan_does_not_name(self, request_: wire.Request[Any]) -> None:
        reply, plan = least(request_.reply), {"path": "/models/own", "folder": "/new"}
        for name in _PATHS[request_.reply]:
            given = {**reply, name: "/models/own"}
            assert checked_reply(given, request_, "The worker", {"path": "/models/own"}) == given
            for path in ("/etc/passwd", "/models/own/../../etc/passwd", "own", "/models/own\0", "\x1b[2J"):
                with pytest.raises(WorkerError) as caught:
                    checked_reply({**reply, name: path}, request_, "The worker", plan)
                assert caught.value.message.isprintable()

    @pytest.mark.parametrize("location", ["/etc/passwd", "../x", "a/../../x", ""])
    def test_no_reply_names_weights_outside_the_folder(self, location: str) -> None:
        plan = {"path": "/m.onnx"}
        model = {**least(wire.ModelInfo), "path": "/m.onnx"}
        file = {"location": location, "size_bytes": 1, "sha256": ""}
        with pytest.raises(WorkerError, match="not beside the model"):
            checked_reply({**model, "external_data": [file]}, wire.INSPECT, "The worker", plan)
        made = {**least(wire.TransformReply), "path": "/m.onnx"}
        with pytest.raises(WorkerError, match="not beside the model"):
            checked_reply({**made, "files": [location]}, wire.TRANSFORM, "The worker", plan)

    def test_every_field_that_looks_like_a_path_is_checked(self) -> None:
        """A new reply with a path fails here until it is in the table."""
        looks = {
            (request.reply, name)
            for request in REQUESTS
            if typing.is_typeddict(request.reply)
            for name, hint in typing.get_type_hints(request.reply).items()
            if hint is str and re.search(r"path|folder|file|^output$|^python$|^profile$|^pt2$", name)
        }
        looks -= {(wire.AccuracyReply, "output"), (wire.Environment, "python"), (wire.Capabilities, "python")}
        assert looks <= {(reply, name) for reply, names in _PATHS.items() for name in names}
        assert len(looks) > 5  # most replies name one

    def test_an_interpreter_lies_in_the_new_environment(self) -> None:
        reply = {
            **dict.fromkeys(("installer", "lock", "python_version"), ""),
            **{"versions": {}, "size_bytes": 0, "notes": [], "python": "/tmp/evil"},
        }
        with pytest.raises(WorkerError, match="`python` is `/tmp/evil`"):
            checked_reply(reply, wire.INSTALL, "The worker", {"folder": "/environments/one"})


def test_an_error_of_a_worker_steers_no_terminal() -> None:
    error = error_from_record(
        {"type": "ModelError", "message": "a\x1b[31mb\u202ec\ud800\n", "hint": "\x07" * 9999}
    )
    assert error.message == "a\\x1b[31mb\\u202ec\\ud800\n"
    assert len(error.hint) < 5000
    assert "\x07" not in error.hint
