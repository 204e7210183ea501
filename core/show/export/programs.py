"""What several formats need of a session: its spec, providers, entries, numbers and texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core import wire
from core.evidence.measurement import Trial
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec, spec_from_dict
from core.wire import engines
from core.wire.errors import SpecError

OTHER_RUNTIMES = "docs/how-to/other-runtimes.md"  # settings by their names in other languages and runtimes
CPU = "CPUExecutionProvider"
DISABLED = "optimization.disable_specified_optimizers"  # the config entry; names with `;` between them
LEVELS: Mapping[str, int] = {  # values of ONNX Runtime's C API
    "ORT_DISABLE_ALL": 0,
    "ORT_ENABLE_BASIC": 1,
    "ORT_ENABLE_EXTENDED": 2,
    "ORT_ENABLE_LAYOUT": 3,
    "ORT_ENABLE_ALL": 99,
}


def ort_spec(trial: Trial) -> TrialSpec:
    """Return the spec of a trial that has a session to export.

    Raises:
        SpecError: another engine ran it, without a session.
    """
    spec = spec_from_dict(trial.spec)
    engines.require_export(spec.engine)
    return spec


def accelerators(plan: wire.SessionPlan, known: Mapping[str, str], target: str) -> list[wire.ProviderPlan]:
    """Return the providers before the CPU, which ONNX Runtime adds to every session by itself.

    Args:
        plan: of the session.
        known: providers of the target, with its names for them.
        target: its name in messages.

    Raises:
        SpecError: the target lacks the provider, so it would not run the measured session.
    """
    names = [one["name"] for one in plan["providers"]]
    before = plan["providers"][: names.index(CPU)] if CPU in names else plan["providers"]
    for one in before:
        if one["name"] not in known:
            able = ", ".join([*known, CPU])
            raise SpecError(
                f"The trial runs on `{one['name']}`, which {target} does not have.",
                hint=f"Choose another format, or a trial on one of: {able}.",
            )
    return before


def entries(plan: wire.SessionPlan, tracker: SettingTracker) -> dict[str, str]:
    """Return the session config entries, including disabled optimizers, and mark them as exported."""
    found = dict(plan["config_entries"])
    tracker.mark_exported(*found)
    if plan["disabled_optimizers"]:
        own = found.get(DISABLED, "")
        found[DISABLED] = ";".join([*([own] if own else []), *plan["disabled_optimizers"]])
        tracker.mark_exported("disabled_optimizers")
    return found


def exported_options(provider: wire.ProviderPlan, tracker: SettingTracker, *names: str) -> dict[str, str]:
    """Return the options of a provider (only `names`, if given), and mark them as exported."""
    found = {key: text for key, text in provider["options"].items() if not names or key in names}
    tracker.mark_exported(*(f"{provider['name']}.{key}" for key in found))
    return found


def numbered_options(plan: wire.SessionPlan, tracker: SettingTracker) -> dict[str, int]:
    """Return threads, execution mode and graph level as numbers of ONNX Runtime's C API, and mark them."""
    numbers = {**LEVELS, "ORT_SEQUENTIAL": 0, "ORT_PARALLEL": 1}
    found: dict[str, int] = {}
    for name in (
        "intra_op_num_threads",
        "inter_op_num_threads",
        "execution_mode",
        "graph_optimization_level",
    ):
        if (value := plan["attributes"].get(name)) is not None:
            found[name] = numbers[value] if isinstance(value, str) else int(value)
            tracker.mark_exported(name)
    return found


def quoted_c(text: str) -> str:
    """Return a string literal of C++ or of protobuf's text format, so that no text can become code.

    What is not plain ASCII is written as bytes of UTF-8 in octal, which every reader takes alike.
    """
    return '"' + "".join(map(_octal, text.encode(errors="replace"))) + '"'


def _octal(byte: int) -> str:
    plain = 32 <= byte < 127 and byte not in b'"\\?'  # `??/` was a backslash once
    return chr(byte) if plain else f"\\{byte:03o}"
