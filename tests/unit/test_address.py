"""The paths of pages, and the folders of their views that are called otherwise."""

from __future__ import annotations

import pytest

from core.wire.files import ROOT
from dashboard import address


@pytest.mark.parametrize("path", ["tune", *address.FOLDERS])
def test_the_script_of_a_page_is_found_by_its_path(path: str) -> None:
    assert (ROOT / "dashboard" / address.file_of(path)).is_file()


def test_an_old_path_is_no_path_of_another_page() -> None:
    assert not set(address.FOLDERS) & set(address.FOLDERS.values())
