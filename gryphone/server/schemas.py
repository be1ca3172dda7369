"""What goes over the wire, checked by pydantic and described by OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from gryphone.ink import LARGEST_COORDINATE, Stroke
from gryphone.recognition.question import AUTO, AUTO_STEPS, MOST_STEPS, MOST_VIEWS, Ask
from gryphone.recognition.result import Result
from gryphone.recognition.session import Live
from gryphone.server.problems import Problem, one_line
from gryphone.writers import TARGETS

# What one question may ask for. Work is steps times samples times views: what a small machine can
# do within the server's 30 seconds.
LIMITS = {
    "work": 1_200,
    "steps": MOST_STEPS,
    "n_best": 10,
    "samples": 16,
    "views": MOST_VIEWS,
    "locks": 150,
    "hint": 1_000,
    "allowed": 1_000,
    "alternatives": 20,
    "symbols": 150,
    "latex": 2_000,
    "lines": 12,
}
M = TypeVar("M", bound=BaseModel)
_NAME = 32  # characters of the longest symbol or modifier
WRITTEN = tuple(name for name, target in TARGETS.items() if target.quick)


def _few(value: Any) -> Any:
    """A complaint about each of a million entries takes a kilobyte, and a while."""
    most = LIMITS["allowed"]  # of all lists and mappings the longest
    if isinstance(value, (dict, list)) and len(value) > most:
        raise ValueError(f"{len(value)} entries; far too many")
    return value


def _steps(value: Any) -> Any:
    """One complaint, where a union has one for each of its kinds."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_STEPS
    if not whole and value not in (AUTO, None):
        raise ValueError(f"it must be a whole number from 1 to {MOST_STEPS}, or {AUTO!r}")
    return value


def _target(value: str | None) -> str | None:
    if value is not None and value not in WRITTEN:
        raise ValueError(f"it must be one of {', '.join(WRITTEN)}")
    return value


Name = Annotated[str, Field(min_length=1, max_length=_NAME)]
Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]
Entry = Annotated[str, Field(max_length=_NAME)]
Position = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,3})$")]
Row = Annotated[list[Entry], Field(min_length=1, max_length=2)]
# As `reading.strokes` reads them, which says what is wrong with bad ones.
_NUMBER = {"type": "number", "minimum": -LARGEST_COORDINATE, "maximum": LARGEST_COORDINATE}
_POINT = {
    "anyOf": [
        {"type": "array", "prefixItems": [_NUMBER, _NUMBER], "minItems": 2},
        {
            "type": "object",
            "properties": {"x": _NUMBER, "y": _NUMBER},
            "required": ["x", "y"],
        },
    ]
}
_COLUMN = {"type": "array", "items": _NUMBER}
_STROKE = {
    "anyOf": [
        {"type": "array", "items": _POINT},
        {
            "type": "object",
            "properties": {"x": _COLUMN, "y": _COLUMN},
            "required": ["x", "y"],
        },
    ]
}
Strokes = Annotated[Any, WithJsonSchema({"type": "array", "items": _STROKE, "minItems": 1})]

EXAMPLE: Any = [[[10, 10], [30, 50]], [[30, 10], [10, 50]], [[40, 2], [48, 2], [48, 10], [40, 14]]]


class StrictModel(BaseModel):
    """No silent conversions, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > len(cls.model_fields):
            unknown = next(key for key in value if key not in cls.model_fields)
            raise ValueError(f"{one_line(unknown, _NAME)} is no option, nor are others of these")
        return value


class Options(StrictModel):
    """How to recognise; everything is optional."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"steps": 10, "n_best": 3, "lock": {"0": "x"}}]}
    )

    steps: Annotated[Steps | Literal["auto"] | None, BeforeValidator(_steps)] = Field(
        default=None,
        description="Refinement steps; auto, the default without a deadline, takes one, and where "
        f"that leaves doubt up to {AUTO_STEPS} more.",
    )
    deadline_ms: float | None = Field(
        default=None, ge=1, description="As many steps as fit into this time."
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="The same seed gives the same answer.")
    n_best: int = Field(default=1, ge=1, le=LIMITS["n_best"], description="Whole answers to list.")
    samples: int | None = Field(
        default=None,
        ge=1,
        le=LIMITS["samples"],
        description="Independent decodes (1, or 5 for n_best).",
    )
    lock: Annotated[dict[Position, Name | Row], BeforeValidator(_few)] = Field(
        default_factory=dict,
        max_length=LIMITS["locks"],
        description="Position to the symbol, or [symbol, modifier], that must stand there; of a "
        "page, a stroke to the symbol that it must belong to.",
    )
    hint: str | None = Field(
        default=None,
        min_length=1,
        max_length=LIMITS["hint"],
        description="LaTeX with holes: ? is one symbol, ... any run.",
    )
    allowed: Annotated[list[Name] | None, BeforeValidator(_few)] = Field(
        default=None,
        min_length=1,
        max_length=LIMITS["allowed"],
        description="The only symbols to use.",
    )
    remask: Annotated[list[Annotated[int, Field(ge=0, lt=1000)]], BeforeValidator(_few)] = Field(
        default_factory=list,
        max_length=LIMITS["symbols"],
        description="Positions of `given` (or of a first answer) to solve again.",
    )
    given: Annotated[list[Row] | None, BeforeValidator(_few)] = Field(
        default=None,
        min_length=1,
        max_length=LIMITS["symbols"],
        description="An earlier answer: [symbol, modifier] of each of its symbols.",
    )
    alternatives: int = Field(
        default=5,
        ge=0,
        le=LIMITS["alternatives"],
        description="Other symbols to list for each position.",
    )
    views: int = Field(
        default=1,
        ge=1,
        le=LIMITS["views"],
        description="Looks at the ink whose predictions are averaged: slower, hardly better.",
    )
    boxes: bool = Field(default=True, description="Say where each symbol sits.")
    as_written: bool = Field(
        default=False, description="Say what the strokes of each letter are alone, too."
    )
    boxed: bool = Field(
        default=False, description="Write a box round a picture's formula as `\\boxed`."
    )
    unfinished: bool = Field(
        default=False, description="More will be written: trust what is there so far less."
    )
    ink: bool = Field(default=False, description="Send back the strokes that were read.")
    format: Annotated[str | None, AfterValidator(_target)] = Field(
        default=None,
        max_length=_NAME,
        json_schema_extra={"enum": [*WRITTEN, None]},
        description="A notation to write the answer in, too: `formatted`.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Options:
        if self.hint is not None and (self.remask or self.given is not None):
            raise ValueError("a hint and remask cannot be combined; give one of them")
        work = Ask(
            steps=self.steps, n_best=self.n_best, samples=self.samples, views=self.views
        ).work
        if self.deadline_ms is None and work > LIMITS["work"]:
            raise ValueError(f"steps × samples × views is {work}; at most {LIMITS['work']}")
        return self

    def ask(self, given: Result | None) -> Ask:
        """The question in the recogniser's own words."""
        return Ask(
            steps=self.steps,
            deadline_ms=self.deadline_ms,
            seed=self.seed,
            n_best=self.n_best,
            samples=self.samples,
            lock={int(place): value for place, value in self.lock.items()},
            hint=self.hint,
            remask=tuple(self.remask),
            given=given,
            allowed=self.allowed,
            alternatives=self.alternatives,
            boxes=self.boxes,
            views=self.views,
            as_written=self.as_written,
            boxed=self.boxed,
            unfinished=self.unfinished,
        )


class InkRequest(StrictModel):
    """Ink to read: strokes as a pen recorded them, y growing downwards, or an InkML document."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["strokes"]}, {"required": ["inkml"]}],
            "examples": [
                {"strokes": EXAMPLE, "options": {"steps": 10}},
                {"inkml": "<ink><trace>10 10, 30 50</trace><trace>30 10, 10 50</trace></ink>"},
            ],
        }
    )

    strokes: Strokes = Field(
        default=None,
        description="Each a list of points, [x, y], [x, y, time] or objects with x and y, or an "
        "object with lists of x and of y.",
    )
    inkml: str = Field(default="", min_length=1)
    options: Options = Field(default_factory=Options)

    @model_validator(mode="after")
    def _check_source(self) -> InkRequest:
        if ("strokes" in self.model_fields_set) == ("inkml" in self.model_fields_set):
            raise ValueError("give either strokes or inkml")
        return self


class KnownSymbol(StrictModel):
    """A symbol of the answer before."""

    symbol: Name
    modifier: Entry
    strokes: Annotated[list[Annotated[int, Field(ge=-1)]], BeforeValidator(_few)] = Field(
        description="Its strokes, as indices into those that are sent now; -1: it is gone."
    )
    locked: bool = Field(default=False, description="The user chose it.")


class LiveRequest(StrictModel):
    """Ink that is being written: all its strokes, and what was known of them before."""

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["strokes"],
            "examples": [
                {
                    "strokes": EXAMPLE,
                    "known": [{"symbol": "x", "modifier": "", "strokes": [0, 1]}],
                }
            ],
        }
    )

    strokes: Strokes = Field(default=None, description="All of them, the newest last.")
    known: Annotated[list[KnownSymbol], BeforeValidator(_few)] = Field(
        default_factory=list,
        max_length=LIMITS["symbols"],
        description="The symbols of the answer before; a stroke of none of them is new.",
    )
    gestures: bool = Field(default=True, description="Whether a new stroke may erase others.")
    final: bool = Field(default=False, description="The pen rests: read it as `recognize` does.")
    options: Options = Field(default_factory=Options)

    def live(self, strokes: Sequence[Stroke]) -> Live:
        """The session, as far as it was."""
        known = [each.model_dump() for each in self.known]
        return Live.of(strokes, known, gestures=self.gestures, final=self.final)


class Upload(BaseModel):
    """The form of an upload."""

    file: bytes = Field(
        json_schema_extra={"format": "binary"},
        description="PNG, JPEG, WebP, TIFF or BMP image, InkML, or strokes JSON.",
    )
    options: str = Field(default="{}", description="Options as JSON text.")


Latex = Annotated[str, Field(min_length=1, max_length=LIMITS["latex"])]


class ConvertRequest(StrictModel):
    """A formula to write in another notation."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"latex": r"\frac{1}{2}", "format": "typst"}]}
    )

    latex: Latex
    format: Annotated[str, Field(max_length=_NAME)] = Field(
        description="One of the `targets` of /v1/model."
    )


class ComputeRequest(StrictModel):
    """A formula to compute, or the lines of a working to compare."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lines": ["2x+4=6", "x=1"]}]})

    lines: Annotated[
        list[Latex], BeforeValidator(_few), Field(min_length=1, max_length=LIMITS["lines"])
    ]


class Converted(BaseModel):
    """A formula in another notation."""

    format: str
    text: str


class ComputeAnswer(BaseModel):
    """What one formula comes to, as LaTeX; or how each line is related to the next."""

    simplified: str | None = None
    value: str | None = Field(default=None, description="In decimals, where there are no letters.")
    holds: bool | None = Field(
        default=None, description="Whether an equation is true, whatever its letters."
    )
    solutions: dict[str, list[str]] = Field(default={}, description="Of an equation, by letter.")
    steps: list[Literal["equal", "not equal", "cannot tell"]] = Field(
        default=[], description="Each line against the next."
    )


class SymbolAnswer(BaseModel):
    """One symbol of the answer."""

    position: int
    symbol: str
    modifier: str
    confidence: float
    alternatives: list[tuple[str, float]]
    box: tuple[float, float, float, float] | None
    strokes: list[int] = Field(description="Indices into the strokes that were read.")
    span: tuple[int, int] = Field(description="[start, end) of its own glyph in `latex`.")
    written: tuple[str, float] | None = Field(
        description="What its strokes are alone, and how likely, where that was asked."
    )


class WeighedAnswer(BaseModel):
    """A whole answer and its weight."""

    latex: str
    weight: float


class InkAnswer(BaseModel):
    """The strokes that were read."""

    strokes: list[list[list[float]]]


class OneAnswer(BaseModel):
    """What is said of one formula."""

    file: str
    latex: str
    tokens: list[str]
    confidence: float
    symbols: list[SymbolAnswer]
    n_best: list[WeighedAnswer]
    steps: int
    seconds: float
    seed: int
    warnings: list[str]
    as_written: str | None = Field(
        description="LaTeX with each letter as its strokes are alone, where that was asked."
    )
    mathml: str | None
    formatted: str | None = Field(
        default=None,
        description="The answer in the `format` that was asked for; null where that has no words "
        "for it, and a warning says why.",
    )


class Answer(OneAnswer):
    """A recognised formula."""

    size: tuple[int, int] | None = Field(description="Width and height of an image, else null.")
    ink: InkAnswer | None = Field(
        default=None, description="Absent where the client sent the strokes."
    )


class LiveAnswer(OneAnswer):
    """What ink says while it is written; an empty formula where all of it was erased."""

    size: None
    ink: InkAnswer | None = None
    kept: list[int] = Field(description="Positions that are as they were known before.")
    erased: list[int] = Field(
        description="Strokes that a gesture took away, the gesture itself among them where it is "
        "no ink: indices into those that were sent."
    )
    gestures: list[Literal["scratched", "overwritten"]]
    final: bool


class FormulaAnswer(OneAnswer):
    """One formula of a page; its symbols' strokes are those of the page."""

    box: tuple[float, float, float, float]
    strokes: list[int] = Field(description="Indices into the strokes that were read.")


class AsideAnswer(BaseModel):
    """Ink that is no formula."""

    kind: Literal["text", "number", "crossed out", "margin line"]
    box: tuple[float, float, float, float]
    strokes: list[int]
    guess: str = Field(description="What it may say, or nothing.")


class PageAnswer(BaseModel):
    """The formulas of a page in reading order."""

    file: str
    latex: str = Field(description="The one formula, or all of them aligned.")
    aligned: str
    formulas: list[FormulaAnswer]
    asides: list[AsideAnswer]
    seconds: float
    warnings: list[str]
    size: tuple[int, int] | None = Field(description="Width and height of an image, else null.")
    ink: InkAnswer | None = Field(
        default=None, description="Absent where the client sent the strokes."
    )


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str
    message: str


class ErrorAnswer(BaseModel):
    """Every answer that is none."""

    error: ErrorDetail


class VocabularyAnswer(BaseModel):
    """Sizes of the vocabularies."""

    symbols: int
    modifiers: int


class FormatAnswer(BaseModel):
    """A kind of file."""

    name: str
    suffixes: list[str]
    types: list[str] = Field(description="Media types.")
    picture: bool
    read: bool = Field(description="Whether it can be uploaded.")
    unread: str | None = Field(description="If not, why and what to do.")


class ModelAnswer(BaseModel):
    """What is served, and what a request may ask for."""

    name: str
    version: str
    parameters: int
    vocabulary: VocabularyAnswer
    symbols: list[str]
    formats: list[FormatAnswer]
    targets: dict[str, str] = Field(description="What `format` may be, and its title.")
    compute: bool = Field(description="Whether /v1/compute answers.")
    max_steps: int
    limits: dict[str, int | float]


class Health(BaseModel):
    """Alive, or ready."""

    status: Literal["ok", "loading", "draining"]


def parsed(model: type[M], text: bytes, what: str = "the body") -> M:
    """The JSON of a request, or of a part of it, that a model describes."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise _problem(error, what) from None


def _problem(error: ValidationError, what: str) -> Problem:
    """The first few complaints in one line; never the values, which may be a whole ink."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return Problem(400, "bad_json", one_line(f"{what} is not JSON: {found[0]['msg']}"))
    lines = []
    for item in found[:3]:
        place = ".".join(str(part) for part in item["loc"][:6]) or what
        lines.append(f"{place}: {item['msg'].removeprefix('Value error, ')}")
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    if found[0]["loc"][:1] == ("inkml",):
        return Problem(400, "bad_ink", one_line("; ".join(lines) + more))
    return Problem(422, "bad_options", one_line("; ".join(lines) + more))
