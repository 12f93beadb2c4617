"""Every documented refusal, and the error that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from loom.content.blocks import TextBlock
from loom.errors import (
    CapabilityMissing,
    ContextOverflow,
    MediaRefused,
    NotAuthorised,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    TooManyBytes,
    Unavailable,
)
from loom.models import Model
from loom.prompt import Prompt, ShownMedia, ShownMessage, ShownResult
from loom.wire import anthropic, gemini, ollama, openai_chat, openai_responses
from wire.prompts import (
    CHART,
    CLAUDE,
    DEEPSEEK,
    GEMINI,
    GPT,
    GPT_CHAT,
    MAP,
    OLLAMA,
    PHOTO,
    REPORT,
    VLLM,
    ref,
    rich,
    two_calls,
)


def claude(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


ANTHROPIC = [
    (401, claude("authentication_error", "invalid x-api-key"), NotAuthorised),
    (403, claude("permission_error", "Your API key does not have permission"), NotAuthorised),
    (404, claude("not_found_error", "model: claude-none"), Refused),
    (413, claude("request_too_large", "Request exceeds the maximum size"), TooManyBytes),
    (429, claude("rate_limit_error", "This request would exceed your rate limit"), RateLimited),
    (500, claude("api_error", "Internal server error"), Unavailable),
    (504, claude("timeout_error", "Request timed out"), Unavailable),
    (529, claude("overloaded_error", "Overloaded"), Overloaded),
    (None, claude("overloaded_error", "Overloaded"), Overloaded),
    (None, claude("api_error", "Internal server error"), Unavailable),
    (400, claude("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"), ContextOverflow),
    (
        400,
        claude("invalid_request_error", "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"),
        ContextOverflow,
    ),
    (
        400,
        claude("invalid_request_error", "image exceeds 10 MB maximum: 11534336 bytes > 10485760 bytes"),
        MediaRefused,
    ),
    (
        400,
        claude(
            "invalid_request_error", "image dimensions exceed max allowed size for many-image requests: 2000 pixels"
        ),
        MediaRefused,
    ),
    (400, claude("invalid_request_error", "Could not process image"), MediaRefused),
    (
        400,
        claude(
            "invalid_request_error",
            "specified using the image/jpeg media type, but the image appears to be a image/png image",
        ),
        MediaRefused,
    ),
    (400, claude("invalid_request_error", "The PDF specified was not valid."), MediaRefused),
    (400, claude("invalid_request_error", "The PDF specified is password protected."), MediaRefused),
    (400, claude("invalid_request_error", "messages: text content blocks must be non-empty"), Refused),
    (400, claude("invalid_request_error", "messages.1.content.0: Invalid signature in thinking block"), Refused),
    (400, claude("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), Refused),
]


def openai(
    code: str | None, message: str, kind: str = "invalid_request_error", param: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


IMAGE_CODES = [
    "invalid_image",
    "invalid_image_format",
    "invalid_base64_image",
    "invalid_image_url",
    "image_too_large",
    "image_too_small",
    "image_parse_error",
    "image_content_policy_violation",
    "invalid_image_mode",
    "image_file_too_large",
    "unsupported_image_media_type",
    "empty_image_file",
    "failed_to_download_image",
    "image_file_not_found",
]

OPENAI = [
    (401, openai("invalid_api_key", "Incorrect API key provided: sk-x"), NotAuthorised),
    (404, openai("model_not_found", "The model `gpt-9` does not exist or you do not have access to it."), Refused),
    (
        429,
        openai(
            "rate_limit_exceeded",
            "Rate limit reached for gpt-6-astra on tokens per min (TPM): Limit 30000, Used 29000",
            "tokens",
        ),
        RateLimited,
    ),
    (
        429,
        openai(
            "rate_limit_exceeded",
            "Request too large for gpt-6-astra on tokens per min (TPM): Limit 30000, Requested 48000.",
            "tokens",
        ),
        ContextOverflow,
    ),
    (
        429,
        openai("insufficient_quota", "You exceeded your current quota, please check your plan and billing details."),
        Refused,
    ),
    (400, openai("context_length_exceeded", "This model's maximum context length is 128000 tokens."), ContextOverflow),
    (400, openai(None, "Your input exceeds the context window of this model."), ContextOverflow),
    (413, openai(None, "Request Entity Too Large"), TooManyBytes),
    (
        400,
        openai(None, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
        Refused,
    ),
    (
        400,
        openai(
            None,
            "An assistant message with 'tool_calls' must be followed by tool messages",
        ),
        Refused,
    ),
    (400, openai(None, "Missing required parameter: input[1].summary", param="input[1].summary"), Refused),
    (400, openai("invalid_encrypted_content", "The encrypted content could not be verified."), Refused),
    (500, openai(None, "The server had an error while processing your request", "server_error"), Unavailable),
    (503, openai(None, "The engine is currently overloaded, please try again later", "server_error"), Overloaded),
    (None, {"type": "error", "code": "server_error", "message": "boom", "param": None}, Unavailable),
    (None, {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}, RateLimited),
    *((400, openai(code, "The image is wrong."), MediaRefused) for code in IMAGE_CODES),
    *(
        (None, {"status": "failed", "error": {"code": code, "message": "It is wrong."}}, MediaRefused)
        for code in IMAGE_CODES
    ),
]

COMPATIBLE = [
    (
        500,
        {
            "error": {
                "code": 500,
                "message": "image input is not supported - hint: you may need to provide the mmproj",
                "type": "server_error",
            }
        },
        CapabilityMissing,
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
            }
        },
        ContextOverflow,
    ),
    (400, {"error": {"code": 400, "message": "failed to decode image", "type": "invalid_request_error"}}, MediaRefused),
    (
        400,
        {"object": "error", "message": "Qwen3-8B is not a multimodal model", "type": "BadRequestError", "code": 400},
        CapabilityMissing,
    ),
    (
        400,
        {
            "error": {
                "message": "At most 0 image(s) may be provided in one prompt.",
                "type": "BadRequestError",
                "code": 400,
            }
        },
        CapabilityMissing,
    ),
    (
        400,
        {
            "error": {
                "message": "At most 4 image(s) may be provided in one prompt.",
                "type": "BadRequestError",
                "code": 400,
            }
        },
        Refused,
    ),
    (400, {"error": {"message": "cannot identify image file <_io.BytesIO>", "code": 400}}, MediaRefused),
    (
        422,
        {
            "object": "error",
            "message": {"detail": [{"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}]},
        },
        Refused,
    ),
    (422, {"detail": [{"loc": ["body", "n"], "msg": "Extra inputs are not permitted"}]}, Refused),
    (404, {"error": {"message": "No endpoints found that support image input", "code": 404}}, CapabilityMissing),
    (
        400,
        {"error": {"message": "Failed to deserialize: messages[0]: unknown variant `image_url`, expected `text`"}},
        CapabilityMissing,
    ),
    (
        400,
        {"error": {"message": "The reasoning_content in the thinking mode must be passed back to the API."}},
        Refused,
    ),
    (
        402,
        {"error": {"message": "Insufficient Balance", "type": "unknown_error", "code": "invalid_request_error"}},
        Refused,
    ),
    (
        413,
        {
            "error": {
                "message": "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
        ContextOverflow,
    ),
    (503, {"error": {"message": "Server overloaded", "type": "server_error"}}, Overloaded),
    (502, {"error": "<html>Bad gateway</html>"}, Unavailable),
    (None, {"error": {"message": "slot was lost", "code": 500}}, Unavailable),
    (None, {"error": {"message": "wait", "code": 429}}, RateLimited),
    (400, {}, Refused),
]


def google(code: int, status: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status}}


GOOGLE = [
    (400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), NotAuthorised),
    (403, google(403, "PERMISSION_DENIED", "The caller does not have permission"), NotAuthorised),
    (404, google(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta"), Refused),
    (400, google(400, "INVALID_ARGUMENT", "Unable to process input image. Please retry or report"), MediaRefused),
    (400, google(400, "INVALID_ARGUMENT", "The document has no pages."), MediaRefused),
    (
        400,
        google(400, "INVALID_ARGUMENT", "Multimodal function responses are not supported for this model"),
        CapabilityMissing,
    ),
    (
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        ),
        ContextOverflow,
    ),
    (400, google(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 104857600 bytes."), TooManyBytes),
    (
        400,
        google(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts."),
        Refused,
    ),
    (
        400,
        google(400, "INVALID_ARGUMENT", "* GenerateContentRequest.contents: contents.parts must not be empty."),
        Refused,
    ),
    (
        429,
        google(
            429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."
        ),
        RateLimited,
    ),
    (500, google(500, "INTERNAL", "An internal error has occurred."), Unavailable),
    (503, google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), Overloaded),
    (None, google(503, "UNAVAILABLE", "The service is currently unavailable."), Unavailable),
    (None, google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted"), RateLimited),
    (504, google(504, "DEADLINE_EXCEEDED", "Deadline expired"), Unavailable),
]

LOCAL = [
    (404, {"error": 'model "qwen9" not found, try pulling it first'}, Refused),
    (400, {"error": '"llama3" does not support thinking'}, CapabilityMissing),
    (400, {"error": "registry.ollama.ai/library/gemma:2b does not support tools"}, CapabilityMissing),
    (500, {"error": "image input is not supported - hint: you may need to provide the mmproj"}, CapabilityMissing),
    (500, {"error": "Failed to load image or audio file"}, MediaRefused),
    (
        400,
        {"error": '{"error":{"code":400,"message":"request (8889 tokens) exceeds the available context size"}}'},
        ContextOverflow,
    ),
    (400, {"error": "the prompt is longer than the context length currently available to the model"}, ContextOverflow),
    (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}, Unavailable),
    (None, {"error": "an error was encountered while running the model: unexpected EOF"}, Unavailable),
]

TABLE = [
    *((anthropic, CLAUDE, *row) for row in ANTHROPIC),
    *((openai_chat, GPT_CHAT, *row) for row in OPENAI),
    *((openai_responses, GPT, *row) for row in OPENAI),
    *((openai_chat, VLLM, *row) for row in COMPATIBLE),
    *((openai_chat, DEEPSEEK, *row) for row in COMPATIBLE),
    *((gemini, GEMINI, *row) for row in GOOGLE),
    *((ollama, OLLAMA, *row) for row in LOCAL),
]


@pytest.mark.parametrize(("wire", "model", "status", "body", "expected"), TABLE)
def test_each_documented_refusal_becomes_its_error(
    wire: Any, model: Model, status: int | None, body: dict[str, Any], expected: type[ProviderError]
) -> None:
    error = wire.fault(status, body, model)
    assert type(error) is expected, error
    assert error.provider == model.provider
    assert error.message.startswith(f"{model.reference}: ")
    assert status is None or error.status == status


def test_words_inside_words_are_read() -> None:
    error = ollama.fault(400, LOCAL[5][1], OLLAMA)
    assert error.message == "ollama/qwen3-vl:8b: request (8889 tokens) exceeds the available context size"


def test_gemini_says_how_long_to_wait() -> None:
    body = google(429, "RESOURCE_EXHAUSTED", "slow down")
    body["error"]["details"] = [{"@type": "Help"}, {"@type": "RetryInfo", "retryDelay": "34.07s"}]
    assert gemini.fault(429, body, GEMINI).retry_after == 34.07
    body["error"]["details"] = [{"retryDelay": "soon"}]
    assert gemini.fault(429, body, GEMINI).retry_after is None


NESTED = ShownResult(call_id="call_chart", name="look", blocks=(TextBlock("Two:"), CHART, MAP))
SAID = (
    ShownMessage("user", (TextBlock("Look."), PHOTO, REPORT)),
    ShownMessage("assistant", two_calls()[:1]),
    ShownMessage("tool", (NESTED,)),
)


@pytest.mark.parametrize(
    ("wire", "model", "place", "blamed"),
    [
        (anthropic, CLAUDE, "messages.0.content.1.image.source.base64.data: image exceeds 10 MB", PHOTO),
        (anthropic, CLAUDE, "messages.0.content.2.document.source.base64.media_type: wrong", REPORT),
        (anthropic, CLAUDE, "messages.2.content.0.tool_result.content.2.image.source: wrong", MAP),
        (openai_responses, GPT, "Invalid 'input[0].content[1].image_url'. Expected a valid URL", PHOTO),
        (openai_responses, GPT, "Invalid 'input[2].output[1].image_url'.", CHART),
        (openai_chat, GPT_CHAT, "Invalid value at messages[0].content[2].file.file_data", REPORT),
        (gemini, GEMINI, "Invalid value at 'contents[0].parts[1].inline_data.data' (TYPE_BYTES)", PHOTO),
    ],
)
def test_the_picture_that_is_meant_is_named(wire: Any, model: Model, place: str, blamed: Any) -> None:
    sent = wire.encode(Prompt(model=model, messages=SAID))
    error = wire.fault(400, {"error": {"message": place}}, model, sent)
    assert isinstance(error, MediaRefused)
    assert error.digests == (blamed.ref.digest,)


def test_a_place_in_a_field_of_its_own_counts_too() -> None:
    sent = openai_responses.encode(Prompt(model=GPT, messages=SAID))
    body = openai("invalid_value", "Invalid image data.", param="input[0].content[1].image_url")
    assert openai_responses.fault(400, body, GPT, sent).digests == (PHOTO.ref.digest,)


@pytest.mark.parametrize(
    "place", ["messages.0", "messages.0.content.0", "messages.9.content.1", "messages.0.content.99", "messages: wrong"]
)
def test_a_place_without_a_picture_blames_none(place: str) -> None:
    sent = anthropic.encode(Prompt(model=CLAUDE, messages=SAID))
    error = anthropic.fault(400, claude("invalid_request_error", f"{place}: wrong"), CLAUDE, sent)
    assert (type(error), error.digests) == (Refused, ())


def test_the_only_picture_is_the_one_that_could_not_be_read() -> None:
    one = Prompt(model=CLAUDE, messages=(ShownMessage("user", (TextBlock("Look."), PHOTO, PHOTO)),))
    body = claude("invalid_request_error", "Could not process image")
    assert anthropic.fault(400, body, CLAUDE, anthropic.encode(one)).digests == (PHOTO.ref.digest,)
    many = rich(CLAUDE, None, two_calls(), hoisted=False)
    assert anthropic.fault(400, body, CLAUDE, anthropic.encode(many)).digests == ()


UPLOADED = ShownMedia(kind="document", ref=ref(b"a report", "application/pdf", file_id="file_1"))
OLD = (ShownMessage("user", (TextBlock("Look."), UPLOADED)), ShownMessage("assistant", (TextBlock("I did."),)))
BY_FILE_ID = (*OLD, ShownMessage("user", (TextBlock("And this?"), PHOTO)))


@pytest.mark.parametrize(
    ("wire", "model", "place"),
    [
        (anthropic, CLAUDE, "messages.0.content.1.document.source: The PDF specified was not valid."),
        (anthropic, CLAUDE, "messages.0.content.1.document.source.file.file_id: wrong"),
        (openai_responses, GPT, "Invalid 'input[0].content[1].file_id'. Invalid PDF"),
        (openai_chat, GPT_CHAT, "Invalid PDF at messages[0].content[1].file.file_id"),
        (gemini, GEMINI, "Invalid PDF at 'contents[0].parts[1].file_data.file_uri'"),
    ],
)
def test_a_refused_upload_is_blamed_and_not_the_picture_whose_bytes_were_sent(
    wire: Any, model: Model, place: str
) -> None:
    sent = wire.encode(Prompt(model=model, messages=BY_FILE_ID))
    error = wire.fault(400, {"error": {"message": place}}, model, sent)
    assert (type(error), error.digests) == (MediaRefused, (UPLOADED.ref.digest,))


def test_where_an_upload_goes_along_the_only_picture_is_not_blamed_for_it() -> None:
    body = claude("invalid_request_error", "Could not process image")
    sent = anthropic.encode(Prompt(model=CLAUDE, messages=BY_FILE_ID))
    assert anthropic.fault(400, body, CLAUDE, sent).digests == ()
    sent = anthropic.encode(Prompt(model=CLAUDE, messages=(*OLD, ShownMessage("user", (TextBlock("Well?"),)))))
    assert anthropic.fault(400, body, CLAUDE, sent).digests == (UPLOADED.ref.digest,)


def test_a_place_of_very_many_digits_blames_none() -> None:
    sent = anthropic.encode(Prompt(model=CLAUDE, messages=SAID))
    body = claude("invalid_request_error", f"messages.{'1' * 5_000}.content.1: wrong")
    assert anthropic.fault(400, body, CLAUDE, sent).digests == ()


@pytest.mark.parametrize("wire", [anthropic, openai_chat, openai_responses, gemini, ollama])
@pytest.mark.parametrize(
    "odd", [None, 5, "", "{", [], [7], {}, {"message": 5}, {"message": None, "details": [3]}, {"code": "x"}]
)
def test_any_explanation_at_all_is_an_error_of_the_provider(wire: Any, odd: Any) -> None:
    for body in (
        {"error": odd},
        {"detail": odd},
        {"message": odd},
        {"error": {"details": odd, "message": odd, "param": odd}},
    ):
        for status in (None, 400, 418, 500):
            assert isinstance(wire.fault(status, body, CLAUDE, {"messages": odd}), ProviderError)


def test_a_long_explanation_is_shortened_and_stays_on_one_line() -> None:
    error = openai_chat.fault(500, {"error": {"message": "line\n\n" * 1000}}, VLLM)
    assert len(error.message) < 700
    assert "\n" not in error.message
