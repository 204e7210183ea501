"""The paths of pages, and those that they had before."""

from __future__ import annotations

import pytest

from core.wire.files import ROOT
from dashboard import url_state


@pytest.mark.parametrize("path", ["tune", *url_state.OLD_PATHS.values()])
def test_the_script_of_a_page_is_found_by_its_path(path: str) -> None:
    assert (ROOT / "dashboard" / url_state.file_of(path)).is_file()


def test_an_old_path_is_no_path_of_another_page() -> None:
    assert not set(url_state.OLD_PATHS) & set(url_state.OLD_PATHS.values())
