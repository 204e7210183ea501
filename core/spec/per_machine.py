"""One configuration file for several kinds of machines.

The file is a configuration that serves every machine; its section `per_machine` holds one for each kind.
Commands read the file as that configuration. `pick` returns the one for a given machine. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from core.spec import SCHEMA, TrialSpec, refuse_expert, spec_from_dict, spec_from_yaml
from core.spec.strict_yaml import load_strict
from core.spec.validation import Spec, validated
from core.wire.errors import SpecError

PER_MACHINE = "per_machine"  # section of the file
_SECTIONS = ("model", "session", "workload", "protocol", "engine", "runtime", "openvino")


class MachineConfiguration(Spec):
    """The configuration of one kind of machine."""

    cpu: str = ""  # model of the CPU
    fingerprint: str  # of the machine and its libraries
    hosts: list[str] = Field(default_factory=list)  # that it was measured on
    configuration: dict[str, Any]  # sections of a configuration; without `model` that of the file


def pick(text: str, *, fingerprint: str, cpu: str, expert: bool = False) -> tuple[TrialSpec, str]:
    """Return the configuration of a file for a machine, and why it was chosen.

    An equal fingerprint counts first, then an equal model of the CPU. Any other machine gets the
    configuration that serves every machine.

    Args:
        text: of the file.
        fingerprint: of the machine.
        cpu: model of its CPU.
        expert: whether the operator allows `expert`.

    Raises:
        SpecError: the file is no configuration, or its section is wrong.
    """
    whole = spec_from_yaml(text, expert=expert)
    data = load_strict(text)
    kinds = _kinds(data.get(PER_MACHINE))
    for one in kinds:
        if fingerprint and one.fingerprint == fingerprint:
            return _spec(data, one, expert=expert), "the fingerprint of this machine"
    same = [one for one in kinds if cpu and one.cpu == cpu]
    if same and all(one.configuration == same[0].configuration for one in same):
        return _spec(data, same[0], expert=expert), f"the CPU model {cpu}"
    return whole, "no kind of machine in the file is equal to this one"


def _kinds(section: object) -> list[MachineConfiguration]:
    if section is None:
        return []
    if not isinstance(section, list):
        raise SpecError(f"`{PER_MACHINE}` must be a list.", hint="Export the run again.")
    found = []
    for number, one in enumerate(section):
        if not isinstance(one, Mapping):
            raise SpecError(f"`{PER_MACHINE}.{number}` must be a dictionary.", hint="Export the run again.")
        found.append(validated(MachineConfiguration, one))
    return found


def _spec(data: Mapping[str, Any], one: MachineConfiguration, *, expert: bool) -> TrialSpec:
    unknown = [name for name in one.configuration if name not in _SECTIONS]
    if unknown:
        raise SpecError(
            f"`{PER_MACHINE}` holds the unknown section `{unknown[0][:40]}`.",
            hint=f"Choose among {', '.join(_SECTIONS)}.",
        )
    if not expert:
        refuse_expert(one.configuration)
    return spec_from_dict({"model": data["model"], **one.configuration})


def document(whole: Mapping[str, Any], kinds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a file as plain data.

    Args:
        whole: the configuration that serves every machine, as plain data.
        kinds: see `MachineConfiguration`.
    """
    return {"schema": SCHEMA, **whole, PER_MACHINE: list(kinds)}
