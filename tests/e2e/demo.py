"""Makes docs/page.webp from the real page: a formula is written, refined, and corrected.

python tests/e2e/demo.py [--out docs/page.webp]; needs Chromium (`make browser`).
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conftest import FLAGS, _address
from PIL import Image
from playwright.sync_api import sync_playwright
from writing import Desk, example

ROOT = Path(__file__).parents[2]
WINDOW = {"width": 1080, "height": 700}


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
        first.save(
            path, save_all=True, append_images=rest, duration=self.times, loop=0, quality=72, method=4
        )


def play(desk: Desk) -> Film:
    """The story: write, watch the boxes fill, pick a symbol, lock another."""
    film = Film(desk)
    film.shoot(700)
    for stroke in desk.placed(example("05-root"), 1.5):
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
    desk.find(".chip").nth(1).click()
    desk.page.wait_for_timeout(200)
    film.shoot(1500)
    desk.find(".others button").first.click()
    desk.page.wait_for_timeout(100)
    desk.settle()
    desk.page.wait_for_timeout(300)
    film.shoot(1900)
    return film


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "page.webp")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        log = Path(folder) / "log"
        with log.open("w") as file:
            command = [sys.executable, "-m", "gryphone", "serve", "--port", "0", "--no-open"]
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            url = _address(process, log)
            chromium = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=list(FLAGS)
            )
            desk = Desk.open(chromium, url, viewport=WINDOW)
            time.sleep(0.5)  # fonts
            film = play(desk)
            film.save(out)
            film.frames[-2].save(out.with_suffix(".png"), optimize=True)
        finally:
            process.terminate()
            process.wait(20)
    print(f"{out}: {len(film.frames)} frames, {out.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
