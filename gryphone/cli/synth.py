"""`gryphone synth`: write formulas by hand, build the synthesiser's files, look at its ink."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from gryphone.cli.options import AsJson
from gryphone.errors import ConfigError, DataError, need

if TYPE_CHECKING:
    import numpy as np

    from gryphone.ink import Ink
    from gryphone.synth.build import BuildReport
    from gryphone.synth.glyphs import GlyphBank

FORMATS = {"inkml": "inkml", "png": "png", "photo": "jpg"}  # and how their files end
PackedFolder = Annotated[
    Path, typer.Option(help="Folder with glyphs.npz and layouts-real.npz (see `synth build`).")
]


class _WriteByDefault(TyperGroup):
    """`gryphone synth FORMULAS` is `gryphone synth write FORMULAS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["write", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the `synth` commands to an app."""
    synth = typer.Typer(
        cls=_WriteByDefault,
        no_args_is_help=True,
        help="Write any formula by hand: `gryphone synth FORMULAS --out DIR`.",
    )
    synth.command()(write)
    synth.command()(build)
    synth.command()(grammar)
    synth.command()(preview)
    synth.command()(realism)
    synth.command()(photos)
    synth.command()(fonts)
    synth.command()(letters)
    synth.command()(pieces)
    app.add_typer(synth, name="synth")


def write(
    formulas: Annotated[Path, typer.Argument(help="LaTeX formulas, one on a line.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    packed: PackedFolder = Path("packed"),
    format_: Annotated[str, typer.Option("--format", help="inkml, png or photo.")] = "inkml",
    count: Annotated[int, typer.Option(min=1, help="Inks of each formula.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed writes the same inks.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Write formulas in the hands of real writers, with their labels in labels.tsv."""
    need("torch", "synth")
    import numpy as np

    from gryphone.synth.write import Pen
    from gryphone.synth.write import write as write_formulas

    if format_ not in FORMATS:
        raise ConfigError(f"--format {format_} is unknown; use {', '.join(FORMATS)}")
    lines = _lines(formulas)
    out.mkdir(parents=True, exist_ok=True)
    refused: list[tuple[int, str]] = []
    generator = np.random.default_rng(seed)
    labels: list[tuple[str, str]] = []
    for number, ink in write_formulas(lines, Pen.load(packed), refused, count=count, seed=seed):
        name = f"{number + 1:06d}-{len(labels):06d}"
        (out / f"{name}.{FORMATS[format_]}").write_bytes(_encoded(ink, format_, generator))
        labels.append((name, ink.label or ""))
    table = "".join(f"{name}\t{label}\n" for name, label in labels)
    (out / "labels.tsv").write_text(table, encoding="utf-8")
    lost = [(number + 1, lines[number], why) for number, why in refused]
    if as_json:
        rows = [{"line": n, "formula": formula, "reason": why} for n, formula, why in lost]
        typer.echo(json.dumps({"out": str(out), "inks": len(labels), "refused": rows}))
        return
    for line, formula, why in lost:
        typer.echo(f"{formulas}, line {line}: {formula}: {why}", err=True)
    typer.echo(f"{out}: {len(labels)} inks, {len(lost)} of {len(lines)} formulas refused")


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the formulas: {error}") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{path} holds no formula; write one on each line")
    return lines


def _encoded(ink: Ink, format_: str, generator: np.random.Generator) -> bytes:
    """One ink as the bytes of a file."""
    import io

    from gryphone.reading.inkml import to_inkml
    from gryphone.synth.paper import Paper, random_paper, render_page

    if format_ == "inkml":
        return to_inkml(ink).encode("utf-8")
    paper = Paper() if format_ == "png" else random_paper(generator)
    buffer = io.BytesIO()
    picture = render_page(ink.strokes, paper, generator)
    picture.save(buffer, "PNG" if format_ == "png" else "JPEG", quality=85)
    return buffer.getvalue()


def build(
    data: Annotated[Path, typer.Argument(help="The shared data folder.")],
    packed: Annotated[Path, typer.Argument(help="Folder with the packed training sets.")],
    count: Annotated[int, typer.Option(min=1, help="Formulas of papers to typeset.")] = 435_000,
    grammar: Annotated[int, typer.Option(min=0, help="Formulas of the grammar.")] = 120_000,
    as_json: AsJson = False,
) -> None:
    """Build the glyph bank, the layouts and the tokenizer. Needs TeX, and half an hour.

    Fewer formulas save the time of typesetting them, not that of the bank and of cleaning all.
    """

    def say(message: str) -> None:
        typer.echo(message, err=True)

    need("torch", "synth")
    say("reading ...")  # before imports that take seconds
    from gryphone.interrupt import Interrupts
    from gryphone.synth.build import build as build_files

    try:
        with Interrupts():
            report = build_files(data, packed, count=count, grammar=grammar, progress=say)
    except KeyboardInterrupt:
        say(f"gryphone: stopped; {packed} is as it was")
        raise typer.Exit(130) from None
    _print_report(report, as_json)


def grammar(
    packed: Annotated[Path, typer.Argument(help="Folder that `synth build` has filled.")],
    out: Annotated[Path, typer.Option(help="The layouts to write (.npz).")],
    count: Annotated[int, typer.Option(min=1, help="Formulas.")] = 30_000,
    plain: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of formulas that no context foretells (\\cos 0)."),
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Typeset further formulas of the grammar. Needs TeX, and a minute."""
    need("torch", "synth")
    from gryphone.synth.build import build_grammar

    _print_report(build_grammar(packed, out, count=count, plain=plain), as_json)


def _print_report(report: BuildReport, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"kept": report.kept, "dropped": dict(report.dropped)}))
        return
    for title, counts in (("kept", report.kept), ("dropped", dict(report.dropped))):
        for name, number in sorted(counts.items(), key=lambda item: -item[1]):
            typer.echo(f"{title}: {number:,} {name}")


def preview(
    packed: Annotated[Path, typer.Argument(help="Folder that `synth build` has filled.")],
    out: Annotated[Path, typer.Option(help="The picture to write (.png).")],
    count: Annotated[int, typer.Option(min=1, max=500, help="Samples of each kind.")] = 32,
    seed: Annotated[int, typer.Option(help="Which samples.")] = 0,
) -> None:
    """Draw real ink, TeX layouts and real layouts side by side."""
    need("torch", "synth")
    from gryphone.data.contact_sheet import contact_sheet

    columns = list(zip(*(list(part) for part in _previews(packed, count, seed)), strict=True))
    contact_sheet([sample for row in columns for sample in row], columns=6).save(out)
    typer.echo(f"{out}: {count} each of real ink, TeX layouts and real layouts, in turn")


def _previews(packed: Path, count: int, seed: int) -> Iterator[Iterator[Any]]:
    import numpy as np
    import torch

    from gryphone.data.packed import read_packed
    from gryphone.data.samples import Sample
    from gryphone.synth.build import packed_tokenizer
    from gryphone.synth.compose import Composer
    from gryphone.synth.glyphs import load_bank
    from gryphone.synth.ink_source import STYLES
    from gryphone.synth.layouts import load_layouts
    from gryphone.synth.write import to_inks

    real = read_packed(packed / "train.parquet")
    chosen = np.random.default_rng(seed).choice(len(real), count, replace=False)
    yield (Sample("real", "train", real.labels[i], ink=real.ink(i)) for i in chosen.tolist())
    tokenizer = packed_tokenizer(packed)
    bank = load_bank(packed / "glyphs.npz")
    for origin in ("tex", "real"):
        layouts = load_layouts(packed / f"layouts-{origin}.npz")
        composer = Composer(bank, layouts, tokenizer, style=STYLES[origin])
        generator = torch.Generator().manual_seed(seed)
        inks = to_inks(composer.compose_some([count], generator), bank.classes, tokenizer)
        yield (Sample(f"synth {origin}", origin, ink.label, ink=ink) for ink in inks)


def realism(
    packed: Annotated[Path, typer.Argument(help="Folder with packed sets and the built files.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="A trained recogniser, whose encoder looks (slow).")
    ] = None,
    origin: Annotated[str, typer.Option(help="Layouts of whom: tex or real.")] = "tex",
    inks: Annotated[int, typer.Option(min=10, help="Inks to learn from, and to judge.")] = 3000,
    as_json: AsJson = False,
) -> None:
    """Train a judge to tell synthetic from real ink; its accuracy should be low."""
    need("torch", "synth")
    from dataclasses import asdict

    from gryphone.data.packed import read_packed
    from gryphone.studies.realism import encoder_features, measure
    from gryphone.synth.ink_source import STYLES
    from gryphone.synth.write import Pen

    if origin not in STYLES:
        raise ConfigError(f"--origin {origin} is unknown; use {' or '.join(STYLES)}")
    pen = Pen.load(packed)
    valid = [packed / f"valid-{year}.parquet" for year in (2013, 2023)]
    found = measure(
        read_packed(packed / "train.parquet"),
        read_packed(valid),
        pen.bank,
        pen.boxes,
        STYLES[origin],
        encoder_features(checkpoint) if checkpoint is not None else None,
        origin=origin,
        limit=inks,
    )
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        typer.echo(
            f"{100 * found.accuracy:.1f} % of {2 * found.valid_inks} told apart "
            f"(real {100 * found.real_accuracy:.1f} %, synthetic "
            f"{100 * found.synthetic_accuracy:.1f} %; on training ink "
            f"{100 * found.train_accuracy:.1f} %)"
        )


def photos(
    packed: Annotated[Path, typer.Argument(help="Folder that `synth build` has filled.")],
    out: Annotated[Path, typer.Option(help="The packed store to write (.parquet).")],
    count: Annotated[int, typer.Option(min=1, help="Inks to photograph.")] = 25_000,
    seed: Annotated[int, typer.Option(help="Another seed, other inks.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    glyphs: Annotated[
        Path | None, typer.Option(help="Another glyph bank than PACKED/glyphs.npz.")
    ] = None,
    conditions: Annotated[
        float, typer.Option(min=0, max=1, help="Share of pictures with boxes, dust, fingertips.")
    ] = 0.0,
    struck: Annotated[
        float, typer.Option(min=0, max=1, help="Share of inks with something struck out.")
    ] = 0.0,
) -> None:
    """Write formulas on paper, photograph and trace them: training samples for scans."""
    need("torch", "synth")
    from gryphone.data.packing import write_packed
    from gryphone.synth.build import packed_tokenizer
    from gryphone.synth.photographs import photograph_inks
    from gryphone.synth.write import write_for_photos

    tokenizer = packed_tokenizer(packed)
    bank = packed / "glyphs.npz" if glyphs is None else glyphs
    inks = write_for_photos(packed, bank, tokenizer, count, seed, struck)
    report = write_packed(photograph_inks(inks, seed, workers, conditions), out)
    typer.echo(f"{out}: {report.packed} of {report.read} inks, {report.bytes:,} bytes")
    for name, why in report.left_out():
        typer.echo(f"{name}: {why}", err=True)


def fonts(
    bank: Annotated[Path, typer.Argument(help="A glyph bank (.npz) of `synth build`.")],
    folder: Annotated[Path, typer.Argument(help="Folder of .ttf, .otf and .woff files.")],
    out: Annotated[Path, typer.Option(help="The glyph bank to write (.npz).")],
) -> None:
    """Add the hands of handwriting fonts to a glyph bank (`make fonts` fetches some)."""
    from gryphone.synth.fonts import with_fonts
    from gryphone.synth.glyphs import load_bank

    old, dropped = load_bank(bank), Counter[str]()
    new = with_fonts(old, folder, dropped)
    _save_more(new, old, out, "fonts", dropped)


def letters(
    bank: Annotated[Path, typer.Argument(help="A glyph bank (.npz).")],
    folder: Annotated[Path, typer.Argument(help="Folder of letters by known writers (.jsonl.xz).")],
    out: Annotated[Path, typer.Option(help="The glyph bank to write (.npz).")],
) -> None:
    """Add the hands of people who wrote single letters, but for a tenth of them, to a bank."""
    from gryphone.synth.glyph_sources import with_letters
    from gryphone.synth.glyphs import load_bank

    old, dropped = load_bank(bank), Counter[str]()
    _save_more(with_letters(old, folder, dropped), old, out, "people", dropped)


def _save_more(
    new: GlyphBank, old: GlyphBank, out: Path, whose: str, dropped: Counter[str]
) -> None:
    new.save(out)
    hands = int(new.writers.max() - old.writers.max())
    typer.echo(f"{out}: {len(new) - len(old):,} glyphs by {hands} {whose} beside {len(old):,}")
    for reason, number in dropped.most_common():
        typer.echo(f"dropped: {number:,} {reason}", err=True)


def pieces(
    packed: Annotated[Path, typer.Argument(help="Folder that `synth build` has filled.")],
    count: Annotated[int, typer.Option(min=3, help="Beginnings of papers' formulas.")] = 60_000,
    rows: Annotated[int, typer.Option(min=1, help="Formulas side by side.")] = 30_000,
    seed: Annotated[int, typer.Option(help="Another seed, others.")] = 0,
) -> None:
    """Layouts of lone symbols, of beginnings and of long rows, for training. Needs TeX."""
    need("torch", "synth")
    from gryphone.synth.pieces import write_pieces

    for name, number in write_pieces(packed, count, rows, seed).items():
        typer.echo(f"{packed / f'layouts-{name}.npz'}: {number:,} layouts")
