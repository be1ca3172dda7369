"""The page in a real browser; without one these tests are skipped, but never in CI."""

from collections.abc import Iterator

import pytest
from chromium import FLAGS, NEEDED, PROGRAM, served


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """One Chromium for all tests."""
    if PROGRAM is None:
        reason = "no Chromium on this machine; `make browser` installs Debian's"
        pytest.fail(reason) if NEEDED else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(browser: object) -> Iterator[str]:
    """The address of a real server."""
    with served() as address:
        yield address
