"""Settings of OpenVINO, by OpenVINO's own names: device and properties of `compile_model`. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.spec.settings import check_range, trial_setting
from core.spec.validation import Spec
from core.wire.errors import SpecError, nearest
from core.wire.openvino_devices import is_device

KNOWN_PROPERTIES = (  # of OpenVINO 2026.4, without effect beyond speed, memory and rounding
    *("PERFORMANCE_HINT_NUM_REQUESTS", "ALLOW_AUTO_BATCHING", "AUTO_BATCH_TIMEOUT", "MODEL_PRIORITY"),
    *("ENABLE_CPU_RESERVATION", "ENABLE_TENSOR_PARALLEL", "MODEL_DISTRIBUTION_POLICY", "TBB_PARTITIONER"),
    *("CPU_DENORMALS_OPTIMIZATION", "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE"),
    *("DYNAMIC_QUANTIZATION_GROUP_SIZE", "KV_CACHE_PRECISION", "KEY_CACHE_PRECISION"),
    *("VALUE_CACHE_PRECISION", "KEY_CACHE_GROUP_SIZE", "VALUE_CACHE_GROUP_SIZE"),
    *("ENABLE_STARTUP_FALLBACK", "ENABLE_RUNTIME_FALLBACK", "COMPILATION_NUM_THREADS"),
)
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,79}")
PREFIX = "openvino."  # of its settings in the table


def _property_text(value: object) -> object:
    """Return the value of a property as text; YAML's true, 1 and 1.5 are accepted."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value) if isinstance(value, int | float) else value


class OpenVinoSpec(Spec):
    """Settings of the engine OpenVINO; None: not set."""

    device: str = "CPU"
    PERFORMANCE_HINT: Literal["LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"] | None = None
    NUM_STREAMS: int | None = None
    INFERENCE_NUM_THREADS: int | None = None
    INFERENCE_PRECISION_HINT: Literal["f32", "bf16", "f16"] | None = None
    EXECUTION_MODE_HINT: Literal["PERFORMANCE", "ACCURACY"] | None = None
    SCHEDULING_CORE_TYPE: Literal["ANY_CORE", "PCORE_ONLY", "ECORE_ONLY"] | None = None
    ENABLE_HYPER_THREADING: bool | None = None
    ENABLE_CPU_PINNING: bool | None = None
    reshape: bool = False
    properties: dict[str, Annotated[str, BeforeValidator(_property_text)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> OpenVinoSpec:
        if not is_device(self.device):
            raise SpecError(
                f"`{PREFIX}device` must be a device of OpenVINO, but got `{self.device[:80]}`.",
                hint="Write for example CPU, GPU.1, AUTO, AUTO:GPU,CPU or HETERO:GPU,CPU.",
            )
        for name in ("NUM_STREAMS", "INFERENCE_NUM_THREADS"):
            if (number := getattr(self, name)) is not None:
                check_range(trial_setting(PREFIX + name), number)
        for name, value in self.properties.items():
            _check_property(name, value)
        return self

    def requested(self) -> dict[str, Any]:
        """Properties for `compile_model`: those that are set, and nothing else."""
        found = self.model_dump(mode="json", exclude={"device", "reshape", "properties"}, exclude_none=True)
        return found | self.properties


def _check_property(name: str, value: str) -> None:
    if name in OpenVinoSpec.model_fields:
        raise SpecError(
            f"`{name}` has a setting of its own, but it stands among the other properties.",
            hint=f"Write it as `{PREFIX}{name}`.",
        )
    if _NAME.fullmatch(name) is None or len(value) > 1024:
        raise SpecError(
            f"A property of OpenVINO has a name of capital letters and a value of at most 1024 characters, "
            f"but got `{name[:80]}` with {len(value)}.",
            hint="Write for example `ENABLE_CPU_RESERVATION=YES`.",
        )


def check_expert(spec: OpenVinoSpec, *, expert: bool) -> None:
    """Refuse properties that ORTune does not know; some load code, write files or read them.

    Raises:
        SpecError: an unknown property, unless `expert`.
    """
    for name in spec.properties:
        if name not in KNOWN_PROPERTIES and not expert:
            raise SpecError(
                f"Unknown property `{name}` of OpenVINO.{nearest(name, KNOWN_PROPERTIES)}",
                hint="Correct the name, or turn on `expert` to pass it on unchecked.",
            )
