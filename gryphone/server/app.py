"""The application: routes, and what OpenAPI says about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from gryphone import __version__
from gryphone.errors import GryphoneError
from gryphone.reading import formats
from gryphone.recognition.recognizer import Recognizer
from gryphone.server.middleware import KEY_PROTECTED, RequestMiddleware
from gryphone.server.problems import Problem, problem_of
from gryphone.server.schemas import (
    LIMITS,
    Answer,
    ComputeAnswer,
    ComputeRequest,
    Converted,
    ConvertRequest,
    ErrorAnswer,
    Health,
    InkRequest,
    LiveAnswer,
    LiveRequest,
    ModelAnswer,
    Options,
    PageAnswer,
    Upload,
)
from gryphone.server.service import Service
from gryphone.server.settings import Settings
from gryphone.server.submission import FORM, JSON, describe_format
from gryphone.writers import TARGETS

STATIC = Path(__file__).parent / "static"
BODIES = (InkRequest, LiveRequest, Options, Upload, ConvertRequest, ComputeRequest)
REF = "#/components/schemas/{model}"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The ink or the body cannot be read."},
    401: {"model": ErrorAnswer, "description": "The API key is missing or wrong."},
    403: {"model": ErrorAnswer, "description": "A foreign page, or a foreign name of the server."},
    408: {"model": ErrorAnswer, "description": "The body came too slowly."},
    413: {"model": ErrorAnswer, "description": "The body is too large."},
    415: {"model": ErrorAnswer, "description": "Neither JSON nor a form."},
    422: {"model": ErrorAnswer, "description": "An option has an impossible value."},
    503: {"model": ErrorAnswer, "description": "Too busy, or loading; see Retry-After."},
    504: {"model": ErrorAnswer, "description": "Not answered in time."},
}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"$ref": REF.format(model="InkRequest")}},
            FORM: {
                "schema": {"$ref": REF.format(model="Upload")},
                "encoding": {"options": {"contentType": JSON}},
            },
        },
    }
}


def json_body(model: str) -> dict[str, Any]:
    """The body of a request that is JSON alone."""
    schema = {"schema": {"$ref": REF.format(model=model)}}
    return {"requestBody": {"required": True, "content": {JSON: schema}}}


STREAM = (
    "Server-sent events: `step` with number, total, latex, rows and masked positions, then "
    "`result` with the answer or `error` with an error."
)


def create_app(settings: Settings | None = None, recognizer: Recognizer | None = None) -> FastAPI:
    """The application; without a recogniser it loads the one that the settings name."""
    settings = settings or Settings()
    service = Service(settings, recognizer)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        while settings.workers > 1 and service.engine.loading:
            await asyncio.sleep(0.05)  # what others can answer is not accepted, to be refused here
        yield
        await service.close()

    app = FastAPI(
        title="GryphOne",
        version=__version__,
        summary="Handwritten mathematics to LaTeX",
        lifespan=lifespan,
        docs_url=None,  # they load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # it would send people to whatever Host they named
    )
    app.state.service = service
    _routes(app, service)
    _errors(app)
    _openapi(app, settings)
    app.add_middleware(GZipMiddleware, compresslevel=6)
    app.add_middleware(RequestMiddleware, service=service)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
            expose_headers=["Retry-After"],
            max_age=600,
        )
    return app


def _routes(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/recognize",
        responses={200: {"model": Answer}, **ERRORS},
        openapi_extra=BODY,
        summary="Read a formula",
        tags=["recognition"],
    )
    async def recognize(request: Request) -> Response:
        return Response(await service.recognize(request), media_type=JSON)

    @app.post(
        "/v1/page",
        responses={200: {"model": PageAnswer}, **ERRORS},
        openapi_extra=BODY,
        summary="Read all formulas of a page",
        tags=["recognition"],
    )
    async def page(request: Request) -> Response:
        return Response(await service.recognize(request, "page"), media_type=JSON)

    @app.post(
        "/v1/live",
        responses={200: {"model": LiveAnswer}, **ERRORS},
        openapi_extra=json_body("LiveRequest"),
        summary="Follow ink that is being written",
        tags=["recognition"],
    )
    async def live(request: Request) -> Response:
        return Response(await service.recognize(request, "live"), media_type=JSON)

    @app.post(
        "/v1/recognize/stream",
        responses={200: {"content": {"text/event-stream": {}}, "description": STREAM}, **ERRORS},
        response_class=Response,
        openapi_extra=BODY,
        summary="Read a formula and watch",
        tags=["recognition"],
    )
    async def stream(request: Request) -> Response:
        return await service.stream(request)

    @app.post(
        "/v1/convert",
        response_model=Converted,
        responses=ERRORS,
        openapi_extra=json_body("ConvertRequest"),
        summary="Write a formula in another notation",
        tags=["formulas"],
    )
    async def convert(request: Request) -> dict[str, str]:
        return await service.convert(request)

    @app.post(
        "/v1/compute",
        response_model=ComputeAnswer,
        responses={404: {"model": ErrorAnswer, "description": "It is not turned on."}, **ERRORS},
        openapi_extra=json_body("ComputeRequest"),
        summary="What a formula comes to, or how the lines of a working are related",
        tags=["formulas"],
    )
    async def compute(request: Request) -> dict[str, Any]:
        return await service.compute(request)

    @app.get(
        "/v1/model",
        response_model=ModelAnswer,
        responses={k: ERRORS[k] for k in (401, 503)},
        summary="What is served",
        tags=["about"],
    )
    async def model() -> dict[str, Any]:
        return describe_model(service)

    @app.get("/healthz", response_model=Health, summary="The process lives", tags=["about"])
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        response_model=Health,
        responses={503: {"model": Health, "description": "Not yet, or not any more."}},
        summary="The model is loaded, and the server is not about to stop",
        tags=["about"],
    )
    async def readyz() -> Response:
        state = "ok" if service.engine.ready.is_set() else "loading"
        state = "draining" if service.draining else state
        return JSONResponse({"status": state}, 200 if state == "ok" else 503)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, 401: ERRORS[401]},
        summary="Prometheus metrics",
        tags=["about"],
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        page = STATIC / "index.html"
        if not page.is_file():
            raise Problem(404, "no_page", "this installation has no page; see /openapi.json")
        return FileResponse(page)

    if STATIC.is_dir():
        app.mount("/static", StaticFiles(directory=STATIC), name="static")


def describe_model(service: Service) -> dict[str, Any]:
    """What is served, and what a request may ask for."""
    recognizer, settings = service.recognizer, service.settings
    tokenizer = recognizer.tokenizer
    sizes = [len(vocabulary.names) for vocabulary in tokenizer.vocabularies]
    return {
        "name": "gryphone",
        "version": __version__,
        "parameters": recognizer.checkpoint.parameters,
        "vocabulary": {"symbols": sizes[0], "modifiers": sizes[1] if len(sizes) > 1 else 0},
        "symbols": list(tokenizer.vocabularies[0].names),
        "formats": [describe_format(row) for row in formats.FORMATS],
        "targets": {name: TARGETS[name].title for name in service.targets},
        "compute": settings.compute > 0,
        "max_steps": LIMITS["steps"],
        "limits": LIMITS
        | {
            "bytes": settings.body,
            "megapixels": settings.megapixels,
            "strokes": settings.strokes,
            "points": settings.points,
            "path": settings.path,
            "patches": settings.patches,
            "page": settings.page,
            "deadline_ms": 1000 * settings.seconds,
            "queue": settings.queue,
            "batch": service.engine.batch,
            "streams": settings.streams,
            "seconds": settings.seconds,
        },
    }


def _errors(app: FastAPI) -> None:
    async def problem(_: Request, error: Exception) -> Response:
        found = problem_of(error)
        return JSONResponse(found.body(), found.status, found.headers)

    async def http(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = str(error.detail) if isinstance(error, HTTPException) else "failed"
        code = {404: "not_found", 405: "bad_method"}.get(status, "bad_request")
        found = Problem(status, code, detail)
        headers = dict(getattr(error, "headers", None) or {})
        return JSONResponse(found.body(), status, headers)

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(GryphoneError, problem)
    app.add_exception_handler(HTTPException, http)


def _openapi(app: FastAPI, settings: Settings) -> None:
    """FastAPI does not see bodies that are read by hand: their schemas are added here."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes
            )
            models: list[Any] = [(m, "validation") for m in BODIES]
            _, extra = models_json_schema(models, ref_template=REF)
            parts = found.setdefault("components", {})
            parts.setdefault("schemas", {}).update(extra["$defs"])
            deadline = parts["schemas"]["Options"]["properties"]["deadline_ms"]
            deadline["anyOf"][0]["maximum"] = 1000 * settings.seconds
            if settings.api_key is not None:
                parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                for path, methods in found["paths"].items():
                    for operation in methods.values() if path.startswith(KEY_PROTECTED) else ():
                        operation["security"] = [{"key": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]
