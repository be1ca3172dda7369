"""Makes docs/page.webp from the real page: a formula is written, refined, and corrected.

python tests/e2e/demo.py [--out docs/page.webp]; needs Chromium (`make browser`).
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from chromium import FLAGS, PROGRAM, served
from PIL import Image
from playwright.sync_api import sync_playwright
from writing import Desk, Stroke, example

ROOT = Path(__file__).parents[2]
WINDOW = {"width": 1180, "height": 760}


def chi_squared() -> list[Stroke]:
    """A sum with a chi that may as well be an x, put together from the bundled drawings."""
    parts = (
        (example("01-power", 3), 0),
        (example("13-quadratic", 3)[2:4], 75),
        (example("09-series", 3), 125),
    )
    strokes: list[Stroke] = []
    for part, left in parts:
        shift = left - min(x for stroke in part for x, _ in stroke)
        strokes += [[(x + shift, y) for x, y in stroke] for stroke in part]
    return strokes


class Film:
    """Frames and how long each is shown, in milliseconds."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.frames: list[Image.Image] = []
        self.times: list[int] = []

    def shoot(self, milliseconds: int) -> None:
        picture = self.desk.page.screenshot(type="png")
        self.frames.append(Image.open(io.BytesIO(picture)).convert("RGB"))
        self.times.append(milliseconds)

    def save(self, path: Path) -> None:
        first, *rest = self.frames
        settings = {"loop": 0, "quality": 72, "method": 4}
        first.save(path, save_all=True, append_images=rest, duration=self.times, **settings)


def play(desk: Desk) -> Film:
    """The story: write, watch the boxes fill, pick the tinted symbol, lock what was meant."""
    film = Film(desk)
    desk.page.wait_for_timeout(500)  # fonts
    film.shoot(700)
    for stroke in desk.placed(chi_squared(), 2):
        desk.write([stroke])
        film.shoot(150)
    desk.settle()
    desk.press("r")  # the refinement again, slow enough for one picture a step
    for step in range(1, 11):
        desk.page.wait_for_selector(f"#status:has-text('Step {step} of')")
        film.shoot(260)
    desk.settle()
    desk.page.wait_for_timeout(200)
    film.shoot(1300)
    desk.find(".chip").first.click()
    desk.page.wait_for_timeout(200)
    film.shoot(1500)
    desk.find(r'.others button[data-symbol="\\chi"]').click()
    desk.page.wait_for_timeout(100)
    desk.settle()
    desk.press("Escape")
    desk.page.mouse.move(5, 5)
    desk.page.wait_for_timeout(300)
    film.shoot(2200)
    return film


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "page.webp")
    out = parser.parse_args().out
    with served() as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        desk = Desk.open(chromium, url, viewport=WINDOW, reduced_motion="no-preference")
        film = play(desk)
        film.save(out)
    print(f"{out}: {len(film.frames)} frames, {out.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
