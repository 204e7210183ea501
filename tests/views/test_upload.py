"""The route that takes uploads: what it stores, and all that it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from core.errors import SpecError
from dashboard import upload

BATCH = "0" * 32
HOST = "127.0.0.1:8501"


def put(
    body: list[bytes],
    *,
    name: str = "model.onnx",
    batch: str = BATCH,
    breaks_off: bool = False,
    **headers: str | None,
) -> tuple[int, dict[str, Any]]:
    """Send one PUT as the browser does; a header given as None is left out."""
    sent: dict[str, str | None] = {
        "host": HOST,
        "origin": f"http://{HOST}",
        upload.TOKEN_HEADER.lower(): upload.TOKEN,
        "content-length": str(sum(map(len, body))),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        for one in body:
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
    }
    response = asyncio.run(upload.put(Request(scope, receive)))
    return response.status_code, json.loads(bytes(response.body))


def left_over() -> list[Path]:
    return [path for path in upload.folder().rglob("*") if path.is_file()]


def test_a_file_arrives_whole_under_its_own_name() -> None:
    assert put([b"abc", b"", b"def"]) == (200, {"name": "model.onnx", "size_bytes": 6})
    [path] = upload.take(BATCH, ["model.onnx"])
    assert path.read_bytes() == b"abcdef"
    assert left_over() == [path]


def test_names_keep_spaces_and_letters_of_any_language() -> None:
    assert put([b"x"], name="mod%C3%A8le final.onnx.data")[0] == 200
    assert upload.take(BATCH, ["modèle final.onnx.data"])[0].is_file()


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
    assert "cannot be the name" in answer["error"]
    assert left_over() == []


@pytest.mark.parametrize("token", [None, "", "wrong", "ä"])
def test_without_the_token_of_this_process_nothing_is_stored(token: str | None) -> None:
    status, answer = put([b"x"], **{upload.TOKEN_HEADER.lower(): token})
    assert status == 403
    assert "Reload the page" in answer["error"]
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


def test_an_upload_without_a_length_is_refused() -> None:
    assert put([b"x"], content_length=None)[0] == 411


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
    assert (status, answer["error"]) == (507, "The server's disk is full.")


def test_only_complete_batches_are_taken() -> None:
    put([b"x"], name="a.onnx")
    with pytest.raises(SpecError, match=r"b\.bin is incomplete"):
        upload.take(BATCH, ["a.onnx", "b.bin"])
    with pytest.raises(SpecError, match="no valid batch"):
        upload.take("../..", ["a.onnx"])
    with pytest.raises(SpecError, match="cannot be the name"):
        upload.take(BATCH, ["../../etc/passwd"])
    with pytest.raises(SpecError, match="nothing is incomplete"):
        upload.take(BATCH, [])


def test_kept_files_lie_in_a_folder_of_their_content(tmp_path: Path) -> None:
    put([b"one"], name="a.npz")
    first = upload.keep(upload.take(BATCH, ["a.npz"]), tmp_path)
    put([b"one"], name="a.npz", batch="1" * 32)
    again = upload.keep(upload.take("1" * 32, ["a.npz"]), tmp_path)
    put([b"two"], name="a.npz", batch="2" * 32)
    other = upload.keep(upload.take("2" * 32, ["a.npz"]), tmp_path)
    assert first == again != other
    assert left_over() == []


def test_batches_that_nobody_took_are_removed_after_a_day() -> None:
    put([b"x"])
    upload.remove_stale()
    assert len(left_over()) == 1
    upload.remove_stale(now=(upload.folder() / BATCH).stat().st_mtime + upload.STALE_S + 1)
    assert left_over() == []
