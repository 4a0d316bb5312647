"""The OpenAPI document, built from the declarations of abilities and the settings."""

from collections import Counter
from typing import Any

from trelliswork import __version__
from trelliswork.serve.abilities import NUMBER, STRING, Ability, Named, array, record
from trelliswork.serve.settings import Settings

_TOKEN = {
    "anyOf": [
        {"type": ["string", "integer", "null"]},
        array(STRING),
        {"type": "object", "additionalProperties": NUMBER},
    ]
}
_SENTENCE = {"anyOf": [STRING, array({"$ref": "#/components/schemas/Token"})]}
_PARTS = ("what", "expected", "got")
_ERROR = record(["error"], error=record(_PARTS, **dict.fromkeys(_PARTS, STRING)))
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
    able = Counter(name for abilities in named.values() for name in abilities)
    for model, abilities in named.items():
        for name, ability in abilities.items():
            paths[f"/v1/{model}/{name}"] = _post(model, ability)
            if able[name] == 1:
                paths[f"/v1/{name}"] = _post("", ability)
    sizes = f"Requests have at most {settings.max_body:,} bytes and {settings.max_words:,} words"
    text = f"{sizes}, and are answered within {settings.timeout:g} seconds."
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
    responses = {"200": {"description": "The answer.", "content": {kind: {"schema": schema}}}}
    return {"get": {"summary": summary, "responses": responses} | ({"security": []} if free else {})}


def _post(model: str, ability: Ability) -> dict[str, Any]:
    sentence = {"$ref": "#/components/schemas/Sentence"}
    options = {option.name: option.schema() for option in ability.options}
    request, places = record(**options) | {"additionalProperties": False}, {}
    if ability.sentences:
        text = {"anyOf": [STRING, array(STRING)], "description": "Raw text, for models of words, instead of sentences."}
        request["properties"] = {"sentences": array(sentence, minItems=1), "text": text, **options}
        request["oneOf"] = [{"required": ["sentences"]}, {"required": ["text"]}]
        pair = array({"type": "integer"}, minItems=2, maxItems=2)
        places = {"words": array(STRING), "places": array(pair)}
    answer = record(**dict(ability.schema or {}), **places)
    answers = record(["model", "answers"], model=STRING, answers=array(answer))
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    given = {"application/json": {"schema": request}, "application/x-ndjson": {"schema": sentence}}
    returned = {"application/json": {"schema": answers}, "application/x-ndjson": {"schema": answer}}
    operation = {
        "operationId": "_".join(filter(None, (ability.name, model))),
        "summary": ability.summary,
        "description": "NDJSON has one sentence per line, and options in the address; answers flow while lines arrive.",
        "parameters": [
            {"name": name, "in": "query", "schema": schema, "description": "Of NDJSON requests."}
            for name, schema in options.items()
        ],
        "requestBody": {"required": True, "content": given},
        "responses": {
            "200": {"description": "One answer per sentence, in order.", "content": returned},
            **{status: {"description": text, "content": refusal} for status, text in _REFUSALS.items()},
        },
    }
    return {"post": operation}
