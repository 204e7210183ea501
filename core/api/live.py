"""Live estimates: the one job that all visitors share, and its requests; see `core.run.live`."""

from __future__ import annotations

from core.run.live import DEFAULT as DEFAULT
from core.run.live import LEAST_LAUNCHES as LEAST_LAUNCHES
from core.run.live import WISH as WISH
from core.run.live import LiveRequest as LiveRequest
from core.run.live import LiveRequests as LiveRequests
from core.run.live import is_default as is_default
from core.run.live import job as job
