"""The reader of lone symbols: how it draws, that it computes what was trained, who hears it."""

import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from inkmaker import power

import gryphone
from gryphone.checkpoint import WEIGHTS
from gryphone.data.packing import write_packed
from gryphone.data.samples import Sample
from gryphone.decoding import LOWEST, Decoded, Looks
from gryphone.errors import CheckpointError, ConfigError, DataError
from gryphone.ink import Stroke
from gryphone.recognition.lone import (
    FILE,
    SIDE,
    LoneReader,
    described,
    evenly_drawn,
    graph_of,
    pictures,
    size_of,
    stored,
)
from gryphone.recognition.opinion import Weighed, decided
from gryphone.recognition.recognizer import Recognizer
from gryphone.release.lone import (
    Glyphs,
    LoneNetwork,
    in_drawings,
    in_letters,
    in_store,
    train,
    write,
)
from gryphone.tokens import PAD_ID

DASH = np.array([[0.0, 0.0], [10.0, 0.0]])
MIDDLE = np.array([[1.0, 4.0], [11.0, 4.0]])
BAR = np.array([[0.0, 0.0], [0.0, 7.0]])


def drawn(*strokes: Stroke) -> np.ndarray:
    points, pen = evenly_drawn(strokes)
    return pictures(points[None], pen[None])[0]


def test_a_picture_says_how_much_line_there_is_and_its_direction() -> None:
    ink, cos, sin = drawn(DASH)
    assert (ink[SIDE // 2].max(), ink[0].max()) == (pytest.approx(ink.max()), 0.0)
    first = 0.06  # where a stroke begins is a point, and has no direction
    assert np.allclose(cos, ink, atol=first) and np.allclose(sin, 0, atol=1e-5)
    ink, cos, _ = drawn(BAR)
    assert np.allclose(cos, -ink, atol=first) and cos.min() < -0.4
    ink, cos, sin = drawn(np.array([[0.0, 0.0], [5.0, 5.0]]))
    assert np.allclose(sin, ink, atol=first) and np.allclose(cos, 0, atol=1e-5)
    dot = drawn(np.array([[3.0, 3.0]]))
    assert dot[0].sum() > 1 and not dot[1:].any()  # ink without a direction


def test_a_picture_knows_neither_place_nor_size_nor_the_way_of_the_pen() -> None:
    seven = np.array([[0.0, 0.0], [6.0, 0.0], [2.0, 9.0]])
    first = drawn(seven, MIDDLE)
    assert np.allclose(drawn(*((s * 30 - 7) for s in (seven, MIDDLE))), first, atol=1e-3)
    assert np.allclose(drawn(seven[::-1], MIDDLE), first, atol=0.1)
    assert not drawn(DASH, DASH + np.array([0.0, 10.0]))[
        0, SIDE // 2
    ].any()  # no line where the pen was up


def test_sizes_compare_with_a_usual_stroke() -> None:
    assert size_of([DASH, BAR], 5.0) == pytest.approx(np.log(2))
    assert np.isnan(size_of([DASH], float("nan")))
    assert described(np.array([0.5, float("nan"), -9.0])).tolist() == [[0.5, 1], [0, 0], [-4.0, 1]]


def few_glyphs() -> Glyphs:
    """Bars, dashes and corners by several hands."""
    shapes = {"-": [DASH], "1": [BAR], "L": [np.array([[0.0, 0.0], [0.0, 9.0], [6.0, 9.0]])]}
    found = [
        (name, [s * (1 + 0.1 * n) for s in strokes], float("nan"))
        for name, strokes in shapes.items()
        for n in range(4)
    ]
    return Glyphs.of(found, ("-", "1", "x"))


def test_symbols_come_from_formulas_letters_and_drawings(tmp_path: Path) -> None:
    write_packed([Sample("a", "test", power().label, ink=power())], tmp_path / "a.parquet")
    found = list(in_store(tmp_path / "a.parquet"))
    assert [label for label, *_ in found] == [g.label for g in power().glyphs]
    assert all(np.isfinite(size) for *_, size in found)
    letters = tmp_path / "letters"
    letters.mkdir()
    letter = {"char": "k", "writer": "w-1", "strokes": [[[0, 0], [0, 500]], [[90, 0], [0, 250]]]}
    with lzma.open(letters / "some.jsonl.xz", "wt") as file:
        file.write(json.dumps(letter))
    [(label, strokes, size)] = in_letters(letters)
    assert (label, len(strokes)) == ("k", 2) and np.isnan(size)
    with lzma.open(tmp_path / "drawn.jsonl.xz", "wt") as file:
        file.write(json.dumps({"symbol": "\\nabla", "strokes": [[[0, 0], [5, 9], [9, 0]]]}))
    [(label, strokes, size)] = in_drawings(tmp_path / "drawn.jsonl.xz")
    assert (label, len(strokes)) == ("\\nabla", 1) and np.isnan(size)


def test_what_was_trained_is_what_is_read(tmp_path: Path) -> None:
    glyphs = few_glyphs()
    assert glyphs.names == ("-", "1") and len(glyphs.labels) == 8  # of the symbols that are known
    assert np.isnan(glyphs.sizes).all()
    network = train(glyphs, minutes=1, batch=24, steps=60)
    write(tmp_path / FILE, network, glyphs.names)
    reader = LoneReader.load(tmp_path)
    assert reader is not None and reader.symbols == ("-", "1")
    asked = [[DASH * 3], [BAR + 5]]
    said = reader.log_probs(asked)
    assert [reader.symbols[k] for k in said.argmax(1)] == ["-", "1"]
    assert np.allclose(np.exp(said).sum(1), 1, atol=1e-4)
    assert np.array_equal(reader.log_probs(asked[1:2])[0], said[1])  # alone as among others


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_is_said() -> None:
    with pytest.raises(DataError, match="/dev/full: cannot be written: No space left"):
        write(Path("/dev/full"), LoneNetwork(2), ("a", "b"))


def test_the_graph_computes_what_the_network_does() -> None:
    torch.manual_seed(1)
    network = LoneNetwork(5)
    with torch.no_grad():  # far from what norms begin with
        for name, value in network.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif name.endswith(("running_mean", "norm.bias")):
                value.normal_(0, 0.2)
    network.eval()
    reader = LoneReader(graph_of(stored(network.arrays()), 5).to_bytes({}), "abcde")
    from gryphone.recognition.onnx_backend import session_of

    shown = pictures(*(np.stack([x]) for x in evenly_drawn([DASH, BAR + 2])))
    sizes = described(np.array([0.3]))
    found = session_of(reader.graph, 1).run(None, {"pictures": shown, "size": sizes})[0]
    with torch.no_grad():
        wanted = network(torch.from_numpy(shown), torch.from_numpy(sizes)).log_softmax(1).numpy()
    assert np.abs(found - wanted).max() < 0.05  # eight bits


def test_a_damaged_reader_is_said(tmp_path: Path) -> None:
    whole = (WEIGHTS / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        LoneReader.load(tmp_path)
    from safetensors.numpy import save_file

    save_file({"first.bias": np.zeros(3, np.float32)}, tmp_path / FILE)
    with pytest.raises(CheckpointError, match=r"lone\.safetensors holds no reader"):
        LoneReader.load(tmp_path)
    arrays = stored(LoneNetwork(3).arrays())
    for names, lost in (('["a", "b"]', ""), ('["a", "b", "c"]', "down.1.weight"), ("3", "")):
        kept = {name: array for name, array in arrays.items() if name != lost}
        save_file(kept, tmp_path / FILE, {"symbols": names})
        with pytest.raises(CheckpointError, match="holds no reader of lone symbols"):
            LoneReader.load(tmp_path)
    save_file(arrays, tmp_path / FILE, {"symbols": '["a", "b", "c"]'})
    found = LoneReader.load(tmp_path)
    assert found is not None and found.symbols == ("a", "b", "c")


def test_without_its_own_a_checkpoint_has_the_packages_reader(tmp_path: Path) -> None:
    own = LoneReader.load(tmp_path)
    assert own is not None and own.symbols == LoneReader.load(WEIGHTS).symbols  # type: ignore[union-attr]


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(DataError, match="no symbol of the vocabulary"):
        Glyphs.of([("x", [DASH], 0.0)], ("y",))


class Said(Looks):
    """Looks at two places, of which the second was never hidden."""

    def __init__(self, *rows: Sequence[float]) -> None:
        with np.errstate(divide="ignore"):
            self.rows = np.log(np.array(rows))

    def log_probs(self, answer: np.ndarray) -> np.ndarray:
        return np.array([self.rows[0, answer[0, 0]], 0.0])[: len(answer)]

    def symbols(self, places: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        raise AssertionError("asks the weighed ones")

    def distributions(self) -> list[np.ndarray]:
        return [self.rows, np.zeros((2, 1))]


def test_log_probs_are_added_and_normalised() -> None:
    said = Said((0.5, 0.3, 0.2), (0.1, 0.1, 0.8))
    looks = Weighed(said, {0: np.log(np.array([0.2, 0.6, 0.2]))})
    product = np.array([0.1, 0.18, 0.04]) / 0.32
    assert np.allclose(np.exp(looks.distributions()[0][0]), product)
    assert np.allclose(looks.distributions()[0][1], said.rows[1])
    ids, odds = looks.symbols(2, 2)
    assert ids.tolist() == [[1, 0], [2, 0]] and np.allclose(np.exp(odds[0]), product[[1, 0]])
    answer = np.array([[1, 0], [2, 0]])
    assert np.allclose(looks.log_probs(answer), [np.log(product[1]), 0.0])


def test_what_a_constraint_forbids_stays_forbidden() -> None:
    said = Said((0.5, 0.5, 0.0), (0.1, 0.1, 0.8))
    looks = Weighed(said, {0: np.log(np.array([0.1, 0.1, 0.8]))})
    assert np.allclose(np.exp(looks.distributions()[0][0]), [0.5, 0.5, 0])
    assert looks.log_probs(np.array([[2, 0]]))[0] <= LOWEST  # and is not certain


class Stubborn:
    """A reader that has one answer; it notes what it is asked."""

    def __init__(self, symbols: Sequence[str], odds: Sequence[float]) -> None:
        self.symbols, self.odds = symbols, np.log(np.array(odds))
        self.asked: list[tuple[int, float]] = []

    def log_probs(
        self, symbols: Sequence[Sequence[Stroke]], usual: float = float("nan")
    ) -> np.ndarray:
        self.asked += [(len(strokes), usual) for strokes in symbols]
        return np.tile(self.odds, (len(symbols), 1))


CROSS = [[[0, 0], [10, 10]], [[10, 0], [0, 10]]]


@pytest.fixture(scope="module")
def alone() -> Recognizer:
    """The package's weights without their reader."""
    return replace(gryphone.load(), lone=None)


def with_reader(alone: Recognizer, *odds: float) -> tuple[Recognizer, Stubborn]:
    """One who knows the cross by its name, and by the next best one."""
    [symbol] = alone.recognize(CROSS).symbols
    reader = Stubborn((symbol.symbol, symbol.alternatives[0][0]), odds)
    return replace(alone, lone=reader), reader  # type: ignore[arg-type]


def test_a_symbol_alone_has_two_readers(alone: Recognizer) -> None:
    first = alone.recognize(CROSS)
    other = first.symbols[0].alternatives[0][0]
    for odds, wanted in (((1 - 1e-6, 1e-6), first.latex), ((1e-9, 1 - 1e-9), other)):
        heard, reader = with_reader(alone, *odds)
        found = heard.recognize(CROSS, n_best=3)
        assert found.latex == wanted == found.n_best[0].latex and len(found.n_best) == 3
        assert reader.asked[0][0] == 2 and np.isnan(reader.asked[0][1])
    unsaid = with_reader(alone, 0.5, 0.5)[0].recognize(CROSS)
    agreed = with_reader(alone, 1 - 1e-6, 1e-6)[0].recognize(CROSS)
    assert unsaid.latex == first.latex and unsaid.confidence == pytest.approx(first.confidence)
    assert agreed.confidence >= unsaid.confidence
    assert agreed.symbols[0].confidence == agreed.confidence  # one symbol is the answer


def test_the_best_well_formed_symbol_is_taken(alone: Recognizer) -> None:
    vocabulary = alone.tokenizer.vocabularies[0]
    reader = Stubborn(("-", "=", r"\sqrt"), (0.1, 0.2, 0.7))
    network = replace(alone, lone=reader)  # type: ignore[arg-type]
    odds = np.full((1, len(vocabulary)), 1e-6)
    odds[0, [vocabulary.id(n) for n in ("-", "=", r"\sqrt")]] = 0.1, 0.3, 0.2
    odds[0, PAD_ID] = 0.4  # an answer has a symbol there, whatever was said of its end
    ids = np.array([[vocabulary.id("-"), 2]])
    first = Decoded(ids, np.zeros((1, 2)), 1, Said(*odds))
    found = decided(network, first, Weighed(first.looks, {0: np.zeros(len(vocabulary))}))
    assert found.ids[0, 0] == vocabulary.id("=")  # a root alone is no formula
    assert found.log_probs[0, 0] == pytest.approx(np.log(odds[0] / odds.sum())[found.ids[0, 0]])


def test_a_deadline_leaves_no_time_for_a_second_reader(alone: Recognizer) -> None:
    heard, reader = with_reader(alone, 1e-9, 1 - 1e-9)
    assert heard.recognize(CROSS, deadline_ms=1e6).latex == alone.recognize(CROSS).latex
    assert reader.asked == []


def test_many_decodes_ask_once(alone: Recognizer) -> None:
    heard, reader = with_reader(alone, 0.5, 0.5)
    heard.recognize(CROSS, n_best=6)
    assert len(reader.asked) == 1


def test_what_is_known_is_not_asked_about(alone: Recognizer) -> None:
    vocabulary = alone.tokenizer.vocabularies[0].tokens
    reader = Stubborn(vocabulary, [1 / len(vocabulary)] * len(vocabulary))
    network = replace(alone, lone=reader)  # type: ignore[arg-type]
    first = alone.recognize(power())
    name = first.symbols[0].symbol
    found = network.recognize(power(), unfinished=True, lock={0: name})
    assert found.symbols[0].symbol == name
    again = network.recognize(power(), unfinished=True, given=found, remask=[1])
    assert again.symbols[0].symbol == name
    before = len(reader.asked)
    everything = {s.position: s.symbol for s in found.symbols}
    network.recognize(power(), unfinished=True, lock=everything)
    assert len(reader.asked) == before
    with pytest.raises(ConfigError, match="plain decoding adds nothing"):
        network.recognize(power(), unfinished=True, plain=True, steps=1)


def test_who_is_not_asked_changes_nothing(alone: Recognizer) -> None:
    name = alone.recognize(CROSS).latex
    heard, reader = with_reader(alone, 1e-9, 1 - 1e-9)
    assert heard.recognize(CROSS, plain=True, steps=2).latex == name
    assert heard.recognize(CROSS, lock={0: name}).latex == name
    assert heard.recognize(CROSS, allowed=f"{name}0").latex == name
    assert heard.recognize(power()).latex == alone.recognize(power()).latex
    assert reader.asked == []
    # About what the reader does not know it has no opinion.
    deaf = Stubborn(("p", "q"), (1e-9, 1 - 1e-9))
    assert replace(alone, lone=deaf).recognize(CROSS).latex == name  # type: ignore[arg-type]
    assert deaf.asked == []


def test_while_one_writes_doubtful_symbols_have_two_readers(alone: Recognizer) -> None:
    vocabulary = alone.tokenizer.vocabularies[0].tokens
    reader = Stubborn(vocabulary, [1 / len(vocabulary)] * len(vocabulary))
    session = replace(alone, lone=reader).session()  # type: ignore[arg-type]
    for stroke in power().strokes:
        session.add(stroke)
    seen = len(reader.asked)
    assert any(usual > 0 for _, usual in reader.asked)  # within a formula, too
    session.finish()
    assert len(reader.asked) == seen  # a finished formula is the network's alone
