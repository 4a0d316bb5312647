"""The OpenAPI document, built from the declarations of abilities and the settings."""

from typing import Any

from trelliswork import __version__
from trelliswork.serve.abilities import Ability, Named
from trelliswork.serve.settings import Settings

_TOKEN = {
    "anyOf": [
        {"type": ["string", "integer", "null"]},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "number"}},
    ]
}
_SENTENCE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/Token"}}]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["what", "expected", "got"],
            "properties": {name: {"type": "string"} for name in ("what", "expected", "got")},
        }
    },
}
_REFUSALS = {
    "400": "Input that cannot be read.",
    "401": "API key missing or wrong.",
    "404": "No such model or ability.",
    "413": "Too many bytes or words.",
    "415": "Another content type.",
    "429": "Too many requests wait; try again after the seconds in Retry-After.",
    "500": "Internal error.",
    "503": "The service is busy or ends; try again.",
    "504": "The model takes too long.",
}


def document(settings: Settings, named: Named, *, has_key: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a service."""
    paths: dict[str, Any] = {
        "/healthz": _get("Whether the service answers.", "application/json", {"type": "object"}, free=True),
        "/metrics": _get("Metrics of all workers for Prometheus.", "text/plain", {"type": "string"}),
        "/openapi.json": _get("This document.", "application/json", {"type": "object"}),
        "/v1/models": _get("The models, their abilities, and the sentences they read.", "application/json", {}),
    }
    able: dict[str, list[tuple[str, Ability]]] = {}
    for model, abilities in named.items():
        for ability in abilities.values():
            paths[f"/v1/{model}/{ability.name}"] = _post(model, ability, settings)
            able.setdefault(ability.name, []).append((model, ability))
    for name, owners in able.items():
        if len(owners) == 1:
            paths[f"/v1/{name}"] = _post("", owners[0][1], settings)
    text = (
        f"Requests have at most {settings.max_body:,} bytes and {settings.max_words:,} words, and are answered within "
        f"{settings.timeout:g} seconds."
    )
    components: dict[str, Any] = {"schemas": {"Token": _TOKEN, "Sentence": _SENTENCE, "Error": _ERROR}}
    result: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Trelliswork", "version": __version__, "description": text},
        "paths": dict(sorted(paths.items())),
        "components": components,
    }
    if has_key:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        result["security"] = [{"bearer": []}, {"key": []}]
    return result


def _get(summary: str, kind: str, schema: Any, *, free: bool = False) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "The answer.", "content": {kind: {"schema": schema}}}},
    }
    return {"get": operation | ({"security": []} if free else {})}


def _post(model: str, ability: Ability, settings: Settings) -> dict[str, Any]:
    sentence = {"$ref": "#/components/schemas/Sentence"}
    fields = {"sentences": {"type": "array", "minItems": 1, "items": sentence}}
    places: dict[str, Any] = {}
    either: dict[str, Any] = {"required": ["sentences"]}
    if not ability.sentences:
        fields, either = {}, {}
    else:
        fields["text"] = {"type": "string", "description": "Raw text, for models of words, instead of sentences."}
        either = {"oneOf": [{"required": ["sentences"]}, {"required": ["text"]}]}
        pair = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
        places = {"words": {"type": "array", "items": {"type": "string"}}, "places": {"type": "array", "items": pair}}
    answer = {"type": "object", "properties": dict(ability.schema or {}) | places}
    request = {
        "type": "object",
        **either,
        "additionalProperties": False,
        "properties": fields | {option.name: option.schema() for option in ability.options},
    }
    answers = {
        "type": "object",
        "required": ["model", "answers"],
        "properties": {"model": {"type": "string"}, "answers": {"type": "array", "items": answer}},
    }
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation = {
        "operationId": "_".join(filter(None, (ability.name, model))),
        "summary": ability.summary,
        "description": "NDJSON has one sentence per line, and options in the address; answers flow while lines arrive.",
        "parameters": [
            {"name": option.name, "in": "query", "schema": option.schema(), "description": "Of NDJSON requests."}
            for option in ability.options
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": request}, "application/x-ndjson": {"schema": sentence}},
        },
        "responses": {
            "200": {
                "description": "One answer per sentence, in order.",
                "content": {"application/json": {"schema": answers}, "application/x-ndjson": {"schema": answer}},
            },
            **{status: {"description": text, "content": refusal} for status, text in _REFUSALS.items()},
        },
    }
    return {"post": operation}
