"""Pages of settings, provider options, transform steps, presets and efforts, from `core/spec`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.spec import question, spec_from_dict, without_effect_where
from core.spec.effort import DEFAULT_MARGIN, EFFORTS, STAGES, Effort
from core.spec.presets import PRESETS
from core.spec.setting_type import Setting
from core.spec.settings import (
    ENTRIES,
    KNOWN_PROVIDERS,
    PROVIDER_OPTIONS,
    SETTINGS,
    Place,
    ProviderOption,
    TrialSetting,
)
from core.spec.settings.provider_options import NEEDS_BINDING, searched_options
from core.spec.steps import STEPS, StepType
from core.spec.strict_yaml import dump_yaml
from core.wire.output_check import TOLERANCES
from docs.generator import tree
from docs.generator.markdown import (
    accepts,
    bullets,
    code,
    codes,
    fence,
    link,
    number,
    page,
    prose,
    table,
    value,
)

# as on the Tune page
GROUPS = ("Workload", "Threads", "Providers", "Graph", "Memory", "OpenVINO", "Model", "Protocol")
_CPU, _CUDA, _DML = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Dml"))
_SUFFIX = "ExecutionProvider"


# --- settings -----------------------------------------------------------------------------------------------


def settings() -> str:
    """Return the page of all settings."""
    return page(
        "# Settings",
        "A configuration is a model plus these settings. ORTune passes a setting to ONNX Runtime only if you "
        "set it. Names are ONNX Runtime's own where ONNX Runtime has the setting.",
        "The groups are those of the Tune page. Settings marked *advanced* are under **Advanced** there, and "
        "`-h` only lists their options; `--help-all` explains them.",
        *itertools.chain.from_iterable(_group(group) for group in GROUPS),
    )


def _group(group: str) -> Iterator[str]:
    members = [one for one in SETTINGS if one.group == group]
    yield f"## {group}"
    yield table(
        ["Setting", "Label", "Default"],
        ([link(code(one.name), one.name), one.label, _default(one)] for one in members),
    )
    for one in members:
        yield _setting(one)


def _setting(one: TrialSetting) -> str:
    facts = [
        f"Label: {one.label}{' (*advanced*)' if one.advanced else ''}",
        f"Short name in tables: {code(one.short)}",
        f"Values: {accepts(one)}",
        f"Default: {_default(one)}",
        f"Command line: {code(tree.option(one.flag))}",
        f"YAML: {yaml_key(one)}",
        f"Search: {searched(one)}",
        *(f"No effect {text}" for text in NO_EFFECT.get(one.name, ())),
    ]
    return page(f"### {code(one.name)}", prose(one.help), bullets(map(prose, facts)))


def _default(one: Setting) -> str:
    return value(one.default)


def yaml_key(one: TrialSetting) -> str:
    """Return where a setting stands in a YAML file."""
    if (entries := ENTRIES.get(one.target)) is not None:
        return f"key {code(one.name)} in {code(f'session.{entries}')}, as a quoted text"
    section = {"trial": "", "attribute": "session."}.get(one.target, f"{one.target}.")
    return code(f"{section}{one.field}")


NOT_VARIED = "not varied"
_PLACES = {
    "": {},
    "if the objective is throughput": {"streams": True},
    "if the objective or a constraint is about memory": {"memory": True},
    "if the objective is per sample and the model has a free batch dimension": {"any_batch": True},
}


def searched(one: TrialSetting) -> str:
    """Return which values a search tries, as they are with 8 threads, and under which condition."""
    if one.name == "providers":
        return "every provider chain that loads on the machine"
    if one.target == "openvino":
        found = _searched_values(one)
        return f"with the engine {code('openvino')}: {found}" if found != NOT_VARIED else found
    return _searched_values(one)


def _searched_values(one: TrialSetting) -> str:
    if one.name == "openvino.device":
        return "every device that OpenVINO has on the machine"
    for condition, facts in _PLACES.items():
        found = one.search_values(one, Place(threads=8, **facts))
        if found:
            words = ", ".join(value(each) for each in found)
            machine = " (on a machine with 8 usable threads)" if _by_threads(one, facts) else ""
            return f"{words}{machine}{f', {condition}' if condition else ''}"
    return NOT_VARIED


def _by_threads(one: TrialSetting, facts: Mapping[str, Any]) -> bool:
    return len({one.search_values(one, Place(threads=threads, **facts)) for threads in (2, 8)}) > 1


# --- when a setting has no effect ---------------------------------------------------------------------------

_EXAMPLES: Mapping[str, Sequence[Any]] = {
    "providers": ((_CUDA,), (_DML, _CPU)),
    "intra_op_num_threads": (1,),
    "feeds": ("inputs.npz", "images"),
    "runs": (100,),
}
Change = tuple[str, Any]
_NO_CPU: Change = ("providers", (_CUDA,))
_DML_FIRST: Change = ("providers", (_DML, _CPU))
_WORDS: Mapping[Change, str] = {
    _NO_CPU: "`providers` has no CPU provider",
    _DML_FIRST: f"`providers` begins with `{_DML}`",
    ("feeds", "inputs.npz"): "`feeds` is an `.npz` file",
    ("feeds", "images"): "`feeds` names images",
    ("runs", 100): "`runs` is set",
}
_ANY_OTHER_CHAIN = "`providers` is more than the CPU provider"


def _read_by_the_rules() -> list[str]:
    """Names of the settings that the rules look at."""
    defaults = {one.name: one.default for one in SETTINGS}
    seen: dict[str, None] = {}

    def held(name: str) -> Any:
        seen.setdefault(name)
        return defaults[name]

    without_effect_where(held)
    return list(seen)


def _changes() -> list[Change]:
    """Values other than the default of the settings that the rules look at."""
    found: list[Change] = []
    for one in SETTINGS:
        if one.name not in _read_by_the_rules():
            continue
        values = _EXAMPLES.get(one.name, (not one.default,) if one.kind == "bool" else one.choices)
        found += [(one.name, each) for each in values if each != one.default]
    return found


def _reasons(*changes: Change) -> dict[str, str]:
    held = {one.name: one.default for one in SETTINGS} | dict(changes)
    return without_effect_where(held.__getitem__)


def _condition(change: Change) -> str:
    name, to = change
    return _WORDS.get(change, f"{code(name)} is {value(to)}")


def _no_effect() -> dict[str, list[str]]:
    """Name of a setting -> when it has no effect and why; found by asking the rules."""
    default = _reasons()
    found = {name: [f"{_unless(name, reason)}: {reason}"] for name, reason in default.items()}
    told = {(name, reason) for name, reason in default.items()}
    for count in (1, 2):
        by_reason: dict[tuple[str, str], list[str]] = {}
        for changes in itertools.combinations(_changes(), count):
            for name, reason in _reasons(*changes).items():
                if (name, reason) not in told:
                    by_reason.setdefault((name, reason), []).append(" and ".join(map(_condition, changes)))
        for (name, reason), conditions in by_reason.items():
            found.setdefault(name, []).append(f"if {_either(conditions)}: {reason}")
        told |= set(by_reason)
    return found


def _unless(name: str, reason: str) -> str:
    """What has to change so that a setting without effect by default has one."""
    lifted = [_condition(change) for change in _changes() if _reasons(change).get(name) != reason]
    return f"unless {_either(lifted)}" if lifted else "by default"


def _either(conditions: Sequence[str]) -> str:
    """Conditions with `or`; what holds for every chain that is tried holds for any."""
    found = list(dict.fromkeys(conditions))
    chains = [_WORDS[_NO_CPU], _WORDS[_DML_FIRST]]
    if set(chains) <= set(found):
        found = [_ANY_OTHER_CHAIN, *(one for one in found if one not in chains)]
    return " or ".join(found)


NO_EFFECT = _no_effect()


# --- providers ----------------------------------------------------------------------------------------------


def providers() -> str:
    """Return the page of execution providers and their options."""
    example = {
        "session": {
            "providers": [
                {"name": _CUDA, "options": {"use_tf32": "0"}},
                {"name": _CPU, "options": {}},
            ]
        }
    }
    spec_from_dict({"model": {"path": "model.onnx"}, **example})
    return page(
        "# Execution providers",
        "ONNX Runtime assigns each node to the first provider of the chain that can run it. `ortune machine` "
        "shows which providers load on your machine.",
        "On the command line, name providers in order. The short name is the name in lower case without "
        "`ExecutionProvider`:",
        fence(
            "ortune tune model.onnx --provider cuda --provider cpu --provider-option cuda.use_tf32=0", "sh"
        ),
        "In a YAML file:",
        fence(f"# fragment\n{dump_yaml(example)}", "yaml"),
        "ORTune checks the options of the providers below. It refuses options marked *expert* unless the "
        "setting `expert` is on, because they load native code or take memory addresses. It does not know "
        "the options of other providers, and passes them on only if `expert` is on.",
        *itertools.chain.from_iterable(
            _provider(name, options) for name, options in PROVIDER_OPTIONS.items()
        ),
        "## Known provider names",
        "ORTune accepts these names. Whether a provider loads depends on the ONNX Runtime package.",
        bullets(code(name) for name in KNOWN_PROVIDERS),
    )


def _provider(name: str, options: Sequence[ProviderOption]) -> Iterator[str]:
    yield f"## {name}"
    if not options:
        yield "This provider has no options. Its behaviour is controlled by [settings](settings.md)."
        return
    searched_ = {one.name for one in searched_options(name)}
    yield table(
        ["Option", "Values", "Default", "Search", "Meaning"],
        (
            [code(one.name), _text_values(one), value(one.default), _tried(one, searched_), _meaning(one)]
            for one in options
        ),
    )


def _text_values(one: ProviderOption) -> str:
    """Values as they are written: switches of providers are texts."""
    if one.kind == "bool":
        return "`True` or `False`" if one.default in ("True", "False") else "`1` or `0`"
    return accepts(one)


def _tried(one: ProviderOption, searched_: set[str]) -> str:
    if one.name not in searched_:
        return ""
    return "with I/O binding only" if one.name in NEEDS_BINDING else "yes"


def _meaning(one: ProviderOption) -> str:
    return f"{one.help} *Expert.*" if one.native_code else one.help


# --- steps --------------------------------------------------------------------------------------------------


def steps() -> str:
    """Return the page of transform steps."""
    return page(
        "# Transform steps",
        "A variant is a copy of a model after one or more steps. `ortune transform` and the Variants page "
        "run steps in the order in which you give them, and compare the outputs after each step with those "
        "of the original.",
        fence(
            "ortune transform model.onnx --simplify --int8-static --calibration rows.npz "
            "--option int8-static.per_channel=on",
            "sh",
        ),
        "Set an option of a step with `--option STEP.NAME=VALUE`. Separate names in a list with commas.",
        table(
            ["Step", "Option", "Precision afterwards", "Uses calibration data"],
            (
                [
                    link(one.title, one.title),
                    code(one.flag),
                    one.precision or "unchanged",
                    "yes" if one.needs_calibration else "",
                ]
                for one in STEPS
            ),
        ),
        "Some orders are refused: nothing follows ORT format; only Metadata and ORT format follow a graph "
        "that was optimized above `ORT_ENABLE_EXTENDED`; a step that changes the precision starts from a "
        "float32 model; Simplify and Fuse transformer come before quantization.",
        *map(_step, STEPS),
        "## Output tolerance",
        "ORTune marks a variant as `outputs differ` if its largest output error exceeds this tolerance. The "
        "error is a share of the largest magnitude in the output. The second number is the share of samples "
        "that must keep their highest class. The setting `tolerance` replaces both: only its error "
        "counts then.",
        table(
            ["Precision", "Largest error", "Samples that keep their class"],
            (
                [name, f"{one.max_rel:g}", "" if one.top1_agreement is None else f"{one.top1_agreement:.0%}"]
                for name, one in TOLERANCES.items()
            ),
        ).replace("%", " %"),
    )


def _step(one: StepType) -> str:
    facts = [f"Command line: {code(one.flag)}", f"Kind in files: {code(one.kind)}"]
    facts += [f"Precision afterwards: {one.precision}"] if one.precision else []
    facts += [f"Hardware: {one.hardware}"] if one.hardware else []
    facts += [f"Not with custom operator libraries: {one.no_libraries}."] if one.no_libraries else []
    options = table(
        ["Option", "Values", "Default", "Meaning"],
        ([code(each.name), accepts(each), value(each.default), each.help] for each in one.options),
    )
    return page(
        f"## {one.title}", prose(one.help), bullets(map(prose, facts)), options if one.options else ""
    )


# --- presets and efforts ------------------------------------------------------------------------------------


def presets() -> str:
    """Return the page of presets."""
    return page(
        "# Presets",
        "A preset is a starting point for a configuration. It sets session and workload; model and protocol "
        "stay as they are. Use one with `--preset NAME`, or as `preset:NAME` where a command takes a "
        "configuration.",
        fence(
            "ortune tune model.onnx --preset edge\nortune compare model.onnx --candidate preset:edge", "sh"
        ),
        *itertools.chain.from_iterable(_preset(name, *row) for name, row in PRESETS.items()),
        "## Search presets",
        "The Search page offers these combinations of objective and constraints; on the command line, give "
        "the name to `--ask`.",
        fence('ortune search model.onnx --ask "most samples per second"', "sh"),
        table(
            ["Preset", "For", "Objective", "Constraints"],
            ([name, about, *_question(asked)] for name, (about, asked) in question.PRESETS.items()),
        ),
    )


def _preset(
    name: str, label: str, about: str, session: Mapping[str, Any], workload: Mapping[str, Any]
) -> Iterator[str]:
    yield f"## {name}"
    yield f"**{label}.** {about}"
    parts = {part: dict(data) for part, data in (("session", session), ("workload", workload)) if data}
    if parts:
        yield fence(f"# fragment\n{dump_yaml(parts)}", "yaml")
    else:
        yield "Sets nothing."


def _question(asked: Mapping[str, Any]) -> tuple[str, str]:
    found = question.question_from_dict(dict(asked))
    return found.words, "; ".join(found.limit_words)


def efforts() -> str:
    """Return the page of effort levels and the margin."""
    return page(
        "# Effort and equivalence margin",
        "The effort sets how narrow the 95 % interval of a speed-up must be, and how long ORTune tries. The "
        "measurement ends when the interval reaches the goal or the time budget is used up. If the data do "
        "not decide, the verdict is UNDECIDED.",
        fence("ortune tune model.onnx --effort standard --budget 60s --margin 1%", "sh"),
        _effort_table(EFFORTS),
        bullets(
            [
                "**Goal**: half the width of the 95 % interval, as a share of the speed-up.",
                "**Goal relative to the difference**: a wider interval is enough if it is narrow compared "
                "with the difference itself.",
                "**Time budget**: the default of `--budget`.",
                "**Interim analyses**: numbers of launches after which ORTune evaluates the data and may "
                "stop. The 5 % error probability is divided among them and among the comparisons with the "
                "baseline.",
            ]
        ),
        "## Equivalence margin",
        f"The default margin is {100 * DEFAULT_MARGIN:g} %. Two configurations are EQUIVALENT if the whole "
        f"interval of the speed-up lies between 1/(1 + margin) and 1 + margin. With the default that is "
        f"{1 / (1 + DEFAULT_MARGIN):.4f}× to {1 + DEFAULT_MARGIN:.2f}×. Change it with `--margin`.",
        "## Stages of a search",
        "Before its confirmation run a search measures in stages: screening, then elimination rounds. These "
        "numbers select candidates; ORTune reports none of them as a result. Below are the keys of stored "
        "results: `screen` is a screening, `heat` an elimination round.",
        _effort_table(STAGES),
    )


def _effort_table(rows: Mapping[str, Effort]) -> str:
    return table(
        ["Name", "Goal", "Goal relative to the difference", "Time budget", "Interim analyses", "Rounds"],
        (
            [
                code(one.name),
                f"±{100 * one.target:g} %",
                f"±{100 * one.of_effect:g} %" if one.of_effect else "",
                f"{number(one.budget_s)} s",
                codes(one.looks).replace("`", ""),
                str(one.rounds or ""),
            ]
            for one in rows.values()
        ),
    )
