"""A minute of `benchmarks/soak.py`: visitors leave nothing behind, and the rule for growth can fail."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import soak
from benchmarks import soak_visitors as visitors
from tests.e2e.conftest import recorded_home
from tests.serving import serving

WAVES = 3  # the first reads what the server keeps
VISITORS = 4
WAVE_S = 6.0
DESCRIPTORS = 3  # of a session's event loop, which Streamlit keeps for 120 s


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread of its own: in this one Playwright runs, once a test has had a browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def test_growth_is_found_and_noise_is_not() -> None:
    flat = [100.0 + (7 * at % 11 - 5) / 5 for at in range(60)]
    share, low, high = soak.growth(flat) or (1.0, 1.0, 1.0)
    assert share == pytest.approx(0, abs=0.01)
    assert low < 0 < high
    share, low, _ = soak.growth([value + at / 6 for at, value in enumerate(flat)]) or (0.0, 0.0, 0.0)
    assert share == pytest.approx(0.086, abs=0.005)
    assert low > soak.MOST_GROWTH
    assert soak.growth(flat[:19]) is None


def test_slower_pages_are_found_and_noise_is_not() -> None:
    pages = [0.1 + at % 10 / 100 + at * 7 % 11 / 1000 for at in range(200)]
    # a machine that slows down to a half slows both servers
    drift = [took * (1 + at // 10 / 20) for at, took in enumerate(pages)]
    noise = [took * (1 + (at // 10 * 7 % 11 - 5) / 100) for at, took in enumerate(drift)]
    share, low, high = soak.slower(drift, noise) or (1.0, 1.0, 1.0)
    assert share == pytest.approx(0, abs=0.01)
    assert low < 0 < high
    longer, low, _ = soak.slower(drift, [1.1 * took for took in noise]) or (0.0, 0.0, 0.0)
    assert 1 + longer == pytest.approx(1.1 * (1 + share))
    assert low > soak.MOST_GROWTH
    assert soak.slower(drift, noise[:29]) is None


def outcome(**held: float) -> soak.Outcome:
    """What a soak sees of a server on which nothing grows."""
    names = ("memory", "file descriptors", "threads", *soak.PASSING, *soak.LIMITED)
    found = soak.Outcome(samples=[dict.fromkeys(names, 1.0) | held] * 30, seconds=60.0)
    for seen in (found.alone, found.loaded, found.worn, found.fresh):
        seen.took = [0.1] * 10 * len(visitors.SHOWN)
    found.loaded.jobs, found.loaded.followed, found.loaded.uploads = 9, 1, 1
    found.left = dict.fromkeys(soak.PASSING, 0.0)
    return found


def test_too_many_files_and_too_few_jobs_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.report(outcome(), [], jobs=10) == 0
    assert soak.report(outcome(), [], jobs=11) == 3
    for name, most in soak.LIMITED.items():
        assert soak.report(outcome(**{name: float(most)}), [], jobs=10) == 0
        assert soak.report(outcome(**{name: most + 1.0}), [], jobs=10) == 1
        assert f"files of {name}" in capsys.readouterr().out


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files of this test; its path is short, because Chromium has sockets there."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_a_closed_session_leaves_no_more_than_its_event_loop(temporary: Path) -> None:
    samples, seen = [], visitors.Seen()
    with recorded_home() as home, serving(home) as (url, process):
        server = psutil.Process(process.pid)

        async def wave() -> None:
            until = time.monotonic() + WAVE_S
            await asyncio.gather(*(visitors.read(url, until, at, seen, look_s=0) for at in range(VISITORS)))

        for _ in range(WAVES):
            finished(wave())
            samples.append(soak.sample(server, home) | {"pages": len(seen.took)})
        log = soak.errors(home)
    first, last = samples[0], samples[-1]
    assert seen.failed == []
    assert log == []
    assert len(seen.took) >= WAVES * VISITORS * visitors.PAGES_PER_SESSION
    for name in ("temporary folders", "files of the data folder", "bytes of the database"):
        assert last[name] == first[name], name
    assert last["threads"] <= first["threads"] + VISITORS
    # of the later waves, which are faster than the first, and files that requests have open at the moment
    sessions = (last["pages"] - first["pages"]) / visitors.PAGES_PER_SESSION
    grown = last["file descriptors"] - first["file descriptors"]
    assert grown <= DESCRIPTORS * (sessions + VISITORS)


def test_every_kind_of_visitor_finishes_and_leaves_nothing(temporary: Path) -> None:
    load = soak.Load(seconds=1, warm_s=0, sessions=1, jobs=1)
    with recorded_home() as home, serving(home) as (url, process):
        found = finished(soak.soak(url, psutil.Process(process.pid), home, load))
        finished(soak.side_by_side(url, url, found, seconds=1))
        log = soak.errors(home)
    seen = found.loaded
    assert seen.failed == []
    assert log == []
    assert seen.jobs == 1
    assert len(found.worn.took) == len(found.fresh.took) >= len(visitors.SHOWN)
    assert found.worn.failed == found.fresh.failed == []
    assert found.left == dict.fromkeys(soak.PASSING, 0.0)
    if seen.missing:
        pytest.skip(seen.missing)
    assert seen.followed >= soak.FOLLOWERS * len(visitors.PRESENTED)
    assert seen.uploads >= 1


def test_an_error_of_a_visitor_is_seen() -> None:
    seen = visitors.Seen()
    finished(visitors.record_errors("jobs", _press_what_is_not_there(), seen))
    assert seen.failed == ["The visitor `jobs` ended early: LookupError: The page has no widget `-run`."]


async def _press_what_is_not_there() -> None:
    visitors.Visit(socket=None).widget("-run")  # type: ignore[arg-type]
