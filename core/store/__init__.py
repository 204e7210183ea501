"""The result store: trials, comparisons, searches and models in one SQLite file. Only this package uses SQL.

`store.py` has the class `Store`; `database.py` handles the file, its migrations and transactions.
"""

from __future__ import annotations

from core.store.backups import BackupFolder
from core.store.database import STORE_NAME, home
from core.store.pruning import PruneResult
from core.store.queries import Order, Query
from core.store.records import Accuracy, CheckResult, Deletion, ModelRecord, StudyRecord, Visibility
from core.store.restoring import lost_by_restore, restore
from core.store.rows import PRUNED, RAW_FIELDS
from core.store.sharing import Actor
from core.store.statements import MIN_PREFIX
from core.store.store import Held, Stamps, Store
from core.store.tags import Change, Tags

__all__ = [
    "MIN_PREFIX",
    "PRUNED",
    "RAW_FIELDS",
    "STORE_NAME",
    "Accuracy",
    "Actor",
    "BackupFolder",
    "Change",
    "CheckResult",
    "Deletion",
    "Held",
    "ModelRecord",
    "Order",
    "PruneResult",
    "Query",
    "Stamps",
    "Store",
    "StudyRecord",
    "Tags",
    "Visibility",
    "home",
    "lost_by_restore",
    "restore",
]
