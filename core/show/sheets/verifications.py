"""Sheet of a verification on this machine, also as Markdown and as JUnit XML for CI. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from core.evidence.verdict import Color
from core.show.escapes import md_plain
from core.show.sheets import Fact, Line, Note, Part, Sheet, signatures
from core.show.sheets.signatures import signature_fact
from core.show.table import Column, Table, md_text
from core.wire.units import DASH, visible

Document = Mapping[str, Any]  # an `output_types.VerifyDocument`

WORDS: Mapping[str, str] = {
    "CONFIRMED": "reproduced on this machine",
    "NOT_MEASURED": "runs here with the same outputs; speed not measured",
    "FAILED": "not reproduced on this machine",
    "UNDECIDED": "undecided",
}
DIFFERS = "Differences from the recorded machine and software:"
COLORS: Mapping[str, Color] = {
    **{"CONFIRMED": "green", "FAILED": "red", "UNDECIDED": "gray"},
    **{"YES": "green", "NO": "red", "UNKNOWN": "gray"},
    **{"HOLDS": "green", "DIFFERS": "orange", "NOT_MEASURED": "gray"},
    **{"OK": "green", "NOTE": "orange", "MET": "green", "MISSED": "red"},
}
_STATE_TEXTS: Mapping[str, str] = {
    **{"YES": "yes", "NO": "no", "UNKNOWN": "unknown"},
    **{"HOLDS": "REPRODUCED", "DIFFERS": "DIFFERS", "UNDECIDED": "UNDECIDED", "NOT_MEASURED": "not measured"},
}
_MARKS: Mapping[str, str] = {"OK": "✓", "NO": "✗", "NOTE": "!", "UNKNOWN": "?", "MET": "✓", "MISSED": "✗"}
PARTS = (("runs", "runs"), ("same", "same outputs"), ("fast", "same speed"))  # key, name


def verification_sheet(document: Document) -> Sheet:
    """Return the sheet: the three results, their basis, and differences between the machines."""
    return Sheet(
        f"{document['file']} · {WORDS[document['state']]}",
        [
            *answers(document),
            signature_fact(document["signature"]),
            *change_lines(document),
            *(Note(text, "orange") for text in document["notes"]),
            checks(document),
            *_remarks(document),
            *differences(document),
            *targets(document),
        ],
    )


def state_text(state: str) -> str:
    """Return a state as displayed text."""
    return _STATE_TEXTS.get(state, state)


def answers(document: Document) -> list[Fact]:
    """Return the three results with their states."""
    return [
        Fact(
            name,
            f"{state_text(document[key]['state'])}: {document[key]['why']}",
            COLORS[document[key]["state"]],
        )
        for key, name in PARTS
    ]


def change_lines(document: Document) -> list[Part]:
    """Return the change versus a baseline of this machine: verdict, and facts that changed."""
    change = document["change"]
    kept = document["recorded_to"]
    told: list[Part] = [Note(f"This machine's own numbers: {kept}.")] if kept else []
    if change is None:
        return told
    told.insert(0, Fact("since then", f"{change['state']}: {change['why']}", COLORS[change["state"]]))
    if change["changed"]:
        told.append(Note(f"Changed since: {'; '.join(change['changed'])}."))
    if change["cpus"] is not None:
        told.append(
            Note(
                f"A fixed benchmark ran at {change['cpus']:.3f}× its earlier speed; the interval "
                "accounts for it."
            )
        )
    return told


def checks(document: Document) -> Table:
    """Return the table of checks without a measurement."""
    return Table(
        columns=[
            Column("checked", tells=True),
            Column("recorded"),
            Column("here"),
            Column("why", on="browser"),
        ],
        rows=[
            (_marked(one, one["name"]), one["recorded"] or DASH, one["here"] or DASH, one["why"])
            for one in document["checks"]
        ],
        colors=[COLORS[one["state"]] for one in document["checks"]],
    )


def _remarks(document: Document) -> list[Note]:
    """Return why a check did not pass, unless its row or the first result already says so."""
    told = [
        f"{one['name']}: {one['why']}"
        for one in document["checks"]
        if one["why"] and one["state"] != "NO" and one["name"] not in _IN_ROW
    ]
    return [Note(text, "orange", apart=text is told[0]) for text in told]


_IN_ROW = ("ONNX Runtime", "its build")


def _marked(one: Mapping[str, Any], name: str) -> str:
    return f"{_MARKS[one['state']]} {name}"


def differences(document: Document) -> list[Part]:
    """Return the table of differences between the machines."""
    found = document["differences"]
    if not found:
        return []
    rows = [(one["name"], one["recorded"], one["here"]) for one in found]
    return [
        Line(DIFFERS, apart=True),
        Table(columns=[Column("fact", tells=True), Column("recorded"), Column("here")], rows=rows),
    ]


def targets(document: Document) -> list[Part]:
    """Return the table of the configuration's targets."""
    found = document["targets"]
    if not found:
        return []
    rows = [(_marked(one, target_words(one)), one["state"].lower(), one["why"] or DASH) for one in found]
    return [
        Line("Its targets:", apart=True),
        Table(
            columns=[Column("target", tells=True), Column("here"), Column("why")],
            rows=rows,
            colors=[COLORS[one["state"]] for one in found],
        ),
    ]


def target_words(judged: Mapping[str, Any]) -> str:
    """Return a target as text: metric, batch size and limit; or rate and limit under load."""
    target = judged["target"]
    if "load" in target:
        return f"load {target['load']}"
    limit = "at most" if "at_most" in target else "at least"
    value = target.get("at_most", target.get("at_least"))
    batch = f" at batch {target['batch_size']:,}" if target.get("batch_size") else ""
    return f"{target.get('metric')}{batch} {limit} {value}"


# --- files --------------------------------------------------------------------------------------------------


def as_markdown(document: Document) -> str:
    """Return the result as Markdown; texts of untrusted files are escaped."""
    blocks = [f"## {md_plain(str(document['file']))}: {WORDS[document['state']]}"]
    rows = [(name, state_text(document[key]["state"]), document[key]["why"]) for key, name in PARTS]
    rows.append(("signature", signatures.state_text(document["signature"]), document["signature"]["why"]))
    change = document["change"]
    if change is not None:
        rows.append(("since then", change["state"], change["why"]))
    asked = Table(columns=[Column("question"), Column("answer"), Column("why")], rows=rows)
    blocks.append(md_text(asked))
    parts: Sequence[Part] = [
        checks(document),
        *_remarks(document),
        *differences(document),
        *targets(document),
    ]
    for one in parts:
        blocks.append(md_text(one) if isinstance(one, Table) else md_plain(one.text))
    blocks += [md_plain(text) for text in document["notes"]]
    return "\n\n".join(blocks)


def as_junit(document: Document) -> str:
    """Return the result as JUnit XML: a case for each result, check and target."""
    cases = list(_cases(document))
    failures = sum("<failure" in one for one in cases)
    skipped = sum("<skipped" in one for one in cases)
    head = (
        f'<testsuite name={_xml("ortune verify " + str(document["file"]))} tests="{len(cases)}" '
        f'failures="{failures}" skipped="{skipped}">'
    )
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"])


def _cases(document: Document) -> Iterator[str]:
    for key, name in PARTS:
        state, why = document[key]["state"], document[key]["why"]
        slower = key == "fast" and any(_is_slower(one) for one in document["fast"]["gains"])
        outcome = _outcome(state, failed=slower if key == "fast" else state == "NO")
        yield _case("answers", name, f"{state_text(state)}: {why}", outcome)
    if (change := document["change"]) is not None:
        failed = change["state"] == "DIFFERS"
        yield _case("answers", "since then", change["why"], _outcome(change["state"], failed=failed))
    signature = document["signature"]
    outcome = "" if signature["state"] == "TRUSTED" else "skipped"
    yield _case("answers", "signature", f"{signatures.state_text(signature)}: {signature['why']}", outcome)
    for one in document["checks"]:
        yield _case("checks", one["name"], one["why"], _outcome(one["state"], failed=one["state"] == "NO"))
    for one in document["targets"]:
        outcome = _outcome(one["state"], failed=one["state"] == "MISSED")
        yield _case("targets", target_words(one), one["why"], outcome)


def _is_slower(gain: Mapping[str, Any]) -> bool:
    return gain["state"] == "DIFFERS" and gain["between"] is not None and gain["between"]["ratio"] < 1


def _outcome(state: str, *, failed: bool) -> str:
    if failed:
        return "failure"
    return "skipped" if state in ("UNKNOWN", "UNDECIDED", "NOT_MEASURED") else ""


def _case(group: str, name: str, why: str, outcome: str) -> str:
    begin = f"  <testcase classname={_xml('ortune.' + group)} name={_xml(name)}"
    return f"{begin}/>" if not outcome else f"{begin}><{outcome} message={_xml(why)}/></testcase>"


def _xml(text: str) -> str:
    return quoteattr(visible(text))
