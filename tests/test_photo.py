"""Images to ink: every kind of file, every kind of paper, every kind of damage."""

import io
import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from inkmaker import fraction, power, row
from paper import Page, draw_page
from PIL import Image, ImageDraw, ImageFilter, features
from scipy import ndimage
from skimage.filters import apply_hysteresis_threshold
from skimage.measure import approximate_polygon

from gryphone.data.datasets import read_dataset
from gryphone.data.images import read_boxes, trace_images
from gryphone.data.packed import read_packed
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample, Unreadable
from gryphone.errors import DataError, InkError
from gryphone.ink import Ink
from gryphone.photo.binarize import Levels, ink_mask, parts_of, pen_width, pieces, without_dust
from gryphone.photo.decode import open_picture
from gryphone.photo.image import read_image, trace_twice
from gryphone.photo.rules import _long_runs, without_dots, without_rules
from gryphone.photo.sheet import find_sheet
from gryphone.photo.skeleton import TOLERANCE, blurred, nearest, places_of, smooth, thinned
from gryphone.photo.trace import trace
from gryphone.raster import InkBatch, typical_strokes
from gryphone.reading.formats import readers
from gryphone.reading.inkml import to_inkml
from gryphone.reading.inputs import expand, read_input
from gryphone.recognition.encoding import redrawn
from gryphone.studies.invariance import on_desk
from gryphone.synth.photographs import photograph_inks, some_paper

SHARED = Path(__file__).parents[2] / "shared" / "data" / "offline"


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def dense(strokes: tuple[np.ndarray, ...]) -> np.ndarray:
    """Points every hundredth of the longer side, with the box moved to 0..1."""
    parts = []
    for stroke in strokes:
        steps = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(stroke, axis=0).T))])
        at = np.linspace(0, steps[-1], max(2, len(stroke) * 20))
        parts.append(np.stack([np.interp(at, steps, stroke[:, k]) for k in (0, 1)], 1))
    points = np.concatenate(parts)
    points = points - points.min(0)
    return points / points.max()


def distance(one: Ink, other: Ink) -> float:
    """The farthest that any ink of one lies from the other, in shares of the longer side."""
    a, b = dense(one.strokes), dense(other.strokes)
    gaps = np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1))
    return float(max(gaps.min(0).max(), gaps.min(1).max()))


INK = row("x+1=2")
PICTURE = draw_page(INK.strokes)


# --- what comes out -----------------------------------------------------------------------------


@pytest.mark.parametrize("ink", [row("x+1=2"), fraction(), power(), row("(n-1)")])
def test_traces_what_the_pen_wrote(ink: Ink) -> None:
    traced = read_image(draw_page(ink.strokes))
    assert distance(traced, ink) < 0.02
    assert abs(len(traced.strokes) - len(ink.strokes)) <= 1


def test_crossing_strokes_pass_straight_through() -> None:
    traced = read_image(draw_page(row("x+").strokes))
    assert len(traced.strokes) == 4
    sizes = [np.ptp(stroke, axis=0).max() for stroke in traced.strokes]
    assert min(sizes) > 0.7 * max(sizes)


def test_a_dot_survives_as_a_tiny_stroke() -> None:
    ink = row("1.2")
    traced = read_image(draw_page(ink.strokes, Page(pen=6)))
    sizes = sorted(float(np.ptp(stroke, axis=0).max()) for stroke in traced.strokes)
    assert len(sizes) == 3
    assert sizes[0] < 8 < 100 < sizes[1]


def test_strokes_are_in_pixels_of_the_image() -> None:
    left, top, right, bottom = read_image(PICTURE).bounds
    assert abs(left - 50) < 3 and abs(right - 750) < 3
    assert abs(top - 50) < 3 and abs(bottom - (PICTURE.height - 50)) < 4


def test_typical_stroke_is_that_of_the_pen() -> None:
    for ink in (row("x+1=2"), power(), row("(n-1)"), row("n+n=2n")):
        traced = read_image(draw_page(ink.strokes))
        pen, image = typical_strokes(InkBatch.from_strokes([ink.strokes, traced.strokes])).tolist()
        scale = (traced.bounds[2] - traced.bounds[0]) / (ink.bounds[2] - ink.bounds[0])
        assert abs(image / (pen * scale) - 1) < 0.15


def test_trace_of_plain_shapes() -> None:
    bar = np.zeros((20, 60), dtype=bool)
    bar[8:12, 5:55] = True
    (line,) = trace(bar, 4)
    assert np.ptp(line[:, 0]) > 44 and np.ptp(line[:, 1]) < 2
    y, x = np.mgrid[:50, :50]
    ring = abs(np.hypot(y - 25, x - 25) - 18) < 2.5
    (line,) = trace(ring, pen_width(ring))
    assert np.array_equal(line[0], line[-1])
    assert np.allclose(np.hypot(*(line - 25).T), 18, atol=1.2)
    assert 3.5 < pen_width(ring) < 6


# --- what is faster than the libraries gives what they give ---------------------------------------


def blots(seed: int, shape: tuple[int, int] = (90, 120)) -> np.ndarray:
    """Random soft blots, 0 to 1."""
    cloud = ndimage.gaussian_filter(np.random.default_rng(seed).random(shape), 1.5)
    return ((cloud - cloud.min()) / np.ptp(cloud)).astype(np.float32)


@pytest.mark.parametrize("order", ["C", "F"])
def test_ink_mask_is_hysteresis(order: Literal["C", "F"]) -> None:
    levels = Levels(ink=1.0, floor=0.47)
    dark = blots(0)
    limit = np.float32(levels.low)
    dark[::7, ::5], dark[::7, 1::5] = limit, np.nextafter(limit, np.float32(0))
    expected = apply_hysteresis_threshold(dark, levels.low, levels.high)
    assert 0 < expected.sum() < expected.size
    assert np.array_equal(ink_mask(np.asarray(dark, order=order), levels), expected)


@pytest.mark.parametrize("reach", [20, 23])
def test_long_runs_are_an_opening(reach: int) -> None:
    mask = np.random.default_rng(reach).random((200, 150)) < 0.96
    core = ndimage.minimum_filter1d(mask.view(np.uint8), reach, axis=1, mode="constant", cval=1)
    expected = ndimage.maximum_filter1d(core, reach, axis=1).astype(bool)
    assert 0 < expected.sum() < mask.sum()
    assert np.array_equal(_long_runs(mask, reach), expected)
    assert np.array_equal(_long_runs(np.asarray(mask, order="F"), reach), expected)


def test_radii_are_the_distance_to_the_paper() -> None:
    mask = np.pad(blots(1) > 0.5, 1)
    ink, distance = np.flatnonzero(mask), ndimage.distance_transform_edt(mask)
    places, radii = places_of(ink[:, None].tolist(), mask)
    assert np.array_equal(places, np.argwhere(mask)[:, ::-1]) and radii == distance[mask].tolist()
    (middle,), radii = places_of([ink.tolist()], mask)
    assert np.allclose(middle, np.mean(places, 0)) and radii == [distance.max()]
    blot = np.pad(np.ones((60, 80), dtype=bool), 1)
    assert places_of([[31 * 82 + 41], [82 + 1]], blot)[1] == [30.0, 1.0]


def soft(line: np.ndarray) -> np.ndarray:
    """One line under a Gaussian, its ends where they were."""
    closed = len(line) > 2 and np.array_equal(line[0], line[-1])
    if closed:
        found = ndimage.gaussian_filter1d(line[:-1], 1.0, axis=0, mode="wrap")
        return np.concatenate([found, found[:1]])
    found = ndimage.gaussian_filter1d(line, 1.0, axis=0, mode="nearest")
    found[0], found[-1] = line[0], line[-1]
    return found


def test_points_kept_are_those_of_douglas_and_peucker() -> None:
    rng = np.random.default_rng(2)
    lines = [np.cumsum(rng.normal(0.3, 1, (n, 2)), axis=0) for n in (1, 2, 3, 50, 400)]
    lines.append(np.concatenate([lines[3], lines[3][:1]]))
    for line, kept in zip(lines, smooth(lines, 1e-9), strict=True):
        assert np.array_equal(kept, approximate_polygon(soft(line), TOLERANCE))
    assert smooth([], 4.0) == []


# --- every kind of paper ------------------------------------------------------------------------

PAPERS = {
    "thin": Page(pen=1.5),
    "thick": Page(pen=14),
    "small": Page(length=170, pen=1.6, margin=8),
    "large": Page(length=3000, pen=18),
    "shadow": Page(shadow=0.6, noise=3),
    "noise": Page(noise=12),
    "faint pencil": Page(ink=(185, 185, 185), noise=2),
    "sepia": Page(paper=(226, 200, 160), ink=(90, 60, 30), noise=2),
    "blue on yellow": Page(paper=(250, 235, 120), ink=(40, 60, 170)),
    "blackboard": Page(paper=(30, 45, 40), ink=(230, 230, 225), noise=3),
    "dust": Page(specks=60),
    "ruled": Page(rules=40),
    "squared": Page(rules=36, grid=True, rule_ink=(150, 190, 220)),
    # So many that they pass for the paper's own noise, of which the darker half is ink.
    "fine squares": Page(rules=24, grid=True, rule_ink=(150, 150, 150), rotate=0.7),
    "squares": Page(rules=30, grid=True, rule_ink=(165, 165, 165), rotate=0.7),
    "dark rules": Page(rules=60, rule_ink=(60, 60, 60)),
    "dotted": Page(rules=30, dots=4, rule_ink=(110, 110, 120)),
    "dotted, askew": Page(rules=45, dots=4, rule_ink=(110, 110, 120), rotate=1.5),
    "no margin": Page(margin=3),
}


@pytest.mark.parametrize("name", PAPERS)
def test_paper(name: str) -> None:
    ink = row("x+1=2")
    page = PAPERS[name]
    traced = read_image(draw_page(ink.strokes, page))
    if page.rotate:  # the same without what is printed
        ink = read_image(draw_page(ink.strokes, replace(page, rules=0, dots=0)))
    assert distance(traced, ink) < (0.035 if page.rules else 0.025)


def test_a_line_that_comes_and_goes_is_still_printed() -> None:
    """Short pieces between long ones, and a line of short ones where another is to be expected."""
    dark = np.zeros((300, 600), dtype=np.float32)
    across = np.arange(600) % 42
    for number, height in enumerate(range(20, 290, 30)):
        broken = across % 14 < 8 if number == 4 else (across < 30) | ((across > 31) & (across < 40))
        dark[height, broken] = 0.25
    dark[60:195, 300:304] = 0.6
    rest = without_rules(dark, dark > 0.1, Levels(0.6, 0.1))
    assert (rest[60:195, 300:304] == 0.6).all()
    rest[60:195, 298:306] = 0
    assert not rest.any()


def test_dots_that_a_pen_made_stay() -> None:
    """Few of them, or many without order: none was printed."""
    generator = np.random.default_rng(0)
    mask = np.zeros((200, 600), dtype=bool)
    mask[50:150, 300:304] = True
    for x, y in generator.integers((0, 0), (590, 190), (40, 2)):
        mask[y : y + 3, x : x + 3] = True
    dark = mask.astype(np.float32)
    assert without_dots(dark, mask, Levels(1.0, 0.1)) is dark


def test_a_fraction_bar_across_the_page_is_no_ruled_line() -> None:
    ink = fraction()
    part = replace(ink, strokes=ink.strokes[:3], glyphs=())  # 1 over 2, the bar spans it all
    traced = read_image(draw_page(part.strokes, Page(margin=6, pen=8)))
    assert distance(traced, part) < 0.03


@pytest.mark.parametrize("level", [20, 90, 150])
@pytest.mark.parametrize("page", [Page(), Page(shadow=0.2, noise=3)])
def test_a_sheet_on_a_desk_has_no_edges(level: int, page: Page) -> None:
    ink = row("x+1=2")
    found = read_image(on_desk(draw_page(ink.strokes, page), level))
    turned = read_image(draw_page(ink.strokes, replace(page, rotate=4)))
    assert len(found.strokes) == len(turned.strokes)
    assert distance(found, turned) < 0.02


def test_the_sheet_may_reach_beyond_the_picture() -> None:
    desk = on_desk(PICTURE, 90)
    part = desk.crop((200, 80, desk.width, desk.height - 180))
    assert len(read_image(part).strokes) == len(read_image(PICTURE).strokes)


@pytest.mark.parametrize("lit", [0.35, 0.6])
def test_a_shadow_on_the_page_is_no_desk(lit: float) -> None:
    page = np.asarray(draw_page(INK.strokes, Page(margin=90)).convert("L")).astype(float)
    page[:, int(lit * page.shape[1]) :] *= 0.6
    shaded = Image.fromarray(ndimage.gaussian_filter(page, 2).astype(np.uint8))
    assert find_sheet(open_picture(shaded, "page")) is None


def test_a_light_wall_beside_a_board_is_no_sheet() -> None:
    board = draw_page(INK.strokes, Page(ink=(230, 230, 230), paper=(40, 40, 40)))
    wall = Image.new("RGB", (board.width, board.height + 200), (200, 200, 200))
    wall.paste(board, (0, 200))
    found = read_image(wall)
    assert len(found.strokes) == len(read_image(board).strokes)
    assert distance(found, read_image(board)) < 0.02


def test_rotated() -> None:
    straight, turned = read_image(PICTURE), read_image(draw_page(INK.strokes, Page(rotate=5)))
    assert len(straight.strokes) == len(turned.strokes)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.2, 2.0])
def test_scale_does_not_matter(factor: float) -> None:
    size = (round(PICTURE.width * factor), round(PICTURE.height * factor))
    resized = PICTURE.resize(size, Image.Resampling.LANCZOS)
    assert distance(read_image(resized), read_image(PICTURE)) < 0.012


# --- every kind of file -------------------------------------------------------------------------


@pytest.mark.parametrize("ending", readers(picture=True))
def test_formats(ending: str, tmp_path: Path) -> None:
    if ending == ".avif" and not features.check("avif"):
        pytest.skip("this Pillow knows no AVIF")
    path = tmp_path / f"note{ending}"
    PICTURE.save(path)
    assert expand([str(tmp_path)]) == [path]
    expected = read_image(PICTURE)
    assert distance(read_image(path), expected) < 0.01
    assert distance(read_image(path.read_bytes()), expected) < 0.01
    assert read_image(path).id == "note"


def _modes() -> dict[str, object]:
    grey = np.asarray(PICTURE.convert("L"))
    ink = Image.fromarray(255 - grey)
    clear = Image.merge("RGBA", [Image.new("L", ink.size, 0)] * 3 + [ink])
    white = Image.merge("RGBA", [Image.new("L", ink.size, 255)] * 3 + [ink])
    return {
        "L": PICTURE.convert("L"),
        "palette": PICTURE.convert("P"),
        "one bit": PICTURE.convert("1"),
        "CMYK": PICTURE.convert("CMYK"),
        "LAB": Image.merge("LAB", [PICTURE.convert("L"), *[Image.new("L", ink.size, 128)] * 2]),
        "16 bit": Image.fromarray(grey.astype(np.uint16) * 257),
        "32 bit": Image.fromarray(grey.astype(np.int32)),
        "float": Image.fromarray(grey.astype(np.float32)),
        "black on clear": clear,
        "white on clear": white,
        "grey array": grey,
        "colour array": np.asarray(PICTURE),
        "float array": grey / 255.0,
        "16-bit array": grey.astype(np.uint16) * 257,
        "bool array": grey > 128,
        "one channel": grey[:, :, None],
        "RGBA array": np.asarray(clear),
    }


@pytest.mark.parametrize("mode", _modes())
def test_pixel_formats(mode: str) -> None:
    assert distance(read_image(_modes()[mode]), read_image(PICTURE)) < 0.015  # type: ignore[arg-type]


def test_exif_orientation() -> None:
    turned = PICTURE.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    data = encoded(turned, "JPEG", exif=exif, quality=95)
    assert distance(read_image(data), read_image(PICTURE)) < 0.01


@pytest.mark.parametrize("kind", ["WEBP", "TIFF", "GIF"])
def test_the_first_page_is_read_and_that_is_said(kind: str) -> None:
    blank = Image.new("RGB", PICTURE.size, "white")
    data = encoded(PICTURE, kind, save_all=True, append_images=[blank], lossless=True)
    ink = read_image(data)
    assert distance(ink, read_image(PICTURE)) < 0.01
    assert ink.notes == ("page 1 of 2 was read; save the others as files of their own",)
    assert pickle.loads(pickle.dumps(ink)) == ink != replace(ink, notes=())
    assert to_inkml(ink) == to_inkml(replace(ink, notes=()))


def test_the_second_picture_of_a_camera_is_no_page() -> None:
    data = encoded(PICTURE, "MPO", save_all=True, append_images=[PICTURE])
    assert read_image(data).notes == ()


def test_a_damaged_page_behind_the_first() -> None:
    data = encoded(PICTURE, "GIF", save_all=True, append_images=[PICTURE.rotate(5)])
    cut = data[: data.rindex(b"\x21\xf9\x04") + 6]  # inside the second one's header
    with pytest.raises(IndexError):
        assert Image.open(io.BytesIO(cut)).n_frames
    assert distance(read_image(cut), read_image(PICTURE)) < 0.01


# --- every kind of damage -----------------------------------------------------------------------


def _bad() -> dict[str, tuple[object, str]]:
    noise = np.random.default_rng(0).normal(250, 1.5, (400, 600)).clip(0, 255).astype(np.uint8)
    jpeg = encoded(PICTURE, "JPEG")
    return {
        "white": (np.full((300, 400), 255, np.uint8), "blank"),
        "black": (np.zeros((300, 400), np.uint8), "blank"),
        "paper noise": (noise, "blank|no ink"),
        "clear": (Image.new("RGBA", (100, 100)), "blank"),
        "text": (b"x = 1\n" * 50, "not an image .* or GIF"),
        "empty file": (b"", "empty"),
        "cut short": (jpeg[: len(jpeg) // 3], "damaged"),
        "cut header": (encoded(PICTURE)[:30], "image"),
        "one pixel": (np.zeros((1, 1), np.uint8), "too small"),
        "shape": (np.zeros((2, 3, 4, 5)), "shape"),
        "channels": (np.zeros((20, 20, 7)), "shape"),
        "words": (np.array([["a", "b", "c"]] * 3), "numbers"),
        "no image": (3.5, "float"),
        "no file": (Path("nowhere.png"), "nowhere.png"),
    }


@pytest.mark.parametrize("case", _bad())
def test_damage_is_one_clear_error(case: str) -> None:
    source, words = _bad()[case]
    with pytest.raises(InkError, match=words) as caught:
        read_image(source)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("side", [10_100, 30_000])
def test_huge_images_are_refused_before_decoding(side: int) -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    began = time.perf_counter()
    with pytest.raises(InkError, match=rf"{side**2 / 1e6:.0f} megapixels, the limit is 64"):
        read_image(b"\x89PNG\r\n\x1a\n" + header + data, name="bomb.png")
    assert time.perf_counter() - began < 1


def test_noise_is_answered_in_time() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 800), dtype=np.uint8)
    began = time.perf_counter()
    try:
        assert read_image(noise).strokes
    except InkError as error:
        assert "image" in str(error)
    assert time.perf_counter() - began < 10


# --- data sets ----------------------------------------------------------------------------------


def test_pack_images(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    ink = row("x,1=2".replace(",", "+"), id="a")
    picture = draw_page(ink.strokes)
    picture.save(folder / "a.png")
    Image.new("L", (80, 80), 255).save(folder / "b.png")
    (folder / "labels.tsv").write_text("a\tx+1=2\nb\t1\n")
    scale = 700 / (ink.bounds[2] - ink.bounds[0])
    symbols = []
    for glyph in ink.glyphs:
        points = np.concatenate([ink.strokes[s] for s in glyph.strokes]) - ink.bounds[:2]
        low, high = points.min(0) * scale + 48, points.max(0) * scale + 52
        symbols.append([glyph.label, *low.tolist(), *high.tolist()])
    (tmp_path / "boxes.jsonl").write_text(json.dumps({"id": "a", "symbols": symbols}) + "\n")
    boxes = read_boxes(tmp_path / "boxes.jsonl")
    report = write_packed(trace_images(read_dataset(folder), boxes), tmp_path / "out.parquet")
    assert (report.read, report.packed, report.agreement) == (2, 1, {"same": 1})
    assert "blank" in report.unreadable[0][1]
    packed = read_packed(tmp_path / "out.parquet")
    assert packed.labels == ["x + 1 = 2"]
    assert packed.glyph_labels == ["x", "+", "1", "=", "2"]
    assert (packed.glyph >= 0).all()
    assert packed.glyph_positions.tolist() == [0, 1, 2, 3, 4]


def test_a_second_tracing_is_less_smoothed() -> None:
    page = draw_page(INK.strokes, Page(pen=6))
    once, (ink, retraced) = read_image(page), trace_twice(page)
    assert retraced and ink == once
    again = replace(ink, strokes=retraced)
    assert 0 < distance(again, once) < 0.02 and distance(again, INK) < 0.03
    twice = read_input(page)
    for read in (twice, pickle.loads(pickle.dumps(twice))):
        assert read.ink == once and len(read.retraced) == len(retraced)
        assert all(map(np.array_equal, read.retraced, retraced))
        assert not any(stroke.flags.writeable for stroke in read.retraced)


def test_a_pens_dot_and_a_lines_crumb_stay_and_a_speck_goes() -> None:
    dark = np.zeros((80, 200), dtype=np.float32)
    dark[20:60, 20:24] = dark[20:60, 60:64] = 0.8  # two lines of a pen four pixels wide
    dark[62:64, 21:23] = 0.4  # where the pen faded out
    dark[54:58, 80:84] = 0.8  # its dot
    dark[40:43, 90:93] = 0.4  # a speck
    levels = Levels(0.8, 0.05)
    parts = parts_of(ink_mask(dark, levels), dark)
    kept = parts.boxes[without_dust(parts, 4.0, levels)][:, :2].tolist()
    assert sorted(kept) == [[20, 20], [21, 62], [60, 20], [80, 54]]


def test_photographed_ink_keeps_its_symbols() -> None:
    ink = row("x+1=2", id="a")
    sample = Sample("a", "made", "x+1=2", ink=ink)
    for seed in range(4):
        (seen,) = photograph_inks([sample], seed)
        assert isinstance(seen, Sample) and seen.ink is not None
        assert [g.label for g in seen.ink.glyphs] == ["x", "+", "1", "=", "2"]
        assert seen.label == "x+1=2" and seen.ink != ink
    (again,) = photograph_inks([sample], 3)
    assert isinstance(again, Sample) and again.ink == seen.ink
    lost = Unreadable("b", "broken")
    assert list(photograph_inks([lost], 0)) == [lost]


def test_pages_are_scans_clean_or_photographs() -> None:
    papers = [some_paper(np.random.default_rng(seed)) for seed in range(600)]
    scans = sum(paper.jpeg > 0 for paper in papers) / 600
    clean = sum(paper.ink == 1 for paper in papers) / 600
    lit = sum(paper.light > 0 for paper in papers) / 600
    assert abs(scans - 0.5) < 0.06 and abs(clean - 0.2) < 0.05 and abs(lit - 0.3) < 0.06
    assert scans + clean + lit == pytest.approx(1)
    assert not any(paper.tilt for paper in papers)  # the boxes of symbols know of none


def test_boxes_say_where_they_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "boxes.jsonl"
    path.write_text('{"id": "1", "symbols": [["COMMA", 1, 2, 3, 4]]}\n')
    assert read_boxes(path) == {"1": [(",", 1, 2, 3, 4)]}
    path.write_text('{"id": "1", "symbols": [["x", 1]]}\n')
    with pytest.raises(DataError, match="line 1"):
        read_boxes(path)


@pytest.mark.skipif(not SHARED.exists(), reason="shared data is not here")
def test_real_scans() -> None:
    found = [
        s for s, _ in zip(read_dataset(SHARED / "valid-2023-scans.tar"), range(8), strict=False)
    ]
    for sample in found:
        ink = read_image(sample.image, name=sample.id)  # type: ignore[union-attr, arg-type]
        assert 1 <= len(ink.strokes) < 80


def test_pen_strokes_are_drawn_and_traced_again() -> None:
    turn = np.linspace(0, 2 * np.pi, 40)
    ring = np.stack([np.cos(turn), np.sin(turn)], 1) * 50 + 100
    bar = np.array([[180.0, 100.0], [300.0, 100.0]])
    dot = np.array([[330.0, 148.0]])
    (again,) = redrawn([(ring, bar, dot)])
    assert len(again) == 3
    scale = 48 / 100  # the ring is the usual stroke
    middles = [(stroke.min(0) + stroke.max(0)) / 2 for stroke in again]
    places = sorted(middles, key=lambda place: place[0])
    apart = [(place - places[0]) / scale for place in places[1:]]
    np.testing.assert_allclose(apart, [[140, 0], [230, 48]], atol=4)
    sand = np.random.default_rng(0).random((20_000, 1, 2)) * 100
    assert redrawn([(bar / 100, *sand)]) == [()]


# --- what SciPy and scikit-image have, and the core must do without -----------------------------


def blotches(seed: int, share: float = 0.4, soft: float = 2.0) -> np.ndarray:
    level = ndimage.gaussian_filter(np.random.default_rng(seed).random((60, 90)), soft)
    return np.pad(level > np.quantile(level, 1 - share), 1)


@pytest.mark.parametrize("seed", range(4))
def test_pieces_are_those_of_scipy(seed: int) -> None:
    for mask in (blotches(seed, soft=0.7), blotches(seed), np.zeros((3, 4), bool)):
        for diagonal in (False, True):
            labels, count = ndimage.label(mask, np.ones((3, 3)) if diagonal else None)
            at, owner, found = pieces(mask, diagonal)
            assert found == count and np.array_equal(owner, labels.ravel()[at])


@pytest.mark.parametrize("ends", [(100, 150, 800, 150), (450, 20, 450, 280)])
def test_a_blurred_line_is_ink(ends: tuple[int, int, int, int]) -> None:
    picture = Image.new("L", (900, 300), 255)
    ImageDraw.Draw(picture).line(ends, 0, 8)
    ink = read_image(picture.filter(ImageFilter.GaussianBlur(5)))
    assert len(ink.strokes) == 1


@pytest.mark.parametrize("deviation", [0.4, 1.3, 5.0])
def test_a_blur_is_that_of_scipy(deviation: float) -> None:
    grey = np.random.default_rng(0).random((700, 60)).astype(np.float32)
    for part in (grey, grey[:7, :3]):
        expected = ndimage.gaussian_filter(part, deviation)
        assert np.allclose(blurred(part, deviation), expected, rtol=0, atol=5e-7)


def test_the_nearest_pixel_is_found() -> None:
    mask = blotches(1)
    rows, columns = (each.ravel() for each in np.indices(mask.shape))
    row, column, far = nearest(mask, rows, columns)
    assert mask[row, column].all()
    assert np.allclose(np.hypot(row - rows, column - columns), far)
    assert np.allclose(far.reshape(mask.shape), ndimage.distance_transform_edt(~mask))


@pytest.mark.parametrize("seed", range(4))
def test_thin_lines_keep_every_piece_in_its_middle(seed: int) -> None:
    mask = blotches(seed)
    thin = thinned(mask)
    assert not (thin & ~mask).any()
    joined = np.ones((3, 3))
    labels, count = ndimage.label(mask, joined)
    assert ndimage.label(thin, joined)[1] == count == len(np.unique(labels[thin]))
    inside = ndimage.binary_erosion(thin, np.ones((2, 2)))
    assert inside.sum() < 0.02 * thin.sum()  # hardly anything is two pixels wide both ways


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_dots_and_slanted_lines_of_any_width_survive_thinning(width: int) -> None:
    line, dot = np.zeros((40, 40), bool), np.zeros((12, 12), bool)
    for i in range(20):
        line[5 + i : 5 + i + width, 5 + i] = True
    dot[4 : 4 + width, 4 : 4 + width] = True
    (stroke,) = trace(line, width)
    assert np.ptp(stroke, axis=0).min() >= 17 and len(stroke) <= 4
    assert 1 <= thinned(dot).sum() <= 4
