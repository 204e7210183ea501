"""The result store: trials, comparisons, searches and models in one SQLite file. Only this package uses SQL.

`store.py` has the class `Store`; `database.py` handles the file, its migrations and transactions.
"""

from __future__ import annotations

from core.store.accuracies import Accuracy
from core.store.copies import CheckResult
from core.store.pruning import PruneResult
from core.store.queries import Order, Query
from core.store.rows import PRUNED, RAW_FIELDS
from core.store.searches import StudyRecord
from core.store.store import (
    MIN_PREFIX,
    STORE_NAME,
    Deletion,
    ModelRecord,
    Stamps,
    Store,
    home,
    lost_by_restore,
    restore,
)
from core.store.tags import Change, Tags

__all__ = [
    "MIN_PREFIX",
    "PRUNED",
    "RAW_FIELDS",
    "STORE_NAME",
    "Accuracy",
    "Change",
    "CheckResult",
    "Deletion",
    "ModelRecord",
    "Order",
    "PruneResult",
    "Query",
    "Stamps",
    "Store",
    "StudyRecord",
    "Tags",
    "home",
    "lost_by_restore",
    "restore",
]
