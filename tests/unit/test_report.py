"""Reports: every kind of result, costs, and refusals; on recorded comparisons."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.run.best_point import rank_points
from core.show.escapes import md_plain
from core.show.report import Price, cost
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.subjects import (
    AboutComparison,
    AboutDifference,
    AboutScorecard,
    AboutSearch,
    AboutSweep,
    AboutTrial,
    find,
)
from core.show.setting_chips import changes_text
from core.show.sheets import Fact, sweeps
from core.show.sheets.trials import ITSELF, measured
from core.spec.axes import point_name
from core.spec.effort import DEFAULT_MARGIN
from core.store import Store
from core.wire.errors import SpecError, StoreError
from dashboard.report.figures import plots_of
from dashboard.report.page import MOST_BYTES, html_of
from tests.reading import tells
from tests.recorded import recorded_store, reported

EURO = Price(per_hour=0.36, currency="EUR")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with recorded_store() as found:
        yield found


@pytest.fixture(scope="module")
def kinds(store: Store) -> dict[str, list[str]]:
    return reported(store)


TYPES = {
    "trial": AboutTrial,
    "race": AboutComparison,
    "search": AboutSearch,
    "curve": AboutSweep,
    "card": AboutScorecard,
    "why": AboutDifference,
    "profile": AboutTrial,
}


class Parsed(html.parser.HTMLParser):
    """What a browser would make of a file: its elements with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(text: str) -> Parsed:
    return Parsed(text)


# --- every kind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
def test_every_kind_has_a_file_that_holds_all_and_asks_nobody(
    kind: str, store: Store, kinds: dict[str, list[str]]
) -> None:
    about = find(store, kinds[kind])
    assert isinstance(about, TYPES[kind])
    said = compose(about, store, price=EURO)
    text = html_of(about, store, price=EURO)
    page = parsed(text)
    assert len(text.encode()) <= MOST_BYTES
    names = {"src", "href", "action", "srcset", "data"}
    assert not [one for one in page.elements if names & set(one[1])]
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.elements}
    shown = "\n".join(page.texts)
    assert said.verdict in shown
    assert said.method or kind == "profile"
    assert all(one in shown for one in said.caveats)
    assert all(one.text.splitlines()[0] in shown for one in said.files if one.text)
    figures = [attrs for tag, attrs in page.elements if attrs.get("class") == "plot"]
    assert len(figures) == len(plots_of(about)) == len(_figures(text))
    assert bool(figures) == (kind != "card")


def _figures(text: str) -> list[Any]:
    match = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    return list(json.loads(match[1]))


@pytest.mark.parametrize("kind", TYPES)
def test_markdown_says_the_same(kind: str, store: Store, kinds: dict[str, list[str]]) -> None:
    said = compose(find(store, kinds[kind]), store, price=EURO)
    text = markdown(said)
    assert f"**{md_plain(said.verdict)}**" in text
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") > 0
    assert ("EUR" in text) == (said.cost is not None)
    for file in said.files:
        assert file.text.rstrip("\n") in text


def test_a_short_id_is_enough_and_a_pair_is_an_explanation(store: Store, kinds: dict[str, list[str]]) -> None:
    assert compose(find(store, [kinds["race"][0][:8]]), store).id == kinds["race"][0]
    token = kinds["curve"][0].rpartition("#")[2]
    curve = find(store, [f"#{token}"])
    assert isinstance(curve, AboutSweep)
    assert compose(curve, store).verdict == best_of(curve)
    assert compose(find(store, kinds["why"]), store).kind == "Explanation"


def best_of(curve: AboutSweep) -> str:
    """The best point in the words of the page, with all that is inconclusive against it."""
    stands = rank_points(curve.points, line_s=None, margin=DEFAULT_MARGIN)
    assert stands.best is not None
    said = sweeps.sentence(curve.points, stands)
    assert f"throughput: {point_name(stands.best.values)}: " in said
    return said


# --- a rejected comparison, and an imported one ------------------------------------------------------------


def test_a_rejected_comparison_says_so_on_top(store: Store, kinds: dict[str, list[str]]) -> None:
    about = find(store, kinds["race"])
    assert isinstance(about, AboutComparison)
    result: Any = {
        **about.comparison.facts,
        "grade": "F",
        "grade_reason": "The A/A test failed.",
        "remedy": "Wait.",
    }
    rejected = replace(about, comparison=replace(about.comparison, result=result))
    said = compose(rejected, store)
    assert said.rejected == f"{result['grade_reason']} {result['remedy']}"
    assert said.verdict == "Rejected: the configurations are not ranked."
    text = html_of(rejected, store)
    body = text[text.index("<main>") :]
    assert body.index("Rejected: no verdict") < body.index('class="verdict"')
    lines = markdown(said).splitlines()
    assert next(n for n, one in enumerate(lines) if "no verdict" in one) < 12


def test_a_report_names_other_runtimes_with_their_versions_and_keeps_the_machine_of_ortunes_own(
    store: Store, kinds: dict[str, list[str]]
) -> None:
    about = find(store, kinds["race"])
    assert isinstance(about, AboutComparison)
    first, *others = about.trials
    libraries = {"numpy": "1.26.4", "onnxruntime": "1.17.3"}
    moved = replace(
        first,
        spec={**first.spec, "runtime": f"ort117@sha256:{'5' * 64}"},
        result={**first.facts, "environment": {**first.facts["environment"], "libraries": libraries}},
    )
    said = compose(replace(about, trials=[moved, *others]), store)
    facts = [part for one in said.method for part in one.parts if isinstance(part, Fact)]
    [named] = [one.text for one in facts if one.name == "runtime"]
    assert tells(named, "ort117", "1.17.3", "5" * 12)
    [own] = [one.text for one in facts if one.name == "libraries"]
    assert "1.17.3" not in own
    assert named in "\n".join(parsed(html_of(replace(about, trials=[moved, *others]), store)).texts)


def test_a_profile_says_what_to_try_first_and_knows_the_peaks_of_its_machine(
    store: Store, kinds: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    about = find(store, kinds["profile"])
    assert isinstance(about, AboutTrial)
    session = {"graph_optimization_level": "ORT_ENABLE_BASIC"}
    trial = replace(about.trial, spec={**about.trial.spec, "session": session})
    asked: list[str] = []
    monkeypatch.setattr(store, "peaks", asked.append)
    low = replace(about, trial=trial)
    for text in (html_of(low, store), markdown(compose(low, store)).replace("\\", "")):
        assert "ORT_ENABLE_ALL" in text
    assert "ORT_ENABLE_ALL" not in markdown(compose(about, store)).replace("\\", "")
    assert set(asked) == {trial.fingerprint}


def test_the_default_itself_has_no_verdict_and_says_so(store: Store) -> None:
    default = next(
        one
        for one in store.trials(kind="measure", limit=500)
        if one.comparison and not changes_text(one) and not one.facts.get("contrasts")
    )
    parts = measured(store.trial(default.id)).parts
    assert [one.text for one in parts if isinstance(one, Fact) and one.name == "verdict"] == [ITSELF]


def test_a_recording_is_marked(store: Store, kinds: dict[str, list[str]]) -> None:
    about, words = find(store, kinds["trial"]), "Recorded on 2026-11-23, not measured here."
    body = html_of(about, store, recorded=words).partition("<main>")[2]
    assert body.index(words) < body.index("<h1>")
    assert words in markdown(compose(about, store, recorded=words))


def test_a_fence_is_longer_than_any_in_the_file(store: Store, kinds: dict[str, list[str]]) -> None:
    said = compose(find(store, kinds["trial"]), store)
    text = markdown(replace(said, files=[replace(said.files[0], text="a: '````'\n```\n</details>\n")]))
    assert "`````yaml\na: '````'\n```\n</details>\n`````" in text


# --- money --------------------------------------------------------------------------------------------------


def test_cost_is_the_price_of_the_time_that_a_million_rows_take() -> None:
    assert cost.per_million(1000.0, EURO) == pytest.approx(0.1)  # 1,000 s at 0.36 an hour
    result = {"batch_size": 2, "latency": {"mean_s_low": 0.001, "mean_s_high": 0.004}}
    assert cost.interval(result, EURO) == pytest.approx((0.05, 0.2))
    assert cost.interval({"batch_size": 2, "latency": {}}, EURO) == (None, None)
    assert cost.per_million(None, EURO) is None
    assert cost.section([("a", {"throughput_per_s": None})], EURO) is None


def test_a_cost_says_what_it_assumes(store: Store, kinds: dict[str, list[str]]) -> None:
    found = compose(find(store, kinds["trial"]), store, price=EURO).cost
    assert found is not None
    told = " ".join(getattr(part, "text", "") for part in found.parts)
    assert "0.36 EUR" in told
    assert compose(find(store, kinds["trial"]), store).cost is None


@pytest.mark.parametrize("amount", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_what_is_no_price_is_refused(amount: float) -> None:
    with pytest.raises(SpecError, match="price"):
        Price(per_hour=amount)


@pytest.mark.parametrize("currency", ["", " ", "a\nb", "EURODOLLAR"])
def test_what_is_no_currency_is_refused(currency: str) -> None:
    with pytest.raises(SpecError, match="currency"):
        Price(per_hour=1, currency=currency)


# --- what is not there --------------------------------------------------------------------------------------


def test_what_cannot_be_reported_is_said(store: Store, kinds: dict[str, list[str]]) -> None:
    with pytest.raises(StoreError, match="`nothing`"):
        find(store, ["nothing"])
    with pytest.raises(SpecError, match=" 3 "):
        find(store, ["a", "b", "c"])
    others = [one.id for one in store.trials(kind="measure") if one.id not in kinds["why"]][:2]
    with pytest.raises(SpecError, match="explained"):
        find(store, others)


def test_an_id_that_names_several_is_refused(store: Store, kinds: dict[str, list[str]]) -> None:
    trial, comparison = store.trial(kinds["trial"][0]), store.comparison(kinds["race"][0])
    both = replace(trial, id="abcdef0000000001"), replace(trial, id="abcdef0000000002")
    for one in both:
        store.create_trial(one)
    try:
        with pytest.raises(StoreError, match="`abcdef`"):
            find(store, ["abcdef"])
        store.delete_trials([both[1].id])
        store.create_comparison(replace(comparison, id="abcdef0000000003"), [])
        with pytest.raises(StoreError, match="2 results"):
            find(store, ["abcdef"])
    finally:
        store.delete_trials([one.id for one in both])


def test_a_file_that_would_be_too_large_leaves_out_what_may_be_spared(
    store: Store, kinds: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    about = find(store, kinds["race"])
    whole = html_of(about, store)
    monkeypatch.setattr("dashboard.report.page.MOST_BYTES", len(whole.encode()) - 1)
    less = html_of(about, store)
    assert len(_figures(less)) == len(_figures(whole)) - 1
    assert "Left out, because the file would be too large: Latency over time" in less
