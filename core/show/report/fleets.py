"""The report on a fleet run: the answer, a section per question, the machines and the YAML files. Pure."""

from __future__ import annotations

from typing import Any

from core import __version__
from core.evidence.fleet.summary import Summary
from core.show import fleet_text
from core.show.fleet_files import files
from core.show.report import File, Section
from core.show.sheets import Line, Note
from core.show.sheets.fleet import host_facts, hosts_table, question_title, section_parts
from core.show.words import counted

_METHOD = (
    "Every host answers a question as one machine does: its configurations run in the same rounds, in fresh "
    "processes, and ratios are taken within a round against the host's own reference. Latencies of different "
    "hosts are never paired.",
    "The regret of a configuration on a host is how much slower it is there than the best configuration of "
    f"that host. {fleet_text.JOINT}",
    "The spread between machines of one kind is a standard deviation without the uncertainty of each "
    "measurement. Its interval allows for machines that vary less evenly than a normal distribution.",
)


def report_parts(summary: Summary) -> dict[str, Any]:
    """Return the fields of a report on a fleet run, except `recorded`."""
    run, main = summary.run, summary.main
    said, color = fleet_text.answer(main) if main is not None else ("No question was asked.", "gray")
    support = [
        counted(len(run.hosts), "host"),
        counted(len(fleet_text.kind_names(run.hosts)), "kind") + " of machines",
    ]
    results, caveats = [], []
    ordered = sorted(summary.sections, key=lambda one: one is not main)
    for section in ordered:
        parts = [
            one
            for one in section_parts(section, summary)
            if not (isinstance(one, Line | Note) and one.text in (said, question_title(section)))
        ]
        notes = [one.text for one in parts if isinstance(one, Note) and one.color in ("orange", "red")]
        caveats += notes
        kept = [one for one in parts if not (isinstance(one, Note) and one.text in notes)]
        results.append(Section(title=question_title(section), parts=kept))
    caveats += [note for one in summary.sections if (note := fleet_text.busy_note(one.matrix))]
    return {
        "kind": "Fleet run",
        "id": run.id,
        "title": fleet_text.title(run),
        "measured_at": run.finished_at or run.created_at,
        "verdict": said,
        "color": color,
        "support": support,
        "rejected": "",
        "result": results,
        "cost": None,
        "method": [
            Section(title="Method", parts=[Line(one) for one in _METHOD]),
            Section(title="Machines", parts=[*host_facts(run), hosts_table(run.hosts)]),
        ],
        "caveats": list(dict.fromkeys(caveats)),
        "files": [File(name=one.name, text=one.text, missing=one.missing) for one in files(summary)],
        "tool_version": ", ".join(dict.fromkeys(one.ortune for one in run.hosts if one.ortune))
        or __version__,
    }
