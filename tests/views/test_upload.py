"""The route that takes uploads: what it stores, and all that it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from starlette.requests import Request

from core.store import audit
from core.wire.errors import SpecError
from dashboard.server import people, upload
from dashboard.server.login_sessions import PERSON
from dashboard.server.people import Person
from dashboard.server.people_file import Quotas
from tests.reading import numbers, tells
from tests.waiting import wait_until

BATCH = "0" * 32
HOST = "127.0.0.1:8501"
T = TypeVar("T")


async def sent(
    body: list[bytes | float],
    *,
    name: str = "model.onnx",
    batch: str = BATCH,
    breaks_off: bool = False,
    person: Person | None = None,
    **headers: str | None,
) -> tuple[int, dict[str, Any]]:
    """Send one PUT as the browser does; a header given as None is left out, a number is a pause."""
    given = [one for one in body if isinstance(one, bytes)]
    sent: dict[str, str | None] = {
        "host": HOST,
        "origin": f"http://{HOST}",
        upload.TOKEN_HEADER.lower(): upload.TOKEN,
        "content-length": str(sum(map(len, given))),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        for one in body:
            if isinstance(one, float):
                await asyncio.sleep(one)
                continue
            yield {"type": "http.request", "body": one, "more_body": True}
        if breaks_off:
            yield {"type": "http.disconnect"}
        yield {"type": "http.request", "body": b"", "more_body": False}

    source = chunks()

    async def receive() -> dict[str, Any]:
        return await anext(source)

    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/",
        "headers": [(k.encode(), v.encode()) for k, v in sent.items() if v is not None],
        "path_params": {"batch": batch, "name": name},
        **({} if person is None else {PERSON: person}),
    }
    response = await upload.put(Request(scope, receive))
    return response.status_code, json.loads(bytes(response.body))


class _SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop that jumps to its next timer instead of waiting: no busy machine delays one."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout_s: float | None = None) -> Any:
            self._now_s += timeout_s or 0.0
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self._now_s


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_SimulatedTime) as runner:
        return runner.run(work)


def put(body: list[bytes | float], **how: Any) -> tuple[int, dict[str, Any]]:
    return run(sent(body, **how))


def left_over() -> list[Path]:
    return [path for path in upload.folder().rglob("*") if path.is_file()]


def test_a_file_arrives_whole_under_its_own_name() -> None:
    assert put([b"abc", b"", b"def"]) == (200, {"name": "model.onnx", "size_bytes": 6})
    [path] = upload.claim_files(BATCH, ["model.onnx"])
    assert path.read_bytes() == b"abcdef"
    assert left_over() == [path]


def test_who_uploaded_what_is_recorded_and_refusals_are_not() -> None:
    assert put([b"abc"], name="recorded.onnx")[0] == 200
    assert put([b"abc"], name="refused.onnx", origin="http://evil.example")[0] == 403
    found = [one for one in audit.entries(action="upload") if one.what.endswith(("ed.onnx`",))]
    assert [(one.who, one.what, one.more["bytes"]) for one in found] == [("local", "file `recorded.onnx`", 3)]


def test_names_keep_spaces_and_letters_of_any_language() -> None:
    assert put([b"x"], name="mod%C3%A8le%20final.data")[0] == 200
    assert upload.claim_files(BATCH, ["modèle final.data"])[0].is_file()


@pytest.mark.parametrize(
    "name",
    [
        "../evil.onnx",
        "a/b.onnx",
        "..%2Fevil",
        ".hidden",
        "",
        "a\\b",
        "a%00b",
        "con:aux",
        "x" * 201,
        "a\nb",
        "..",
    ],
)
def test_a_name_that_could_leave_the_folder_or_hide_is_refused(name: str) -> None:
    status, answer = put([b"x"], name=name)
    assert status == 400
    assert answer["error"]
    assert left_over() == []


@pytest.mark.parametrize("token", [None, "", "wrong", "ä"])
def test_without_the_token_of_this_process_nothing_is_stored(token: str | None) -> None:
    status, answer = put([b"x"], **{upload.TOKEN_HEADER.lower(): token})
    assert status == 403
    assert answer["error"]
    assert left_over() == []


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", f"http://evil.example/{HOST}", "http://127.0.0.1:9"]
)
def test_another_origin_is_refused(origin: str | None) -> None:
    assert put([b"x"], origin=origin)[0] == 403
    assert left_over() == []


@pytest.mark.parametrize("batch", ["", "..", "x" * 32, "0" * 31, "0" * 33])
def test_a_batch_that_is_not_ours_is_refused(batch: str) -> None:
    assert put([b"x"], batch=batch)[0] == 400


def test_a_file_over_the_limit_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(upload.LIMIT_VARIABLE, "10")
    assert put([b"x" * 11])[0] == 413
    assert left_over() == []


def test_a_file_that_is_larger_than_it_said_is_stopped_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(upload.LIMIT_VARIABLE, "10")
    assert put([b"x" * 8, b"x" * 8], content_length="5")[0] == 413
    assert left_over() == []


def test_what_comes_beyond_the_declared_length_is_not_taken() -> None:
    status, answer = put([b"x" * 5, b"x"], content_length="5")
    assert (status, numbers(answer["error"])) == (413, [5])
    assert left_over() == []


def test_less_than_the_declared_length_is_no_file() -> None:
    assert put([b"x" * 4], content_length="5")[0] == 400
    assert left_over() == []


@pytest.mark.parametrize("length", [None, "", "-1", "1e3", "٣", "0x5"])
def test_an_upload_without_a_length_is_refused(length: str | None) -> None:
    assert put([b"x"], content_length=length)[0] == 411


def test_an_upload_in_chunks_is_refused_also_with_a_length() -> None:
    assert put([b"x"], transfer_encoding="chunked")[0] == 411
    assert put([b"x"], transfer_encoding="chunked", content_length=None)[0] == 411
    assert left_over() == []


def test_a_length_of_many_digits_is_refused() -> None:
    assert put([b"x"], content_length="9" * 5000)[0] == 413


def test_a_silent_sender_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "IDLE_S", 0.2)
    assert put([b"x", 0.1, b"x", 0.1, b"x"])[0] == 200  # slow, but not silent
    status, answer = put([b"x", 5.0, b"x"], batch="1" * 32)
    assert (status, numbers(answer["error"])) == (408, [0.2])
    assert len(left_over()) == 1


def test_four_at_once_cannot_take_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them alone would have room; the space of those that are coming is theirs already."""
    usage = shutil.disk_usage("/")

    def free(_: object) -> Any:
        return usage._replace(free=upload.KEEP_FREE_BYTES + 1000 - sum(f.stat().st_size for f in left_over()))

    monkeypatch.setattr(shutil, "disk_usage", free)

    async def four() -> list[tuple[int, dict[str, Any]]]:
        bodies: list[bytes | float] = [b"x" * 300, 0.2, b"x" * 100]
        return await asyncio.gather(*(sent(bodies, batch=str(number) * 32) for number in range(4)))

    answers = run(four())
    assert sorted(status for status, _ in answers) == [200, 200, 507, 507]
    assert sum(file.stat().st_size for file in left_over()) == 800
    assert put([b"x" * 201], batch="a" * 32)[0] == 507
    assert put([b"x" * 200], batch="b" * 32)[0] == 200  # what was promised and not used is free again


def test_space_that_others_take_meanwhile_ends_the_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    free = iter([upload.KEEP_FREE_BYTES + 1000, upload.KEEP_FREE_BYTES + 10])
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=next(free, upload.KEEP_FREE_BYTES - 1))
    )
    assert put([b"x" * 10, b"x" * 10, b"x" * 10])[0] == 507
    assert left_over() == []


def test_what_waits_to_be_taken_over_has_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(upload.QUOTA_VARIABLE, "10")
    assert put([b"x" * 6])[0] == 200
    status, answer = put([b"x" * 5], batch="1" * 32)
    assert status == 507
    assert answer["error"]
    assert put([b"x" * 4], batch="1" * 32)[0] == 200
    upload.discard(upload.claim_files(BATCH, ["model.onnx"]))
    assert put([b"x" * 5], batch="2" * 32)[0] == 200


def test_so_have_empty_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MOST_FILES", 3)
    statuses = [put([b""], name=f"{number}.onnx")[0] for number in range(5)]
    assert statuses == [200, 200, 200, 507, 507]


def test_an_upload_that_breaks_off_leaves_nothing() -> None:
    assert put([b"x"], breaks_off=True)[0] == 400
    assert left_over() == []


def test_a_full_disk_is_said_before_and_while_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=upload.KEEP_FREE_BYTES))
    assert put([b"x"])[0] == 507
    monkeypatch.undo()

    async def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(upload, "_stream", full)
    status, answer = put([b"x"])
    assert (status, bool(answer["error"])) == (507, True)


def test_only_complete_batches_are_taken() -> None:
    put([b"x"], name="a.onnx")
    with pytest.raises(SpecError, match=r"b\.bin"):
        upload.claim_files(BATCH, ["a.onnx", "b.bin"])
    with pytest.raises(SpecError, match="batch"):
        upload.claim_files("../..", ["a.onnx"])
    with pytest.raises(SpecError, match="passwd"):
        upload.claim_files(BATCH, ["../../etc/passwd"])
    with pytest.raises(SpecError, match="incomplete"):
        upload.claim_files(BATCH, [])


def test_kept_files_lie_in_a_folder_of_their_content(tmp_path: Path) -> None:
    put([b"one"], name="a.npz")
    first = upload.keep(upload.claim_files(BATCH, ["a.npz"]), tmp_path)
    put([b"one"], name="a.npz", batch="1" * 32)
    again = upload.keep(upload.claim_files("1" * 32, ["a.npz"]), tmp_path)
    put([b"two"], name="a.npz", batch="2" * 32)
    other = upload.keep(upload.claim_files("2" * 32, ["a.npz"]), tmp_path)
    assert first == again != other
    assert left_over() == []


def test_batches_that_nobody_took_are_removed_after_a_day() -> None:
    put([b"x"])
    upload.remove_stale()
    assert len(left_over()) == 1
    upload.remove_stale(now=(upload.folder() / BATCH).stat().st_mtime + upload.STALE_S + 1)
    assert left_over() == []


def test_a_clock_that_is_set_forward_makes_no_batch_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    put([b"x"])
    ahead = SimpleNamespace(time=lambda: time.time() + 10 * upload.STALE_S, monotonic=time.monotonic)
    monkeypatch.setattr(upload, "time", ahead)
    upload.remove_stale()
    assert len(left_over()) == 1


def test_a_batch_that_still_comes_is_not_stale() -> None:
    async def slow() -> list[Path]:
        sending = asyncio.create_task(sent([b"x", 0.3, b"y"]))
        await asyncio.sleep(0.1)
        upload.remove_stale(now=time.time() + 10 * upload.STALE_S)
        assert (await sending)[0] == 200
        return left_over()

    assert len(run(slow())) == 1


def test_stale_batches_are_removed_as_long_as_the_server_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "CLEAN_EVERY_S", 0.05)
    put([b"x"])
    upload.keep_clean()
    assert len(left_over()) == 1
    long_ago = time.time() - upload.STALE_S - 1
    for path in (*left_over(), upload.folder() / BATCH):
        os.utime(path, (long_ago, long_ago))
    wait_until(lambda: not (upload.folder() / BATCH).exists(), "it stays")
    assert left_over() == []


def test_the_uploads_of_one_person_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "quotas", lambda: Quotas(upload_bytes=10))
    anna, ben = (Person(f"{name}@example.org", name, "engineer") for name in ("anna", "ben"))
    first, second, third, fourth = (f"{number:032x}" for number in range(1, 5))
    assert put([b"x" * 6], batch=first, person=anna)[0] == 200
    status, answer = put([b"x" * 5], batch=second, person=anna)
    assert status == 507
    assert tells(answer["error"], "5 B", "6 B", "10 B")
    assert upload.waiting_of() == {anna.id: 6}
    assert put([b"x" * 4], batch=second, person=anna)[0] == 200  # up to the limit
    assert put([b"x" * 9], batch=third, person=ben)[0] == 200
    assert put([b"x" * 50], batch=fourth, person=Person("root@example.org", "Root", "admin"))[0] == 200
    assert put([b"x" * 50], batch=fourth)[0] == 200  # without login
    upload.discard([upload.folder() / first / "model.onnx"])
    assert put([b"x" * 6], batch=f"{5:032x}", person=anna)[0] == 200


def test_nothing_is_kept_of_batches_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "quotas", lambda: Quotas(upload_bytes=10))
    monkeypatch.setattr(upload, "_persons", {})
    anna = Person("anna@example.org", "anna", "engineer")
    processed, taken, stale, refused, broken, kept = (f"{number:032x}" for number in range(6))
    for batch in (processed, taken, stale):
        assert put([b"x"], batch=batch, person=anna)[0] == 200
    upload.discard([upload.folder() / processed / "model.onnx"])
    assert put([b"x" * 11], batch=refused, person=anna)[0] == 507
    assert put([b"x"], batch=broken, person=anna, content_length="2")[0] == 400
    shutil.rmtree(upload.folder() / taken)
    assert set(upload._persons) == {taken, stale, broken}
    long_ago = time.time() - upload.STALE_S - 1
    for path in (upload.folder() / stale / "model.onnx", upload.folder() / stale):
        os.utime(path, (long_ago, long_ago))
    upload.remove_stale()
    assert put([b"x"] * 10, batch=kept, person=anna)[0] == 200
    assert upload._persons == {kept: anna.id}
    assert [path.name for path in upload.folder().iterdir()] == [kept]
