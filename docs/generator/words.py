"""Pages of metrics and of the glossary."""

from __future__ import annotations

import re

from core.show.glossary import TERMS
from core.spec.metrics import METRICS, OBJECTIVES, SHOWN_UNITS, Metric
from core.spec.question import OBJECTIVE_NAMES, parse_limits, parse_objective
from core.spec.targets import MOST_TARGETS, UNITS, target_from_dict
from docs.generator.markdown import bullets, code, codes, fence, page, prose, slug, table

_SOURCES = {"race": "a comparison", "accuracy": "labelled data", "file": "the model file"}
LOAD = "200/s with p99<=20ms"
_LIMITS = ("p99<=3ms", "memory<=100MiB", "sensitivity@0.6>=98%", "accuracy>=-0.5%")


def metrics() -> str:
    """Return the page of metrics, targets, objectives and units."""
    target = {"metric": "latency_p99", "at_most": "3 ms", "batch_size": 1}
    target_from_dict(target)
    target_from_dict({"load": LOAD})
    parse_limits(_LIMITS)
    return page(
        "# Metrics, targets and objectives",
        "## Metrics",
        table(
            ["Metric", "Name", "Unit", "Better", "Measured on", "Meaning"],
            (
                [code(one.name), one.title, _unit(one), _better(one), _SOURCES[one.source], one.help]
                for one in METRICS.values()
            ),
        ),
        "## Targets",
        "A target is a metric with a limit. `ortune scorecard` measures the targets of a configuration. A "
        "target is MET if the whole 95 % interval is inside the limit, MISSED if the whole interval is "
        f"outside, and UNKNOWN otherwise. A configuration has at most {MOST_TARGETS} targets.",
        fence(
            "# fragment\ntargets:\n- metric: latency_p99\n  at_most: 3 ms\n  batch_size: 1\n"
            "- metric: accuracy\n  at_least: 97 %",
            "yaml",
        ),
        table(
            ["Metric", "Limit", "Example", "Conditions"],
            (
                [
                    code(one.name),
                    code("at_most" if one.smaller_is_better else "at_least"),
                    code(one.example),
                    codes(_conditions(one)) if _conditions(one) else "",
                ]
                for one in METRICS.values()
            ),
        ),
        bullets(
            [
                "`batch_size`: the batch size at which the limit applies; default: the configuration's.",
                "`threshold`: the probability from which a sample counts as positive; default: that of the "
                "dataset.",
                "`positive_class`: name or number of the class; default: that of the dataset.",
            ]
        ),
        "## Targets under load",
        "A target under load is a rate with a latency limit: at 200 requests per second, at most 1 % of the "
        "requests may take longer than 20 ms. A request has the batch size of the configuration, 1 by "
        "default. Requests arrive independently of each other (Poisson). A latency counts from the scheduled "
        "arrival, so it includes the time in the queue.",
        fence(f"# fragment\ntargets:\n- load: {LOAD}", "yaml"),
        "`ortune scorecard` runs a load test of 30 seconds or more for it. The target is MET if the upper "
        "95 % bound of the share of slower requests is within the limit, MISSED if the lower one is above "
        "it, and UNKNOWN otherwise. A load test at a higher rate that passed, or at a lower rate that "
        "failed, decides, too. A run in which the load generator itself added more than 10 % of the median "
        "does not count.",
        "## Units of limits",
        "Give times and sizes with their unit in texts. A bare number in a YAML file is in seconds, bytes, "
        "samples per second, or a share of 1.",
        table(
            ["Quantity", "Units"],
            ([name, codes(units) if units else "none"] for name, units in UNITS.items()),
        ),
        "## Objectives of a search",
        "`--objective NAME` takes a name of this table, or two with weights that add up to 1: "
        "`latency:0.7,memory:0.3`.",
        table(
            ["Objective", "Short name", "Optimizes", "Per sample"],
            (
                [code(name), codes(_short(name)), words, "yes" if METRICS[name].per_sample else ""]
                for name, words in OBJECTIVES.items()
            ),
        ),
        "## Constraints of a search",
        "`--limit` takes a metric or a short name, a comparison and a value. Quote it, because `<` and `>` "
        "have a meaning for the shell.",
        fence("\n".join(f"ortune search model.onnx --limit '{one}'" for one in _LIMITS), "sh"),
        bullets(
            [
                "`sensitivity@0.6>=98%`: at the decision threshold 0.6.",
                "`accuracy>=-0.5%`: at most 0.5 percentage points below the original model.",
            ]
        ),
        f"A limit under load has an option of its own, `--load '{LOAD}'`: after the confirmation, the search "
        "runs the best configurations under this traffic until one passes.",
    )


def _unit(one: Metric) -> str:
    return SHOWN_UNITS[one.quantity][1] or "–"


def _better(one: Metric) -> str:
    return "lower" if one.smaller_is_better else "higher"


def _conditions(one: Metric) -> list[str]:
    given = {"batch_size": one.at_batch, "threshold": one.at_threshold, "positive_class": one.of_class}
    return [name for name, holds in given.items() if holds]


def _short(objective: str) -> list[str]:
    """Names under which a user may write an objective."""
    names = re.findall(r"[a-z]\w*", OBJECTIVE_NAMES)
    return [one for one in names if objective in parse_objective(one) and one != objective]


def glossary() -> str:
    """Return the page of terms."""
    return page(
        "# Glossary",
        "`ortune glossary TERM` prints one of these terms.",
        " · ".join(f"[{term}](#{anchor(term)})" for term in TERMS),
        *(page(_named(term), f"## {term}", prose(text)) for term, text in TERMS.items()),
    )


def anchor(term: str) -> str:
    """Return the anchor of a term, the same on GitHub and on the documentation site."""
    return re.sub("-+", "-", slug(term))


def _named(term: str) -> str:
    """An explicit anchor where a heading's own one differs."""
    return "" if slug(term) == anchor(term) else f'<a id="{anchor(term)}"></a>'
