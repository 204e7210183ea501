"""The table of pages. A page is its folder in `views/` and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from core.store import Store
from dashboard import demo

Group = Literal["Measure", "Understand", "Change the model", "Decide"]  # of the navigation


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page."""

    title: str
    icon: str  # name of a Material Symbol
    group: Group
    kept: str = ""  # pattern of the session keys that a reload keeps, each after the name and a dot
    # content hashes of the models with which a demonstration opens it, the best one first; none: any model
    recorded: Callable[[Store], Iterable[str]] = lambda store: ()
    old_name: str = ""  # before 1.0

    @property
    def name(self) -> str:
        """Return the address, the folder, and what begins the keys of its widgets."""
        return page_name(self.title)

    @property
    def file(self) -> str:
        """Return the script, named as Streamlit's navigation names it."""
        return f"views/{self.name}/page.py"


def page_name(title: str) -> str:
    """Return the name of a page: its address, its folder, and what begins the keys of its widgets."""
    return title.lower().replace(" ", "_")


_TABLE = (
    Page(title="Tune", icon="tune", group="Measure", recorded=demo.opening_model),
    Page(
        title="Search",
        icon="manage_search",
        group="Measure",
        kept=r"objective|second|weight|limits|under_load|same_latency|budget_s|precision|extend|give_way|variants"
        r"|fixed|never|own|runtimes|strategy|warm_start|seed",
        recorded=demo.searched,
    ),
    Page(
        title="Compare",
        icon="compare_arrows",
        group="Measure",
        kept=r"entries|of_model|baseline|precision|margin|budget|duels|closed",
        recorded=lambda store: demo.compared(store, ""),
    ),
    Page(
        title="Sweep",
        icon="show_chart",
        group="Measure",
        kept=r"axis|second|values\..+|again|line_ms|statistic|view\.[12]|ghosts",
        recorded=lambda store: demo.compared(store, "curve"),
        old_name="curves",
    ),
    Page(
        title="Load",
        icon="traffic",
        group="Measure",
        kept=r"question|chosen|own|rates|limits|duration_s|budget_s|arrivals|on_s|off_s|from_percent|steps"
        r"|low_percent|rows|dim\..+|timeout|trace|turns|seed|streams|threads|view|tail",
        recorded=lambda store: [one.model_sha256 for one in store.trials(kind="load")],
    ),
    Page(title="Fleet", icon="lan", group="Measure"),
    Page(
        title="Profile",
        icon="search_insights",
        group="Understand",
        kept=r"source|measured|runs|view|search",
        recorded=lambda store: [one.model_sha256 for one in store.trials(kind="profile")],
    ),
    Page(
        title="Explain",
        icon="troubleshoot",
        group="Understand",
        kept=r"baseline|candidate|job\..+|view|search",
        recorded=demo.opening_model,
        old_name="why",
    ),
    Page(
        title="Graph",
        icon="account_tree",
        group="Understand",
        kept=r"source|view|color|search",
        recorded=demo.opening_model,
    ),
    Page(title="Machine", icon="developer_board", group="Understand"),
    Page(title="Models", icon="deployed_code", group="Change the model", kept=r"job"),
    Page(
        title="Variants",
        icon="science",
        group="Change the model",
        kept=r"chain|name|calibration|view|racers|offered|precision|job\..+",
        recorded=demo.variants,
    ),
    Page(
        title="Accuracy",
        icon="fact_check",
        group="Change the model",
        kept=r"chosen|of_family|last|settings|batch|job|view|into|reference|accepted|metric|positive|level",
        recorded=lambda store: [one.model_sha256 for one in store.accuracies()],
    ),
    Page(
        title="Scorecard",
        icon="checklist",
        group="Decide",
        kept=r"models|of_family|settings|precision|jobs|taken|targets|target\..+",
        recorded=lambda store: demo.compared(store, "scorecard"),
    ),
    Page(title="History", icon="history", group="Decide", kept=r"model|kind|state|search"),
    Page(
        title="Export",
        icon="file_export",
        group="Decide",
        kept=r"source|accepted\..+",
        recorded=demo.opening_model,
    ),
)
PAGES: Mapping[str, Page] = {one.name: one for one in _TABLE}  # as the navigation lists them
