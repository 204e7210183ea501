"""What a page shows, read from its AppTest."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from streamlit.testing.v1 import AppTest

from core.run.job import Status
from core.store import ModelRecord
from dashboard import fields

Open = Callable[..., AppTest]  # the fixture `open_page`
Add = Callable[..., ModelRecord]  # the fixtures `add_model` and `add_variant`
Jobs = Callable[..., list[str]]  # the fixture `jobs`


def texts(at: AppTest) -> str:
    """All that is said, without the escapes of Markdown."""
    boxes = [*at.error, *at.warning, *at.info, *at.success]
    said = [*at.title, *at.header, *at.subheader, *at.markdown, *at.caption, *boxes]
    parts = [*(str(one.value) for one in said), *(one.proto.title for one in boxes)]
    return "\n".join(parts).replace("\\", "")


def metrics(at: AppTest) -> dict[str, str]:
    return {one.label.replace("\\", ""): one.value for one in at.metric}


def widget(at: AppTest, name: str) -> Any:
    """The field of a setting."""
    return at.get_by_key(fields.key(name))


def choice(at: AppTest, key: str) -> Any:
    """The list whose choice the script changes too; see `dashboard.widgets.choice`."""
    return next(one for one in at.selectbox if str(one.key).rpartition(".")[0] == key)


def run_late(at: AppTest, *widgets: Any) -> AppTest:
    """Run the page as a browser asks for it that has not heard of the last run yet.

    Args:
        at: the page, after that run.
        widgets: the state of some widgets before it, by `_widget_state`.
    """
    sent = at._tree.get_widget_states()
    sent.widgets.extend(widgets)
    return at._run(sent)


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


def status(job: str = "job", **changes: Any) -> Status:
    """A job that runs."""
    facts: dict[str, Any] = {"id": job, "kind": "measure", "state": "RUNNING", "what": ""}
    return Status(**(facts | changes))
