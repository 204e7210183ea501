"""What a page shows, read from its AppTest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from streamlit.testing.v1 import AppTest

from core.run.job import Status
from core.store import ModelRecord
from dashboard import fields
from tests.reading import tells

Open = Callable[..., AppTest]  # the fixture `open_page`
Add = Callable[..., ModelRecord]  # the fixtures `add_model` and `add_variant`
GRIDS = ("numbers", "latencies", "cost", "cold_start")  # keys of the boxes around numbers of a result
Jobs = Callable[..., list[str]]  # the fixture `jobs`


def texts(at: AppTest) -> str:
    """All that is said, without the escapes of Markdown."""
    boxes = [*at.error, *at.warning, *at.info, *at.success]
    said = [*at.title, *at.header, *at.subheader, *at.markdown, *at.caption, *boxes]
    streamed = [line for event in watched(at).values() for line in streamed_lines(event)]
    parts = [*(str(one.value) for one in said), *(one.proto.title for one in boxes), *streamed]
    return "\n".join(parts).replace("\\", "")


def lines(at: AppTest, *facts: object) -> list[str]:
    """The lines of the page that contain all these facts: numbers, names, constants of the product."""
    return [line for line in texts(at).splitlines() if tells(line, *facts)]


def place(at: AppTest, kind: str, *facts: object) -> int:
    """The place on the page, from above, of the first element of a kind that contains all these facts."""
    for number, one in enumerate(at._tree):
        if one.type == kind and tells(str(getattr(one, "value", "")).replace("\\", ""), *facts):
            return number
    raise AssertionError((kind, facts))


def keys(at: AppTest) -> set[str]:
    """The keys of all that is on the page, boxes and dialogs included."""
    return {str(key) for one in at._tree if (key := getattr(one, "key", None))}


def icons(at: AppTest) -> list[str]:
    """The symbols beside what is said, by which a remark is known whatever its words are."""
    boxes = [*at.error, *at.warning, *at.info, *at.success]
    return re.findall(r":material/(\w+):", "\n".join([*(str(one.icon) for one in boxes), texts(at)]))


def metrics(at: AppTest) -> dict[str, str]:
    return {one.label.replace("\\", ""): one.value for one in at.metric}


def card(at: AppTest, name: str) -> Any:
    """The box of the number that has this name in a result; see `core.show.cells.Cell`."""
    return next(one for key, one in _cards(at) if key == name)


def cards(at: AppTest) -> dict[str, str]:
    """The numbers of a result by their names, as the page shows them."""
    return {name: one.metric[0].value for name, one in _cards(at)}


def _cards(at: AppTest) -> list[tuple[str, Any]]:
    found = [(str(getattr(one, "key", None)).partition("."), one) for one in at.main]
    return [(name, one) for (grid, _, name), one in found if name and grid in GRIDS]


def widget(at: AppTest, name: str) -> Any:
    """The field of a setting; groups that are closed are opened for it."""
    key = fields.key(name)
    return at.get_by_key(key) if key in keys(at) else unfolded(at).get_by_key(key)


def unfolded(at: AppTest) -> AppTest:
    """The page with all groups of settings open: what is in a closed one is not there."""
    for name in ("group.memory", "group.advanced"):
        at.session_state[name] = True
    return at.run()


def opened(at: AppTest, *groups: str) -> AppTest:
    """The page with these groups open, or these tabs, written "key:name"."""
    for group in groups:
        key, _, tab = group.partition(":")
        at.session_state[key] = tab or True
    return at.run()


def choice(at: AppTest, key: str) -> Any:
    """The list whose choice the script changes too; see `dashboard.widgets.choice`."""
    return next(one for one in at.selectbox if str(one.key).rpartition(".")[0] == key)


def buttons(at: AppTest, start: str) -> list[str]:
    """Keys of the buttons that begin so."""
    return [str(one.key) for one in at.button if str(one.key).startswith(start)]


def click(at: AppTest, key: str) -> AppTest:
    return at.button(key=key).click().run()


def table(at: AppTest, column: str) -> Any:
    """The first table that has this column."""
    return next(one.value for one in at.dataframe if column in one.value.columns)


def facts(at: AppTest) -> dict[str, str]:
    """The first facts of the page, name -> text."""
    shown = at.table[0].value
    return {str(name): str(text).replace("\\", "") for name, text in shown.iloc[:, 0].items()}


def offers(at: AppTest) -> list[Any]:
    """Downloads, without those of the plots."""
    return [one for one in at.get("download_button") if not str(one.key).endswith(".csv")]


def figure(at: AppTest, index: int = 0) -> dict[str, Any]:
    return dict(json.loads(at.get("plotly_chart")[index].proto.spec))


def watched(at: AppTest) -> dict[str, dict[str, Any]]:
    """What the page shows of jobs that run, by the keys of the views; see `dashboard.live_events.Event`."""
    found = [one for one in at.get("bidi_component") if one.proto.component_name == "ortune_live"]
    return {str(one.key): json.loads(one.proto.json)["event"] for one in found}


def streamed_lines(event: dict[str, Any]) -> list[str]:
    """The texts of an event, each with its symbol as Streamlit writes one."""
    marked = [
        f":material/{one['icon']}: {one['text']}" if one.get("icon") else str(one["text"])
        for one in [*event.get("lines", []), *event.get("more", [])]
    ]
    return [*(str(event[name]) for name in ("text", "caption") if event.get(name)), *marked]


def followed(at: AppTest, key: str) -> dict[str, Any]:
    """What the view of this key shows; nothing where there is none."""
    return watched(at).get(key, {})


def status(job: str = "job", **changes: Any) -> Status:
    """A job that runs."""
    facts: dict[str, Any] = {"id": job, "kind": "measure", "state": "RUNNING", "what": ""}
    return Status(**(facts | changes))
