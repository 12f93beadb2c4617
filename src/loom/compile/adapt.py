"""Adapt one block to a model: from a block and a target rendition, compute what is shown to the model, and its cost."""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from loom.compile import cost, limits, text_blocks
from loom.compile.measure import BLOCK_BYTES, BlockPosition, Measure, RenderTarget, as_text, measure_shown
from loom.compile.policy import LOOK, Need
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
    VideoBlock,
    page_label,
    page_range,
)
from loom.content.media import Media
from loom.content.messages import text_of
from loom.content.moments import choose_times, time_label
from loom.content.provider_blocks import PROVIDER_BLOCK, block_for, provider_text, restore_block, role_may_contain
from loom.content.recipes import Fit, Frame, Low, Ocr, Page, Recipe, Scenes, Slice, SpokenText, Text, fitted_size
from loom.models import PDF
from loom.prompt import MediaRef, Reason, Rendition, ShownMedia, ShownRaw
from loom.struct_types import decode_json

_NAME_CHARS: Final = 120
_OCR: Final = Ocr()
_SPOKEN: Final = SpokenText()
_SCENES: Final = Scenes()
_LOW_FRAMES: Final = 4
_HOISTED_BYTES: Final = 2 * BLOCK_BYTES
"""The sentences that say where a hoisted medium came from and where it was moved."""


def adapt(
    block: Block,
    rendition: Rendition,
    place: BlockPosition,
    target: RenderTarget,
    cap: int = 0,
    *,
    page_cap: int = 0,
    is_unpaired: bool = False,
) -> Measure:
    """Return what a block becomes as the rendition `rendition`, and its cost.

    `cap` is the maximum length of text in characters and `page_cap` the maximum number of pages of a document; zero
    means no limit. `is_unpaired` marks the call of a server-side tool without a result, a result without its call, and
    calls that are sent as text.
    """
    if rendition == "omitted":
        return Measure(rendition="omitted", shown=())
    match block:
        case TextBlock():
            return text_blocks.text(block, rendition, place, target, cap)
        case ImageBlock() | DocumentBlock() | AudioBlock() | VideoBlock():
            return _media(block, rendition, place, target, cap, page_cap=page_cap)
        case ThinkingBlock():
            return text_blocks.thinking(block, target, cap)
        case ToolCall() if is_unpaired:
            return as_text(text_of(block), "repair", "the server refused the history with calls", target, cap)
        case ToolCall():
            return text_blocks.call(block, target, cap)
        case UnknownBlock():
            return _own_kind(block, place, target, cap, is_unpaired=is_unpaired)
        case ToolResult():
            raise TypeError("the blocks of a result are adapted one by one")
        case _:
            assert_never(block)


def _own_kind(
    block: UnknownBlock, place: BlockPosition, target: RenderTarget, cap: int, *, is_unpaired: bool
) -> Measure:
    """Return a provider-specific block unchanged if this model's provider can read it here. Inside a tool result, for
    other providers, and if the provider would refuse it, return it as text."""
    model = target.model
    data = block_for(model.opaque_owner, model.own_blocks, block) if place != "result" else None
    if data is not None:
        restored = (
            restore_block(data, is_foreign=block.kind != PROVIDER_BLOCK) if role_may_contain(data, place) else None
        )
        if restored is None or is_unpaired:
            detail = "its call or its result is missing" if restored is not None else "its provider would refuse it"
            return as_text(text_of(block), "repair", detail, target, cap)
        return measure_shown(ShownRaw(data=restored), msgspec.json.encode(restored).decode(), target)
    is_foreign = bool(provider_text(block))
    detail = "only its provider supports it" if is_foreign else "unknown to this version"
    return as_text(text_of(block), "other-model" if is_foreign else "capability", detail, target, cap)


def _media(
    block: MediaBlock, rendition: Rendition, place: BlockPosition, target: RenderTarget, cap: int, *, page_cap: int
) -> Measure:
    """Return what a medium becomes. `hoisted` is set if the platform does not accept it at `place`."""
    digest = block.media.digest
    if digest in target.known.missing:
        return _fallback(block, "missing", "its bytes are missing", target, cap)
    if digest in target.quarantine:
        return _fallback(block, "quarantine", f"{target.model.provider} refused it", target, cap)
    match block:
        case ImageBlock():
            measure = _image(block, rendition, target, cap)
        case DocumentBlock():
            measure = _document(block, rendition, target, cap, page_cap)
        case AudioBlock():
            measure = _audio(block, rendition, target, cap)
        case VideoBlock():
            measure = _video(block, rendition, target, cap)
        case _:
            assert_never(block)
    if place == "user":
        return measure
    shown = next((item for item in measure.shown if isinstance(item, ShownMedia)), None)
    if shown is None or (place == "result" and target.accepts_in_results(shown.ref.media_type)):
        return measure
    return msgspec.structs.replace(measure, hoisted=True, wire_bytes=measure.wire_bytes + _HOISTED_BYTES)


# Images ------------------------------------------------------------------------------------------------------------


def _image(block: ImageBlock, rendition: Rendition, target: RenderTarget, cap: int) -> Measure:
    """Return the image in full or as a small copy, or its text for a model that does not support images."""
    if rendition == "text":
        return _fallback(block, "", "", target, cap)
    accepts = target.model.capabilities.accepts
    if not limits.image_formats(accepts):
        return _fallback(block, "capability", "the model does not support images", target, cap)
    detail: Detail = block.detail if block.detail != "auto" else target.model.detail
    as_asked = rendition != "low" and detail == "low" and not target.model.has_detail
    is_low = rendition == "low" or as_asked
    recipe: Fit | Low = (
        limits.low_image(target.policy, accepts) if is_low else limits.full_image(target.model, target.policy, accepts)
    )
    failure = target.known.failure(block.media.digest, recipe)
    if failure is not None:
        return _fallback(block, "missing", failure, target, cap)
    shown = _picture(block.media, recipe, "low" if is_low else detail, "low" if is_low else "full", target)
    return msgspec.structs.replace(shown, reason="override", detail="low detail requested") if as_asked else shown


def _picture(
    media: Media, recipe: Fit | Low | Page | Frame, detail: Detail, rendition: Rendition, target: RenderTarget
) -> Measure:
    ref, need = _reference(media, recipe, target)
    tokens = cost.image_tokens(ref.width or 1, ref.height or 1, target.model.tokens, detail)
    return Measure(
        rendition=rendition,
        shown=(ShownMedia(kind="image", ref=ref, name=plain_name(media.name), detail=detail),),
        tokens=tokens,
        wire_bytes=ref.encoded_bytes + BLOCK_BYTES,
        images=1,
        needs=need,
    )


def _reference(
    media: Media, recipe: Fit | Low | Page | Frame, target: RenderTarget
) -> tuple[MediaRef, tuple[Need, ...]]:
    """Return exact facts if the derived bytes exist, otherwise upper bounds from the recipe."""
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
    width, height = fitted_size(width, height, side)
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


# Documents ---------------------------------------------------------------------------------------------------------


def _document(block: DocumentBlock, rendition: Rendition, target: RenderTarget, cap: int, page_cap: int) -> Measure:
    """Return a document as its file, as page images or as text. As `low`, only its text is shown."""
    accepts = target.model.capabilities.accepts
    if rendition == "text":
        return _fallback(block, "", "", target, cap)
    if rendition == "low":
        return _extracted_text(block, "", "text only", target, cap, page_cap=page_cap)
    if block.media.media_type in accepts:
        native = _native(block, target, page_cap)
        if native is not None:
            return native
    if block.media.media_type == PDF and block.media.pages and limits.image_formats(accepts):
        return _pages(block, target, cap, page_cap)
    return _extracted_text(
        block, "capability", "the model does not support this type of document", target, cap, page_cap=page_cap
    )


def _native(block: DocumentBlock, target: RenderTarget, page_cap: int) -> Measure | None:
    """Return the document itself, or a new one with only the pages shown; None if not even one page is within the
    platform's limits."""
    media = block.media
    if target.model.limits.max_pages is not None and media.pages is None:
        return None
    first, last = shown_pages(block)
    most = limits.native_pages(last - first + 1, target)
    count = min(most, page_cap) if page_cap else most
    drawn = limits.page_images(target) if limits.image_formats(target.model.capabilities.accepts) else 0
    least = min(count, drawn)  # fewer pages than could be sent as images are not worth it
    while count >= max(least, 1):
        end = first + count - 1
        recipe = Slice(pages=page_label(first, end)) if media.pages and count < media.pages else None
        facts = target.known.facts(media.digest, recipe) if recipe else None
        if recipe is not None and target.known.failure(media.digest, recipe) is not None:
            return None
        size = media.size_bytes if recipe is None else limits.slice_bytes(media, count)
        ref = MediaRef(
            digest=media.digest,
            media_type=media.media_type,
            size_bytes=facts.size_bytes if facts else size,
            recipe=recipe,
            exact=recipe is None or facts is not None,
            pages=count if media.pages else None,
        )
        if all(limit is None or ref.encoded_bytes <= limit for limit in limits.document_bytes(target)):
            reason: Reason = "budget" if page_cap and count == page_cap else "limit"
            return _native_measure(block, ref, (first, last), reason, target)
        count = limits.fewer_pages(count) if media.pages else 0
    return None


def _native_measure(
    block: DocumentBlock, ref: MediaRef, asked: tuple[int, int], reason: Reason, target: RenderTarget
) -> Measure:
    """Return the document in `ref` and its cost, with a note if it ends before the last page of `asked`."""
    media, count = block.media, ref.pages or 1
    first, last = asked
    end = first + count - 1
    read = Text(pages=ref.recipe.pages if isinstance(ref.recipe, Slice) else "")
    text = target.known.text(media.digest, read)
    text_tokens = cost.text_tokens(text, target.model.tokens) if text else count * limits.PAGE_TEXT_TOKENS
    needs = [Need(media.digest, media.media_type, read, is_for_cost=True)] if text is None else []
    if ref.recipe is not None and not ref.exact:
        needs.append(Need(media.digest, media.media_type, ref.recipe))
    shown = ShownMedia(
        kind="document",
        ref=ref,
        name=plain_name(block.title) or plain_name(media.name),
        citations=target.model.capabilities.citations,
    )
    native = Measure(
        rendition="full",
        shown=(shown,),
        tokens=count * cost.page_tokens(target.model.tokens) + text_tokens,
        wire_bytes=ref.encoded_bytes + BLOCK_BYTES + 2 * _NAME_CHARS,
        pages=count if media.pages else 0,
        needs=tuple(needs),
    )
    return native if end >= last else _without_rest(native, block, end, reason, target)


def _without_rest(head: Measure, block: DocumentBlock, end: int, reason: Reason, target: RenderTarget) -> Measure:
    """Add a note that says which of the requested pages are not shown, and how the model gets them."""
    first, last = shown_pages(block)
    rest = page_label(end + 1, last)
    look = f'; {LOOK}(media="{short_id(block.media)}", pages=…) shows them' if target.has_look else ""
    tail = as_text(f"[pages {rest} are not shown{look}]", reason, "", target)
    shown = page_label(first, end)
    return msgspec.structs.replace(
        head,
        shown=(*head.shown, *tail.shown),
        reason=reason if head.reason in ("", "limit", "budget") else head.reason,
        detail="; ".join(part for part in (head.detail, f"pages {shown} only") if part),
        tokens=head.tokens + tail.tokens,
        wire_bytes=head.wire_bytes + tail.wire_bytes,
    )


def _pages(block: DocumentBlock, target: RenderTarget, cap: int, page_cap: int) -> Measure:
    """Return images of the pages, as many as the policy and the platform allow, for a model that supports images but
    not PDF. A note says which pages are missing."""
    first, last = shown_pages(block)
    most = limits.page_images(target)
    end = min(last, first + (min(most, page_cap) if page_cap else most) - 1)
    if end < first:
        return _extracted_text(block, "limit", "the model accepts no more images", target, cap, page_cap=page_cap)
    label = f"[document: {block.media.label}; pages {page_label(first, end)} follow as images]"
    parts = [as_text(label, "capability", "", target, cap)]
    for number in range(first, end + 1):
        recipe = limits.page_image(number, target.model, target.policy, target.model.capabilities.accepts)
        if target.known.failure(block.media.digest, recipe) is not None:
            return _extracted_text(block, "missing", "a page could not be rendered", target, cap, page_cap=page_cap)
        parts.append(_picture(block.media, recipe, "auto", "pages", target))
    drawn = Measure(
        rendition="pages",
        shown=tuple(item for part in parts for item in part.shown),
        reason="capability",
        detail="the model does not support PDF",
        tokens=sum(part.tokens for part in parts),
        wire_bytes=sum(part.wire_bytes for part in parts),
        images=end - first + 1,
        needs=tuple(need for part in parts for need in part.needs),
    )
    return drawn if end >= last else _without_rest(drawn, block, end, "limit", target)


def shown_pages(block: DocumentBlock) -> tuple[int, int]:
    """Return the first and the last page that a block refers to, within the document."""
    count = block.media.pages or 1
    if not block.pages:
        return 1, count
    first, last = page_range(block.pages)
    return min(first, count), min(last, count)


def _extracted_text(
    block: DocumentBlock, reason: Reason, detail: str, target: RenderTarget, cap: int, *, page_cap: int
) -> Measure:
    """Return the text of a document after its label, or the label alone if it has no text."""
    if block.media.digest in target.alts:
        return _fallback(block, reason, detail, target, cap)
    first, last = shown_pages(block)
    end = min(last, first + page_cap - 1) if page_cap and block.media.pages else last
    recipe: Recipe = Text(pages=block.pages if end == last else page_label(first, end))
    failure = target.known.failure(block.media.digest, recipe)
    text = target.known.text(block.media.digest, recipe)
    if text is None or not text.strip():
        fallback = _fallback(block, reason, failure or detail, target, cap)
        asked = () if text is not None or failure else (Need(block.media.digest, block.media.media_type, recipe),)
        return msgspec.structs.replace(fallback, needs=asked)
    words = as_text(f"{text_of(block)}\n{text}", reason, detail, target, cap)
    return words if end == last else _without_rest(words, block, end, "budget", target)


# Sound and video ---------------------------------------------------------------------------------------------------


def _audio(block: AudioBlock, rendition: Rendition, target: RenderTarget, cap: int) -> Measure:
    media = block.media
    if rendition in ("text", "low"):
        return _spoken_words(block, "", "", target, cap)
    if media.media_type not in target.model.capabilities.accepts:
        return _spoken_words(block, "capability", "the model does not support audio", target, cap)
    ref = MediaRef(digest=media.digest, media_type=media.media_type, size_bytes=media.size_bytes)
    return Measure(
        rendition="full",
        shown=(ShownMedia(kind="audio", ref=ref, name=plain_name(media.name)),),
        tokens=cost.audio_tokens(media.duration_seconds or 0.0, target.model.tokens),
        wire_bytes=ref.encoded_bytes + BLOCK_BYTES,
    )


def _video(block: VideoBlock, rendition: Rendition, target: RenderTarget, cap: int) -> Measure:
    """Return the video itself for a model that supports video, otherwise frames with their times, otherwise its
    text."""
    accepts = target.model.capabilities.accepts
    if rendition == "text":
        return _spoken_words(block, "", "", target, cap)
    if rendition == "full" and block.media.media_type in accepts:
        native = _native_video(block.media, target)
        if native is not None:
            return native
    if limits.image_formats(accepts):
        frames = _frames(block, rendition, target, cap)
        if frames is not None:
            return frames
        return _spoken_words(block, "missing", "no frame could be extracted", target, cap)
    return _spoken_words(block, "capability", "the model does not support images", target, cap)


def _native_video(media: Media, target: RenderTarget) -> Measure | None:
    """Return the video itself, or None if it exceeds a limit of the platform."""
    ref = MediaRef(
        digest=media.digest,
        media_type=media.media_type,
        size_bytes=media.size_bytes,
        width=media.width,
        height=media.height,
    )
    tokens = cost.video_tokens(media.duration_seconds or 0.0, target.model.tokens)
    is_long = tokens > target.model.limits.context_tokens // 2
    if is_long or any(limit is not None and ref.encoded_bytes > limit for limit in limits.document_bytes(target)):
        return None
    return Measure(
        rendition="full",
        shown=(ShownMedia(kind="video", ref=ref, name=plain_name(media.name)),),
        tokens=tokens,
        wire_bytes=ref.encoded_bytes + BLOCK_BYTES,
    )


def _frames(block: VideoBlock, rendition: Rendition, target: RenderTarget, cap: int) -> Measure | None:
    """Return frames chosen by scene, each after its time, and the transcript; None if no frame can be extracted.

    Until the scenes are known, the times are evenly spaced; the request is prepared again when they are.
    """
    media = block.media
    scenes, scenes_need = _scene_starts(media, target)
    count = limits.video_frames(target)
    is_low = rendition == "low"
    times = choose_times(media.duration_seconds or 0.0, scenes, min(count, _LOW_FRAMES) if is_low else count)
    pictures: list[Measure] = []
    for at in times:
        recipe = limits.video_frame(at, target, is_low=is_low)
        if target.known.failure(media.digest, recipe) is None:
            pictures.append(as_text(f"[{time_label(at)}]", "", "", target))
            pictures.append(_picture(media, recipe, "low" if is_low else "auto", "pages", target))
    shown_frames = len(pictures) // 2
    if not shown_frames:
        return None
    words = _spoken_words(block, "", "", target, cap, calls_back=False)
    head = msgspec.structs.replace(
        words, shown=(TextBlock(_frames_label(block, words, shown_frames)),) if words.shown else ()
    )
    parts = [head, *pictures]
    found = f"{shown_frames} frames"
    return Measure(
        rendition="low" if is_low else "pages",
        shown=tuple(item for part in parts for item in part.shown),
        reason="" if is_low else "capability",
        detail=found if is_low else f"the model does not support this video; {found}",
        tokens=sum(part.tokens for part in parts),
        wire_bytes=sum(part.wire_bytes for part in parts) + BLOCK_BYTES,
        images=shown_frames,
        needs=(*scenes_need, *(need for part in parts for need in part.needs)),
    )


def _frames_label(block: VideoBlock, words: Measure, count: int) -> str:
    said = words.shown[0].text if isinstance(words.shown[0], TextBlock) else text_of(block)
    noun = "frame follows, after its time" if count == 1 else "frames follow, each after its time"
    return f"{said}\n[{count} {noun}]"


def _scene_starts(media: Media, target: RenderTarget) -> tuple[list[float], tuple[Need, ...]]:
    found = target.known.text(media.digest, _SCENES)
    if found:
        try:
            return decode_json(found, list[float]), ()
        except msgspec.DecodeError:  # a damaged cache entry must not end a turn: use evenly spaced times
            return [], ()
    is_known = found is not None or target.known.failure(media.digest, _SCENES) is not None
    return [], () if is_known else (Need(media.digest, media.media_type, _SCENES),)


def _spoken_words(
    block: AudioBlock | VideoBlock,
    reason: Reason,
    detail: str,
    target: RenderTarget,
    cap: int,
    *,
    calls_back: bool = True,
) -> Measure:
    """Return the label of a recording with its transcript; for a video and a model that does not support images, also
    the text visible in it. Request either as a `Need` if it does not exist yet."""
    media = block.media
    if media.digest in target.alts or block.transcript:
        return _fallback(block, reason, detail, target, cap)
    needs: list[Need] = []
    parts: list[str] = []
    is_seen = isinstance(block, VideoBlock) and reason in ("capability", "missing")
    for recipe in (_SPOKEN, Text()) if is_seen else (_SPOKEN,):
        words = target.known.text(media.digest, recipe)
        if words and words.strip():
            parts.append(words.strip())
        elif words is None and target.known.failure(media.digest, recipe) is None:
            needs.append(Need(media.digest, media.media_type, recipe))
    if not parts:
        bare = _fallback(block, reason, detail, target, cap) if calls_back else as_text(text_of(block), "", "", target)
        return msgspec.structs.replace(bare, needs=(*bare.needs, *needs))
    text = "\n".join([text_of(block), *parts])
    return as_text(text, reason, detail, target, cap, needs=tuple(needs))


# What stands for all of them ---------------------------------------------------------------------------------------


def _fallback(block: MediaBlock, reason: Reason, detail: str, target: RenderTarget, cap: int) -> Measure:
    """Return a neutral text with the medium's name, its text alternative, and how to show it again. It never says that
    something failed: models repeat such a sentence in their answers long after the image is back."""
    found = target.alts.get(block.media.digest, "")
    author = "described by the user" if found else ""
    needs: tuple[Need, ...] = ()
    if found:
        block = _without_caption(block)
    elif isinstance(block, ImageBlock) and not (block.alt or block.description):
        found, author, needs = _image_text(block.media, reason, target)
    detail = f"{detail}; {author}" if detail and author else detail or author
    label = text_of(block)
    text = f"{label[:-1]}: {found}]" if found else label
    if reason in ("", "age", "budget") and target.has_look:
        text = f'{text[:-1]}; {LOOK}(media="{short_id(block.media)}") shows it]'
    return as_text(text, reason, detail, target, cap, needs=needs)


def _without_caption(block: MediaBlock) -> MediaBlock:
    match block:
        case ImageBlock():
            return msgspec.structs.replace(block, alt="", description="")
        case AudioBlock() | VideoBlock():
            return msgspec.structs.replace(block, transcript="")
        case DocumentBlock():
            return block
        case _:
            assert_never(block)


def _image_text(media: Media, reason: Reason, target: RenderTarget) -> tuple[str, str, tuple[Need, ...]]:
    """Return the text for an image without a text alternative, its origin, and the OCR that could still add to it."""
    described = target.known.descriptions.get(media.digest)
    if described is not None:
        author = f"description by {described.by}"
        return f"{author}: {' '.join(described.text.split())}", author, ()
    read = target.known.text(media.digest, _OCR)
    unread = read is None and reason == "capability" and not target.known.may_be_described(media.digest)
    return " ".join((read or "").split()), "", (Need(media.digest, media.media_type, _OCR),) if unread else ()


def plain_name(name: str) -> str:
    """Return a medium's name in a form that platforms accept: one line of visible characters, not too long."""
    visible = "".join(character if character.isprintable() else " " for character in name)
    return " ".join(visible.split())[:_NAME_CHARS].rstrip()


def short_id(media: Media) -> str:
    """Return enough of a digest to name a medium within a session."""
    return media.digest.removeprefix("sha256:")[:12]
