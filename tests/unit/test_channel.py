"""Messages of the pipe: replies belong to requests, invalid messages are found, every request is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.wire import EmptyReply, Request, channel
from core.wire.channel import BrokenChannel, LineSplitter, RequestChannel, line, obey
from core.wire.errors import (
    ModelError,
    ProviderError,
    SpecError,
    StoreError,
    TunerError,
    WorkerError,
    record_from_exception,
)

ERROR = {"type": "ModelError", "message": "It broke.", "hint": "Mend it."}


def sent(data: bytes) -> dict[str, Any]:
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    return json.loads(data)


class TestAsking:
    def test_every_request_has_a_number_of_its_own(self) -> None:
        channel_state = RequestChannel()
        assert [sent(channel_state.request("x", {"n": 1})) for _ in range(3)] == [
            {"id": number, "do": "x", "with": {"n": 1}} for number in (1, 2, 3)
        ]

    def test_nothing_heard_is_no_reply_yet(self) -> None:
        channel_state = RequestChannel()
        channel_state.request("x", {})
        assert channel_state.reply() is None

    @pytest.mark.parametrize("late", [1, 3])
    @pytest.mark.parametrize("what", [{"ok": {"pid": 17}}, {"error": ERROR}, {"live": {}}, {"nonsense": 1}])
    def test_what_is_said_of_a_request_that_was_given_up_is_passed_over(
        self, late: int, what: dict[str, Any]
    ) -> None:
        channel_state = RequestChannel()
        for _ in range(late + 1):
            channel_state.request("x", {})
        for number in range(1, late + 1):
            channel_state.receive_bytes(line({"id": number, **what}))
        assert channel_state.reply() is None
        channel_state.receive_bytes(line({"id": late + 1, "ok": {"status": 9}}))
        assert channel_state.reply() == {"status": 9}

    def test_what_has_no_number_is_for_the_last(self) -> None:
        """The word that the fork server is ready, and the refusal of what could not be read."""
        channel_state = RequestChannel()
        channel_state.receive_bytes(line({"ok": {"ready": True}}))
        assert channel_state.reply() == {"ready": True}
        channel_state.request("x", {})
        channel_state.receive_bytes(line({"id": None, "error": ERROR}))
        with pytest.raises(ModelError, match="It broke") as caught:
            channel_state.reply()
        assert caught.value.hint == "Mend it."

    @pytest.mark.parametrize(
        ("named", "stores", "raised"),
        [
            *((one.__name__, False, one) for one in (SpecError, ModelError, ProviderError, WorkerError)),
            ("StoreError", True, StoreError),
            *((one, False, WorkerError) for one in ("StoreError", "Cancelled", "BudgetError", "TunerError")),
            *((one, True, WorkerError) for one in ("Cancelled", "MissingError", "PrivateError", "KeyError")),
        ],
    )
    def test_a_worker_cannot_say_that_the_user_stopped_the_job(
        self, named: str, stores: bool, raised: type[TunerError]
    ) -> None:
        channel_state = RequestChannel()
        channel_state.request(Request("x", EmptyReply, stores=stores), {})
        channel_state.receive_bytes(line({"id": 1, "error": {**ERROR, "type": named}}))
        with pytest.raises(raised, match="It broke") as caught:
            channel_state.reply()
        assert type(caught.value) is raised

    def test_replies_come_in_pieces_and_together(self) -> None:
        channel_state = RequestChannel()
        channel_state.request("x", {})
        channel_state.request("x", {})
        for byte in b'{"id": 1, "ok": {}}\n{"id": 2, "ok": {"a"':
            channel_state.receive_bytes(bytes([byte]))
        assert channel_state.reply() is None
        assert channel_state.unfinished_line == b'{"id": 2, "ok": {"a"'
        channel_state.receive_bytes(b': 1}}\n{"id": 3, "ok": {}}\n')
        assert channel_state.reply() == {"a": 1}
        channel_state.request("x", {})
        assert channel_state.reply() == {}

    def test_progress_is_told_in_order_before_the_reply(self) -> None:
        channel_state, told = RequestChannel(), []
        channel_state.request("x", {})
        for done in (1, 2):
            channel_state.receive_bytes(
                line({"id": 1, "live": {"stage": "runs", "done": done, "total": 2, "text": f"{done} of 2"}})
            )
        channel_state.receive_bytes(line({"id": 1, "ok": {}}))
        assert channel_state.reply(lambda *facts: told.append(facts)) == {}
        assert told == [("runs", 1, 2, "1 of 2"), ("runs", 2, 2, "2 of 2")]

    @pytest.mark.parametrize(
        "noise",
        [
            *(b"Segmentation fault", b"[1]", b"17", b"\xff", b"null", b"", b"[" * 100_000),
            *(b"{}", b'{"ok": 1}', b'{"id": 1, "live": {"stage": 3}}', b'{"error": {"type": "WorkerError"}}'),
        ],
    )
    def test_noise_is_told_as_such_and_the_reply_behind_it_still_comes(self, noise: bytes) -> None:
        channel_state = RequestChannel()
        channel_state.request("x", {})
        channel_state.receive_bytes(noise + b"\n" + line({"id": 1, "ok": {}}))
        with pytest.raises(BrokenChannel) as caught:
            channel_state.reply()
        assert caught.value.noise == noise
        assert channel_state.reply() == {}

    def test_the_other_sides_end_is_told_behind_what_it_said(self) -> None:
        channel_state = RequestChannel()
        channel_state.request("x", {})
        channel_state.request("y", {})
        channel_state.receive_bytes(
            line({"id": 1, "ok": {}}) + line({"id": 2, "ok": {"n": 2}}) + b"half a li"
        )
        channel_state.receive_bytes(b"")
        assert channel_state.reply() == {"n": 2}
        with pytest.raises(BrokenChannel) as caught:
            channel_state.reply()
        assert caught.value.noise is None

    def test_a_flood_without_an_end_is_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(channel, "MAX_LINE_BYTES", 1000)
        pieces = LineSplitter()
        pieces.complete_lines(b"x" * 1000 + b"\n" + b"y" * 1000)
        with pytest.raises(BrokenChannel) as caught:
            pieces.complete_lines(b"z")
        assert caught.value.noise == b"y" * 400

    def test_a_flood_of_short_lines_is_cut_at_what_the_request_allows(self) -> None:
        channel_state = RequestChannel()
        progress = line({"id": 1, "live": {"stage": "s", "done": 1, "total": 2, "text": ""}})
        channel_state.request(Request("x", EmptyReply, 100 * len(progress)), {})
        channel_state.receive_bytes(progress * 100)
        with pytest.raises(BrokenChannel):
            channel_state.receive_bytes(b"\n")
        channel_state.request(Request("x", EmptyReply, 100), {})
        channel_state.receive_bytes(b"\n")  # each request has its own

    def test_progress_is_short_plain_and_counted_in_numbers_that_every_reader_has(self) -> None:
        channel_state, told = RequestChannel(), []
        channel_state.request("x", {})
        live = {
            "stage": "\x1b[31m" + "s" * 500,
            "done": -(10**30),
            "total": 10**30,
            "text": "\u202e\0" + "t" * 9999,
        }
        channel_state.receive_bytes(line({"id": 1, "live": live}))
        assert channel_state.reply(lambda *facts: told.append(facts)) is None
        ((stage, done, total, text),) = told
        assert stage.startswith("\\x1b[31ms")
        assert text.startswith("\\u202e\\x00t")
        assert (done, total) == (0, 1 << 53)
        assert len(stage) < 200
        assert len(text) < 500

    def test_a_message_that_would_fill_the_memory_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(channel, "MOST_CONTAINERS", 1000)
        channel_state = RequestChannel()
        channel_state.request("x", {})
        channel_state.receive_bytes(b'{"id":1,"ok":{"a":[' + b"[]," * 1000 + b"[]]}}\n")
        with pytest.raises(BrokenChannel):
            channel_state.reply()


def test_lines_are_the_same_however_they_are_cut() -> None:
    data = b"one\n\ntwo\r\nthree"
    for size in range(1, len(data) + 1):
        lines = LineSplitter()
        found = [one for i in range(0, len(data), size) for one in lines.complete_lines(data[i : i + size])]
        assert (found, bytes(lines.rest)) == ([b"one", b"", b"two\r"], b"three")


class TestObey:
    def replies(self, request: bytes, **commands: Any) -> list[dict[str, Any]]:
        said: list[bytes] = []
        obey(request, commands, said.append, who="fork server")
        return [sent(one) for one in said]

    def test_a_command_has_its_arguments_and_its_reply_the_number(self) -> None:
        double = lambda arguments, _: {"n": 2 * arguments["n"]}  # noqa: E731
        assert self.replies(b'{"id": 7, "do": "double", "with": {"n": 4}}', double=double) == [
            {"id": 7, "ok": {"n": 8}}
        ]

    @pytest.mark.parametrize("request_line", [b'{"do": "x"}', b'{"do": "x", "with": null}'])
    def test_without_arguments_it_gets_none(self, request_line: bytes) -> None:
        assert self.replies(request_line, x=lambda arguments, _: {"got": arguments}) == [
            {"id": None, "ok": {"got": {}}}
        ]

    def test_progress_has_the_number_too(self) -> None:
        def slow(arguments: Any, progress: Any) -> dict[str, Any]:
            progress("half", 1, 2)
            progress("done", 2, 2, "all of it")
            return {}

        assert self.replies(b'{"id": 3, "do": "slow"}', slow=slow) == [
            {"id": 3, "live": {"stage": "half", "done": 1, "total": 2, "text": ""}},
            {"id": 3, "live": {"stage": "done", "done": 2, "total": 2, "text": "all of it"}},
            {"id": 3, "ok": {}},
        ]

    @pytest.mark.parametrize(
        ("request_line", "number"),
        [
            (b"nonsense", None),
            (b"[]", None),
            (b"{}", None),
            (b"\xff", None),
            (b"[" * 100_000, None),
            (b'{"id": 4, "do": "sing"}', 4),
            (b'{"id": 5, "do": ["x"]}', 5),
        ],
    )
    def test_what_it_does_not_know_is_refused_in_one_reply(
        self, request_line: bytes, number: int | None
    ) -> None:
        (reply,) = self.replies(request_line, x=lambda *_: {})
        assert list(reply) == ["id", "error"]
        assert reply["id"] == number
        assert reply["error"]["type"] == "WorkerError"
        assert "The fork server was sent no request that it knows" in reply["error"]["message"]

    @pytest.mark.parametrize(
        ("error", "record", "traced"),
        [
            (ModelError("It broke.", hint="Mend it."), ERROR, False),
            (MemoryError("Unable to allocate 1 TiB"), "out of memory: Unable to allocate 1 TiB.", False),
            (KeyError("surprise"), "failed unexpectedly: KeyError: 'surprise'", True),
        ],
    )
    def test_an_error_is_a_reply_and_a_surprise_leaves_its_trace(
        self, error: Exception, record: Any, traced: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(*_: Any) -> Any:
            raise error

        (reply,) = self.replies(b'{"id": 9, "do": "fail"}', fail=fail)
        assert reply["id"] == 9
        if isinstance(record, dict):
            assert reply["error"] == record
        else:
            assert record in reply["error"]["message"]
        assert ("Traceback" in capsys.readouterr().err) == traced

    def test_what_cannot_be_sent_is_an_error_too(self) -> None:
        (reply,) = self.replies(b'{"id": 1, "do": "x"}', x=lambda *_: {"no": object()})
        assert "not JSON serializable" in reply["error"]["message"]

    def test_nobody_left_to_hear_is_told_to_the_caller(self) -> None:
        def gone(data: bytes) -> None:
            raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            obey(b'{"do": "x"}', {"x": lambda *_: {}}, gone, who="worker")


def test_both_ends_understand_each_other() -> None:
    channel_state = RequestChannel()

    def work(arguments: Any, progress: Any) -> Any:
        progress("half", 1, 2)
        if arguments["n"] < 0:
            raise ModelError("No.", hint="Yes.")
        return arguments

    told: list[Any] = []
    for n, message in ((4, ""), (-1, "No.")):
        obey(
            channel_state.request("work", {"n": n}), {"work": work}, channel_state.receive_bytes, who="worker"
        )
        if message:
            with pytest.raises(ModelError, match=message):
                channel_state.reply(lambda *facts: told.append(facts))
        else:
            assert channel_state.reply(lambda *facts: told.append(facts)) == {"n": n}
    assert told == [("half", 1, 2, "")] * 2


def test_a_package_that_is_not_installed_names_the_extra_that_brings_it() -> None:
    record = record_from_exception(ModuleNotFoundError("No module named 'torch'", name="torch.onnx"))
    assert record["type"] == "SpecError"
    assert "torch.onnx" in record["message"]
    assert "[pytorch]" in record["hint"]
    ours = record_from_exception(ModuleNotFoundError("No module named 'core.nothing'", name="core.nothing"))
    assert ours["type"] == "WorkerError"
