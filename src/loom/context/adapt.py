"""Adapt: what this model cannot take becomes what it can. One block and one wish in, what is shown and its cost out."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from loom.content.blocks import (
    AudioBlock,
    Block,
    Detail,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    page_label,
    page_range,
)
from loom.content.media import Media
from loom.content.messages import text_of
from loom.content.recipes import Fit, Low, Ocr, Page, Recipe, Slice, Text
from loom.context import cost, limits
from loom.context.policy import Known, Need, Policy, Request
from loom.models import PDF, Model
from loom.prompt import MediaRef, Reason, Rendition, ShownMedia

Place: TypeAlias = Literal["user", "assistant", "result"]
Shown: TypeAlias = TextBlock | ShownMedia | ThinkingBlock | ToolCall

SHORT_CHARS: Final = 400
_BLOCK_BYTES: Final = 90
"""JSON around a block: keys, quotes, brackets."""
_PAGE_TEXT_TOKENS: Final = 500


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What a block becomes under one wish, and what that takes of the four budgets."""

    rendition: Rendition
    shown: tuple[Shown, ...]
    reason: Reason = ""
    detail: str = ""
    tokens: int = 0
    wire_bytes: int = 0
    images: int = 0
    pages: int = 0
    hoisted: bool = False
    needs: tuple[Need, ...] = ()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """For whom, by whose wishes, with what knowledge."""

    model: Model
    policy: Policy
    known: Known
    request: Request
    quarantine: frozenset[str] = frozenset()

    def nested(self, media_type: str) -> bool:
        return media_type in self.model.capabilities.result_accepts


def adapt(block: Block, wish: Rendition, place: Place, target: Target) -> Measure:
    if wish == "omitted":
        return Measure(rendition="omitted", shown=())
    match block:
        case TextBlock():
            return _text(block, wish, place, target)
        case ImageBlock() | DocumentBlock() | AudioBlock():
            return _media(block, wish, place, target)
        case ThinkingBlock():
            return _thinking(block, target)
        case ToolCall():
            return _call(block, target)
        case UnknownBlock():
            return _words(text_of(block), "capability", "unknown to this version", target)
        case ToolResult():
            raise TypeError("the blocks of a result are adapted one by one")
        case _:
            assert_never(block)


# Words -------------------------------------------------------------------------------------------------------------


def _text(block: TextBlock, wish: Rendition, place: Place, target: Target) -> Measure:
    if wish == "text" and place == "result" and len(block.text) > SHORT_CHARS * 2:
        cut = len(block.text) - SHORT_CHARS
        short = f"{block.text[:SHORT_CHARS]}\n[… {cut} more characters of this result were left out]"
        return _words(short, "budget", "shortened", target, rendition="text")
    model = target.model
    own = block.opaque is not None and (block.opaque.provider, block.opaque.model) == (model.producer, model.name)
    citations = tuple(
        citation
        for citation in block.citations
        if model.capabilities.citations and citation.opaque and citation.opaque.provider == model.producer
    )
    shown = TextBlock(block.text, citations, block.opaque if own else None)
    return _measured("full", shown, block.text, target)


def _words(text: str, reason: Reason, detail: str, target: Target, *, rendition: Rendition = "text") -> Measure:
    measure = _measured(rendition, TextBlock(text), text, target)
    return msgspec.structs.replace(measure, reason=reason, detail=detail)


def _measured(rendition: Rendition, shown: Shown, text: str, target: Target) -> Measure:
    return Measure(
        rendition=rendition,
        shown=(shown,),
        tokens=cost.text_tokens(text, target.model.tokens),
        wire_bytes=json_bytes(text) + _BLOCK_BYTES,
    )


def json_bytes(text: str) -> int:
    """The length of text as JSON: UTF-8 and what must be escaped."""
    return len(msgspec.json.encode(text))


def _thinking(block: ThinkingBlock, target: Target) -> Measure:
    model = target.model
    opaque = block.opaque
    if model.thinking.replay == "never":
        return Measure(rendition="omitted", shown=(), reason="capability", detail="this platform takes none back")
    if opaque is None or (opaque.provider, opaque.model) != (model.producer, model.name):
        made_by = f"made by {opaque.provider}/{opaque.model}" if opaque else "its producer is not known"
        return Measure(rendition="omitted", shown=(), reason="other-model", detail=made_by)
    weight = block.text + (msgspec.json.encode(opaque.data).decode() if block.redacted else "")
    return _measured("full", block, weight, target)


def _call(block: ToolCall, target: Target) -> Measure:
    model = target.model
    opaque = block.opaque
    own = opaque is not None and (opaque.provider, opaque.model) == (model.producer, model.name)
    shown = msgspec.structs.replace(block, raw_arguments=None, opaque=opaque if own else None)
    measure = _measured("full", shown, text_of(shown), target)
    if block.raw_arguments is None:
        return measure
    return msgspec.structs.replace(measure, reason="repair", detail="its arguments were not a JSON object")


# Media -------------------------------------------------------------------------------------------------------------


def _media(block: MediaBlock, wish: Rendition, place: Place, target: Target) -> Measure:
    digest = block.media.digest
    if digest in target.known.missing:
        return _fallback(block, "missing", "its bytes are gone", target)
    if digest in target.quarantine:
        return _fallback(block, "quarantine", f"{target.model.provider} refused it", target)
    match block:
        case ImageBlock():
            measure = _image(block, wish, target)
        case DocumentBlock():
            measure = _document(block, wish, target)
        case AudioBlock():
            measure = _audio(block, wish, target)
        case _:
            assert_never(block)
    shown = next((item for item in measure.shown if isinstance(item, ShownMedia)), None)
    nested = shown is None or place == "user" or (place == "result" and target.nested(shown.ref.media_type))
    return measure if nested else msgspec.structs.replace(measure, hoisted=True)


def _image(block: ImageBlock, wish: Rendition, target: Target) -> Measure:
    accepts = target.model.capabilities.accepts
    if wish == "text":
        return _fallback(block, "", "", target)
    formats = limits.image_formats(accepts)
    if not formats:
        return _fallback(block, "capability", "the model cannot see", target)
    recipe: Fit | Low = (
        limits.low_image(target.policy, accepts)
        if wish == "low"
        else limits.full_image(target.model, target.policy, accepts)
    )
    failure = target.known.failure(block.media.digest, recipe)
    if failure is not None:
        return _fallback(block, "missing", failure, target)
    detail: Detail = "low" if wish == "low" else block.detail
    return _picture(block.media, recipe, detail, "low" if wish == "low" else "full", target)


def _picture(media: Media, recipe: Fit | Low | Page, detail: Detail, rendition: Rendition, target: Target) -> Measure:
    ref, need = _reference(media, recipe, target)
    tokens = cost.image_tokens(ref.width or 1, ref.height or 1, target.model.tokens, detail)
    return Measure(
        rendition=rendition,
        shown=(ShownMedia(kind="image", ref=ref, name=media.name, detail=detail),),
        tokens=tokens,
        wire_bytes=ref.encoded_bytes + _BLOCK_BYTES,
        images=1,
        needs=need,
    )


def _reference(media: Media, recipe: Fit | Low | Page, target: Target) -> tuple[MediaRef, tuple[Need, ...]]:
    """Exact where the derived bytes exist, bounded by the recipe where they do not."""
    facts = target.known.facts(media.digest, recipe)
    if facts is not None:
        ref = MediaRef(
            digest=media.digest,
            media_type=facts.media_type,
            size_bytes=facts.size_bytes,
            recipe=recipe,
            width=facts.width,
            height=facts.height,
        )
        return ref, ()
    side = recipe.side_px if isinstance(recipe, Low) else recipe.max_side_px
    width, height = media.width or cost.PAGE_WIDTH_PX, media.height or cost.PAGE_HEIGHT_PX
    width, height = limits.fitted_size(width, height, side)
    ref = MediaRef(
        digest=media.digest,
        media_type=media.media_type if media.media_type in recipe.formats else recipe.formats[0],
        size_bytes=limits.size_bound(recipe, media.size_bytes),
        recipe=recipe,
        exact=False,
        width=width,
        height=height,
    )
    return ref, (Need(media.digest, media.media_type, recipe),)


def _document(block: DocumentBlock, wish: Rendition, target: Target) -> Measure:
    accepts = target.model.capabilities.accepts
    if wish == "text":
        return _fallback(block, "", "", target)
    if wish == "low":
        return _extracted(block, "age", "its words only", target)
    if block.media.media_type in accepts:
        native = _native(block, target)
        if native is not None:
            return native
    if block.media.media_type == PDF and limits.image_formats(accepts):
        return _pages(block, target)
    return _extracted(block, "capability", "the model takes no such documents", target)


def _native(block: DocumentBlock, target: Target) -> Measure | None:
    """The document itself, or a new one of just the pages asked for; None where it breaks a limit of the platform."""
    media = block.media
    first, last = shown_pages(block)
    count = last - first + 1
    most = target.model.limits.max_pages
    if most is not None and media.pages is not None and count > most:
        return None
    recipe = Slice(pages=page_label(first, last)) if media.pages and count < media.pages else None
    size, needs = media.size_bytes, ()
    if recipe is not None:
        facts = target.known.facts(media.digest, recipe)
        if target.known.failure(media.digest, recipe) is not None:
            return None
        size = facts.size_bytes if facts else media.size_bytes
        needs = () if facts else (Need(media.digest, media.media_type, recipe),)
    ref = MediaRef(
        digest=media.digest,
        media_type=media.media_type,
        size_bytes=size,
        recipe=recipe,
        exact=not needs,
        pages=count if media.pages else None,
    )
    limit = target.model.limits.max_document_encoded_bytes
    if limit is not None and ref.encoded_bytes > limit:
        return None
    words = target.known.text(media.digest, Text(pages=recipe.pages if recipe else ""))
    text_tokens = cost.text_tokens(words, target.model.tokens) if words else count * _PAGE_TEXT_TOKENS
    shown = ShownMedia(
        kind="document", ref=ref, name=block.title or media.name, citations=target.model.capabilities.citations
    )
    return Measure(
        rendition="full",
        shown=(shown,),
        tokens=count * cost.page_tokens(target.model.tokens) + text_tokens,
        wire_bytes=ref.encoded_bytes + _BLOCK_BYTES,
        pages=count if media.pages else 0,
        needs=needs,
    )


def _pages(block: DocumentBlock, target: Target) -> Measure:
    """Page pictures for eyes without PDF, as many as the policy allows; the rest is said."""
    first, last = shown_pages(block)
    end = min(last, first + target.policy.page_images - 1)
    label = f"[document: {block.media.label}; pages {page_label(first, end)} follow as pictures]"
    parts = [_words(label, "capability", "page pictures: the model takes no PDF", target)]
    for number in range(first, end + 1):
        recipe = limits.page_image(number, target.model, target.policy, target.model.capabilities.accepts)
        if target.known.failure(block.media.digest, recipe) is not None:
            return _extracted(block, "missing", "a page could not be drawn", target)
        parts.append(_picture(block.media, recipe, "auto", "pages", target))
    if end < last:
        parts.append(_words(f"[pages {page_label(end + 1, last)} are not shown]", "limit", "", target))
    return Measure(
        rendition="pages",
        shown=tuple(item for part in parts for item in part.shown),
        reason="capability",
        detail="the model takes no PDF",
        tokens=sum(part.tokens for part in parts),
        wire_bytes=sum(part.wire_bytes for part in parts),
        images=end - first + 1,
        needs=tuple(need for part in parts for need in part.needs),
    )


def shown_pages(block: DocumentBlock) -> tuple[int, int]:
    """The pages that a block means, within the document."""
    count = block.media.pages or 1
    if not block.pages:
        return 1, count
    first, last = page_range(block.pages)
    return min(first, count), min(last, count)


def _extracted(block: DocumentBlock, reason: Reason, detail: str, target: Target) -> Measure:
    """The words of a document under its label, or the label alone where it has none."""
    recipe: Recipe = Text(pages=block.pages)
    failure = target.known.failure(block.media.digest, recipe)
    words = target.known.text(block.media.digest, recipe)
    if words is None or not words.strip():
        fallback = _fallback(block, reason, failure or detail, target)
        asked = () if words is not None or failure else (Need(block.media.digest, block.media.media_type, recipe),)
        return msgspec.structs.replace(fallback, needs=asked)
    return _words(f"{text_of(block)}\n{words}", reason, detail, target)


def _audio(block: AudioBlock, wish: Rendition, target: Target) -> Measure:
    media = block.media
    if wish in ("text", "low"):
        return _fallback(block, "", "", target)
    if media.media_type not in target.model.capabilities.accepts:
        return _fallback(block, "capability", "the model cannot hear", target)
    ref = MediaRef(digest=media.digest, media_type=media.media_type, size_bytes=media.size_bytes)
    return Measure(
        rendition="full",
        shown=(ShownMedia(kind="audio", ref=ref, name=media.name),),
        tokens=cost.audio_tokens(media.duration_seconds or 0.0, target.model.tokens),
        wire_bytes=ref.encoded_bytes + _BLOCK_BYTES,
    )


def _fallback(block: MediaBlock, reason: Reason, detail: str, target: Target) -> Measure:
    """A neutral text that names the medium, gives the words there are, and says how to call it back. It never tells the
    model that something failed: such a sentence stays in its answers long after the picture is back."""
    words = ""
    needs: tuple[Need, ...] = ()
    if isinstance(block, ImageBlock) and not (block.alt or block.description):
        seen = target.known.descriptions.get(block.media.digest) or target.known.text(block.media.digest, Ocr())
        words = " ".join((seen or "").split())
        if seen is None and reason == "capability":
            needs = (Need(block.media.digest, block.media.media_type, Ocr()),)
    label = text_of(block)
    text = f"{label[:-1]}: {words}]" if words else label
    if reason in ("", "age", "budget") and any(t.name == target.request.look_tool for t in target.request.tools):
        text = f'{text[:-1]}; {target.request.look_tool}(media="{short_id(block.media)}") shows it]'
    return msgspec.structs.replace(_words(text, reason, detail, target), needs=needs)


def short_id(media: Media) -> str:
    """Enough of a digest to name a medium within a session."""
    return media.digest.removeprefix("sha256:")[:12]
