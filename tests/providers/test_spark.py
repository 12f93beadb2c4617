"""loom/spark: what it sees, reads and says, over prompts compiled as for any other model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from loom.compile.cost import message_tokens
from loom.compile.policy import Policy, Request
from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock, ThinkingBlock, clean_text
from loom.content.messages import Message, assistant, user
from loom.errors import Corrupt, ProviderError
from loom.events import Cited, MediaArrived, Stopped, TextDelta, ThinkingDelta, ThinkingSealed, UsageReported
from loom.formats import ocr
from loom.models import Capabilities
from loom.prompt import ToolSpec
from loom.providers.samples import samples
from loom.providers.spark import SparkProvider
from loom.sampling import Sampling
from made import make_sample, run
from providers.draw_samples import page_content, written
from providers.spark_world import SPARK, Shelf, answered, blocks_of, events_of, folded

LOGIN, RECEIPT, LEAFLET = samples()


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_screenshot_is_described() -> None:
    shelf = Shelf()

    message = await answered(shelf, user("what is wrong here?", shelf.attach(LOGIN.data, "login.png")))

    assert message.text == ("A bright screenshot or diagram, 900×500 PNG. Mostly white (84%), navy (14%).")


async def test_a_picture_without_words_is_a_question_too() -> None:
    shelf = Shelf(remote=True)

    message = await answered(shelf, user(shelf.attach(LOGIN.data, "login.png")))

    assert message.text.startswith("A bright screenshot")


async def test_each_of_two_pictures_is_described_under_its_name() -> None:
    shelf = Shelf()

    message = await answered(
        shelf, user("look", shelf.attach(LOGIN.data, "login.png"), shelf.attach(RECEIPT.data, "receipt.jpg"))
    )

    assert message.text.startswith("login.png: A bright screenshot")
    assert "\n\nreceipt.jpg: A mid-toned photograph, 640×800 JPEG. Mostly brown" in message.text


async def test_an_undecodable_picture_is_told_in_words() -> None:
    shelf = Shelf()
    prompt = shelf.prompt(user("see?", shelf.attach(LOGIN.data, "login.png")))
    shelf.damage(LOGIN.data[:800] + bytes(len(LOGIN.data) - 800))

    step = folded(shelf, await events_of(shelf, prompt))

    assert step.complete
    assert step.message is not None
    assert step.message.text.startswith("I cannot read login.png: The image is damaged")


async def test_bytes_of_another_length_than_announced_are_a_fault_of_the_store() -> None:
    shelf = Shelf()
    prompt = shelf.prompt(user("see?", shelf.attach(LOGIN.data, "login.png")))
    shelf.damage(LOGIN.data[:800])

    with pytest.raises(Corrupt, match="800 bytes"):
        await events_of(shelf, prompt)


async def test_a_picture_that_is_shown_as_text_is_told_apart_from_one_that_is_seen() -> None:
    shelf = Shelf()
    blind = msgspec.structs.replace(SPARK, capabilities=Capabilities(thinking=True))

    message = await answered(shelf, user("what is it?", shelf.attach(LOGIN.data, "login.png")), model=blind)

    assert message.text == "I was given login.png only as text: [image: login.png, 900×500, 6 KB]."


async def test_the_words_in_a_picture_are_read_where_an_engine_is_there() -> None:
    assert ocr.is_available(), "the tests install an OCR engine"
    shelf = Shelf()

    message = await answered(shelf, user("what is wrong here?", shelf.attach(LOGIN.data, "login.png")), reads_text=True)

    assert "Text I can read: " in message.text
    assert message.text.endswith("Error 502: upstream timed out after 30 s")


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_pages_that_mention_a_word_are_named_with_a_quote_from_each() -> None:
    shelf = Shelf()

    message = await answered(shelf, user("Which pages talk about timeouts?", shelf.attach(LEAFLET.data, "leaflet.pdf")))

    assert message.text == (
        "Pages 1 and 2 of leaflet.pdf mention “timeouts”:\n\n"
        "- “The timeout is usually harmless and goes away when the service has started.” (page 1)\n"
        "- “Raising the limit Set proxy_read_timeout to 60 seconds in the file gateway.conf.” (page 2)"
    )
    block = message.blocks[-1]
    assert isinstance(block, TextBlock)
    assert [(citation.locator, citation.first, citation.last) for citation in block.citations] == [
        ("page", 1, 1),
        ("page", 2, 2),
    ]


async def test_a_question_is_answered_with_the_sentence_that_shares_its_words() -> None:
    shelf = Shelf()
    document = shelf.attach(LEAFLET.data, "leaflet.pdf")
    assert isinstance(document, DocumentBlock)

    message = await answered(shelf, user("How long does a session last?", document))

    block = message.blocks[-1]
    assert isinstance(block, TextBlock)
    quoted = "A session lasts eight hours, or until you close the browser."
    assert block.text == f"leaflet.pdf has 2 pages. Closest to your question:\n\n- “{quoted}” (page 1)"
    (citation,) = block.citations
    assert (citation.quote, citation.title, citation.digest) == (quoted, "leaflet.pdf", document.media.digest)
    assert block.text[citation.start : citation.end] == quoted


@pytest.mark.parametrize("question", ["summarize", "What is it about?", "which pages talk about timeouts?", "gateway"])
async def test_every_citation_points_at_the_sentence_that_it_quotes(question: str) -> None:
    shelf = Shelf()

    message = await answered(shelf, user(f"!echo Früher: ö 漢\n{question}", shelf.attach(LEAFLET.data, "leaflet.pdf")))

    block = message.blocks[-1]
    assert isinstance(block, TextBlock)
    assert block.citations
    for citation in block.citations:
        assert block.text[citation.start : citation.end] == citation.quote


async def test_what_a_document_does_not_say_is_said() -> None:
    shelf = Shelf()

    message = await answered(shelf, user("does it cover kubernetes?", shelf.attach(LEAFLET.data, "leaflet.pdf")))

    assert "I found nothing about “cover” and “kubernetes” in it." in message.text


def _book(pages: int, owls: set[int]) -> bytes:
    """One line to a page; some pages have owls."""
    lines = [f"Page {at} tells of {'owls' if at in owls else 'mice'} and nothing else." for at in range(1, pages + 1)]
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(pages))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>".encode(),
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for at, line in enumerate(lines):
        content = page_content([(11, line)])
        resources = "/MediaBox [0 0 520 420] /Resources << /Font << /F 3 0 R >> >>"
        objects[4 + 2 * at] = f"<< /Type /Page /Parent 2 0 R {resources} /Contents {5 + 2 * at} 0 R >>".encode()
        objects[5 + 2 * at] = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)
    return written(objects)


async def test_all_pages_that_mention_a_word_are_named_and_three_quoted() -> None:
    shelf = Shelf()
    book = _book(14, {2, 4, 7, 8, 9, 10, 13, 14})

    message = await answered(shelf, user("Which pages mention an owl?", shelf.attach(book, "book.pdf")))

    assert message.text.startswith(
        "Pages 2, 4, 7, 8, 9, 10, 13 and 14 of book.pdf mention “owl”:\n\n- “Page 2 tells of owls"
    )
    assert message.text.count("\n- ") == 3


async def test_a_stretch_of_pages_is_called_one() -> None:
    shelf = Shelf()
    book = shelf.attach(_book(14, {9}), "book.pdf", pages="8-12")

    where = await answered(shelf, user("on which page is the owl?", book))
    what = await answered(shelf, user("tell me about mice", book))

    assert where.text.startswith("Page 9 of book.pdf mentions “owl”")
    assert what.text.startswith("I was shown pages 8-12 of book.pdf. Closest to your question:")
    assert "(page 8)" in what.text


async def test_a_slice_keeps_the_page_numbers_of_the_whole() -> None:
    shelf = Shelf()

    message = await answered(
        shelf, user("which pages mention a timeout?", shelf.attach(LEAFLET.data, "leaflet.pdf", pages="2"))
    )

    assert message.text.startswith(
        "Page 2 of leaflet.pdf mentions “timeout”:\n\n- “Raising the limit Set proxy_read_timeout"
    )


async def test_a_document_that_is_shown_as_words_is_read_all_the_same() -> None:
    shelf = Shelf()
    deck = make_sample("spark-deck.docx", _written_by_libreoffice)

    message = await answered(shelf, user("who painted the barn?", shelf.attach(deck.read_bytes(), "notes.docx")))

    assert "“Aunt Mary painted the barn red in the spring.”" in message.text


def _written_by_libreoffice(path: Path) -> None:
    source = path.with_name("notes.html")
    source.write_text(
        "<h1>The farm</h1><p>Aunt Mary painted the barn red in the spring. The cows did not mind.</p>"
        "<h2>The house</h2><p>The house was built by her father.</p>"
    )
    run(
        "soffice",
        f"-env:UserInstallation=file://{path.parent}/profile",
        "--headless",
        "--convert-to",
        "docx:MS Word 2007 XML",
        "--infilter=HTML (StarWriter)",
        "--outdir",
        path.parent,
        source,
    )
    path.with_name("notes.docx").rename(path)


async def test_a_table_is_shown_by_its_first_rows_and_searched_by_its_words() -> None:
    shelf = Shelf()
    book = shelf.attach(make_sample("spark-prices.xlsx", _priced).read_bytes(), "prices.xlsx")

    whole = await answered(shelf, user(book))
    one = await answered(shelf, user("what does the lamp cost?", book))

    assert "prices.xlsx has 1 sheet." in whole.text
    assert "“item | price” (sheet 1)\n- “chair | 40” (sheet 1)" in whole.text
    assert one.text.endswith("- “lamp | 25” (sheet 1)")


def _priced(path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (("item", "price"), ("chair", 40), ("table", 120), ("lamp", 25), ("shelf", 60)):
        book.active.append(row)
    book.save(path)


async def test_a_text_file_is_read() -> None:
    shelf = Shelf()
    text = (
        b"# Rules\n\nNobody feeds the parrot. The cat sleeps in the box.\n\n## Exceptions\n\nThe parrot feeds itself.\n"
    )

    message = await answered(shelf, user("what about the cat?", shelf.attach(text, "rules.md")))

    assert message.text == "rules.md has 16 words. Closest to your question:\n\n- “The cat sleeps in the box.”"


async def test_a_long_pasted_text_is_read_with_its_question() -> None:
    shelf = Shelf()
    text = "The harbour was quiet. " * 60 + "The lighthouse keeper kept bees.\n\nWhat did the lighthouse keeper keep?"

    message = await answered(shelf, user(text))

    assert "“The lighthouse keeper kept bees.”" in message.text


async def test_a_scan_without_a_text_layer_is_looked_at() -> None:
    shelf = Shelf()
    scan = make_sample("spark-scan.pdf", _scanned)

    message = await answered(shelf, user("what does it say?", shelf.attach(scan.read_bytes(), "scan.pdf")))

    assert message.text.startswith("scan.pdf is a scan without a text layer. Its first page:\n\nA bright")


def _scanned(path: Path) -> None:
    picture = path.with_name("page.png")
    run("/usr/bin/convert", "logo:", picture)
    Image.open(picture).convert("RGB").save(path)


async def test_a_printed_manual_that_says_the_same_on_every_page_is_read_and_not_taken_for_a_scan() -> None:
    shelf = Shelf()
    manual = make_sample("spark-manual.pdf", _printed_manual).read_bytes()

    message = await answered(shelf, user("what does the gateway do?", shelf.attach(manual, "manual.pdf")))

    assert "“The gateway waits for the app.”" in message.text
    assert "scan" not in message.text


def _printed_manual(path: Path) -> None:
    run("/usr/bin/convert", "logo:", path.with_name("logo.png"))
    chapter = "<section><h1>Gateway manual, chapter {0}</h1>{1}<img src=logo.png width=300></section>"
    chapters = "".join(chapter.format(number, "<p>The gateway waits for the app." * 6) for number in range(1, 7))
    page = path.with_name("manual.html")
    page.write_text(f"<style>section {{ break-after: page }}</style>{chapters}")
    chromium = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    run(*chromium, "--no-pdf-header-footer", f"--print-to-pdf={path}", page)


async def test_a_damaged_document_is_told_in_words() -> None:
    shelf = Shelf()
    prompt = shelf.prompt(user("summarize", shelf.attach(LEAFLET.data, "leaflet.pdf")))
    shelf.damage(LEAFLET.data[:700].ljust(len(LEAFLET.data)))

    step = folded(shelf, await events_of(shelf, prompt))

    assert step.complete
    assert step.message is not None
    assert step.message.text.startswith("I cannot read leaflet.pdf: leaflet.pdf ")


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_without_media_gets_a_plain_statement_of_what_this_is() -> None:
    shelf = Shelf()

    message = await answered(shelf, user("How do I configure nginx caching?"))

    assert "I am loom/spark" in message.text
    assert "not a language model" in message.text


@pytest.mark.parametrize("words", ["hello", "Who are you?", "help", "what can you do"])
async def test_asked_about_itself_it_says_what_it_can_do(words: str) -> None:
    message = await answered(Shelf(), user(words))

    assert "“list the files”" in message.text
    assert "choose another model" in message.text


async def test_a_second_turn_goes_back_to_what_the_first_one_showed() -> None:
    shelf = Shelf()
    first = user("look at both", shelf.attach(LOGIN.data, "login.png"), shelf.attach(LEAFLET.data, "leaflet.pdf"))
    reply = await answered(shelf, first)

    again = await answered(shelf, first, reply, user("and the image again?"))
    pages = await answered(shelf, first, reply, user("on which page is the operations team?"))
    other = await answered(shelf, first, reply, user("who won the cup?"))

    assert again.text.startswith("A bright screenshot")
    assert pages.text.startswith("Page 2 of leaflet.pdf mentions “operations” and “team”")
    assert other.text.endswith("You can ask about login.png, leaflet.pdf.")


async def test_pictures_are_found_again_by_their_order_and_their_name() -> None:
    shelf = Shelf()
    first = user("look", shelf.attach(LOGIN.data, "login.png"), shelf.attach(RECEIPT.data, "receipt.jpg"))
    reply = await answered(shelf, first)

    assert "900×500" in (await answered(shelf, first, reply, user("describe the first image"))).text
    assert "640×800" in (await answered(shelf, first, reply, user("describe the last image"))).text
    assert "900×500" in (await answered(shelf, first, reply, user("and login.png?"))).text


async def test_a_small_copy_of_an_old_picture_is_called_one() -> None:
    shelf = Shelf()
    first = user("look", shelf.attach(LOGIN.data, "login.png"))
    path = [
        first,
        await answered(shelf, first),
        user("thanks"),
        assistant("you are welcome"),
        user("the image again?"),
    ]

    message = await answered(shelf, *path, policy=Policy(aging="every-turn"))

    assert "512×284" in message.text
    assert message.text.startswith("I was shown a small copy of it.\n\nA bright screenshot")


# ── the stream ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_thinking_lists_what_was_checked_and_comes_back_in_the_next_prompt() -> None:
    shelf = Shelf()
    first = user("what is wrong here?", shelf.attach(LOGIN.data, "login.png"))
    reply = await answered(shelf, first)
    thinking = reply.blocks[0]

    assert isinstance(thinking, ThinkingBlock)
    assert thinking.opaque is not None
    assert (thinking.opaque.provider, thinking.opaque.model, thinking.opaque.data) == ("loom", "spark", {})
    assert thinking.text == "Added: login.png; tools: 0."
    assert thinking in shelf.prompt(first, reply, user("more")).messages[1].blocks


async def test_thinking_can_be_turned_off() -> None:
    shelf = Shelf()
    request = Request(sampling=Sampling(thinking="off"))

    message = await answered(shelf, user("hello"), request=request)

    assert [type(block) for block in message.blocks] == [TextBlock]


async def test_the_same_prompt_gives_the_same_events() -> None:
    shelf = Shelf()
    files = [shelf.attach(sample.data, sample.name) for sample in samples()]
    prompt = shelf.prompt(user("!image bars\n!cite\nwhat is all this about the gateway?", *files))

    assert await events_of(shelf, prompt) == await events_of(shelf, prompt)


async def test_an_answer_comes_in_small_pieces_and_ends_with_usage_and_its_terminal_event() -> None:
    shelf = Shelf()
    events = await events_of(shelf, shelf.prompt(user("summarize", shelf.attach(LEAFLET.data, "leaflet.pdf"))))

    assert isinstance(events[0], ThinkingDelta)
    assert isinstance(events[-2], UsageReported)
    assert events[-1] == Stopped(reason="end")
    sizes = [len(event.text) for event in events if isinstance(event, TextDelta)]
    assert len(sizes) > 10
    assert max(sizes) <= 100
    kinds = [type(event) for event in events if type(event) in (ThinkingDelta, ThinkingSealed, TextDelta, Cited)]
    assert kinds.index(ThinkingSealed) < kinds.index(TextDelta) < kinds.index(Cited)


async def test_usage_counts_what_the_receipt_counted() -> None:
    shelf = Shelf()
    tool = ToolSpec(name="read_file", description="Read a file.", parameters={"type": "object"})
    message = user("summarize", shelf.attach(LEAFLET.data, "leaflet.pdf"), shelf.attach(LOGIN.data, "login.png"))
    made = shelf.prepared(message, request=Request(system="Be brief.", tools=(tool,)))

    step = folded(shelf, await events_of(shelf, made.prompt))

    estimate = made.receipt.totals.tokens
    assert step.usage.input_tokens == pytest.approx(estimate, abs=2 * message_tokens())
    assert step.usage.output_tokens > step.usage.thinking_tokens > 0


async def test_an_answer_stops_at_the_limit_of_tokens() -> None:
    shelf = Shelf()
    prompt = shelf.prompt(user("!tokens 500"), request=Request(sampling=Sampling(max_tokens=50)))

    step = folded(shelf, await events_of(shelf, prompt))

    assert step.stop == "max_tokens"
    assert 40 <= step.usage.output_tokens <= 50


async def test_other_work_goes_on_while_it_speaks_and_it_can_be_stopped() -> None:
    shelf = Shelf()
    prompt = shelf.prompt(user("!slow 5tps\n!tokens 4000"))
    said: list[str] = []
    spoke = asyncio.Event()

    async def listen() -> None:
        async for event in SparkProvider(shelf).stream(prompt):
            if isinstance(event, TextDelta):
                said.append(event.text)
                spoke.set()

    task = asyncio.create_task(listen())
    await spoke.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 1 <= len(said) < 20


async def test_its_own_picture_is_seen_in_the_next_turn() -> None:
    shelf = Shelf()
    first = user("!image bars 3 5 8")
    reply = await answered(shelf, first)

    again = await answered(shelf, first, reply, user("what does the chart look like?"))

    assert len(blocks_of(reply, ImageBlock)) == 1
    assert again.text.startswith("A bright screenshot or diagram, 720×420 PNG. Mostly white (")


def test_it_answers_with_no_network_at_all(tmp_path: Path) -> None:
    """In a process of its own: every attempt to reach a host ends it."""
    program = f"""
import asyncio, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent)]!r}
def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind", "urllib.Request"):
        print("reached for the network:", event, given, file=sys.stderr)
        import os
        os._exit(9)
sys.addaudithook(watch)
from providers.spark_world import Shelf, answered
from loom.content.messages import user
from loom.providers.samples import samples
async def main():
    shelf = Shelf()
    blocks = [shelf.attach(sample.data, sample.name) for sample in samples()]
    print((await answered(shelf, user("what is all this? timeouts?", *blocks))).text)
asyncio.run(main())
"""
    alone = ["unshare", "-n"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*alone, sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert "A bright screenshot" in done.stdout
    assert "The timeout is usually harmless" in done.stdout


def test_the_samples_are_small_and_pass_the_door() -> None:
    assert sum(len(sample.data) for sample in samples()) < 60_000
    shelf = Shelf()
    blocks = [shelf.attach(sample.data, sample.name) for sample in samples()]
    assert [block.media.media_type for block in blocks] == [sample.media_type for sample in samples()]
    document = blocks[2]
    assert isinstance(document, DocumentBlock)
    assert document.media.pages == 2


def test_importing_it_loads_no_heavy_package() -> None:
    program = "import sys, loom.providers.spark; print([m for m in ('PIL', 'pypdfium2', 'numpy') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"


async def test_a_drawn_picture_arrives_as_bytes_for_the_store() -> None:
    shelf = Shelf()

    arrived = [
        event
        for event in await events_of(shelf, shelf.prompt(user("!image bars 1 2 3")))
        if isinstance(event, MediaArrived)
    ]

    assert [event.media_type for event in arrived] == ["image/png"]
    assert arrived[0].data.startswith(b"\x89PNG")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    words=st.text(max_size=300).filter(str.strip).map(clean_text),
    properties=st.dictionaries(
        st.sampled_from(["path", "values", "x"]),
        st.sampled_from([True, {}, {"type": "string"}, {"type": ["null", "array"]}, {"anyOf": [{"type": "integer"}]}]),
    ),
)
def test_no_words_and_no_schema_make_it_stumble(words: str, properties: dict[str, object]) -> None:
    shelf = Shelf()
    parameters = {"type": "object", "properties": properties, "required": [*properties, "other"]}
    tools = tuple(ToolSpec(name=name, description="", parameters=parameters) for name in ("read_file", "list_files"))
    for said in (
        words,
        f"read {words}.png",
        f"!echo {words}\n!tool read_file {words}",
    ):
        prompt = shelf.prompt(user(said), request=Request(tools=tools))
        try:
            step = folded(shelf, asyncio.run(events_of(shelf, prompt)))
        except ProviderError:
            assert "!fail" in said
        else:
            assert step.complete
            assert step.message is not None


def test_a_message_of_the_model_is_a_valid_one_of_the_conversation() -> None:
    shelf = Shelf()
    message = asyncio.run(
        answered(shelf, user("!think 10ms\n!cite\n!image bars\nhello", shelf.attach(LOGIN.data, "a.png")))
    )

    assert isinstance(message, Message)
    assert [type(block).__name__ for block in message.blocks] == [
        "ThinkingBlock",
        "TextBlock",
        "ImageBlock",
        "ThinkingBlock",
        "TextBlock",
    ]


async def test_a_csv_is_answered_with_its_columns_rows_and_a_few_facts() -> None:
    shelf = Shelf()
    table = shelf.attach(b"region,month,amount,id\nnorth,1,10.5,a\nsouth,2,2000000,b\nnorth,3,,c\n", "sales.csv")

    whole = await answered(shelf, user("what is in it?", table))
    rows = await answered(shelf, user("how much in the south?", table))

    assert whole.text == (
        "sales.csv has 4 columns and 3 rows.\n\n"
        "- region: text, 2 different values, most often “north” (2×)\n"
        "- month: numbers from 1 to 3, mean 2, sum 6\n"
        "- amount: numbers from 10.5 to 2,000,000, mean 1,000,005.25, sum 2,000,010.5, 1 empty\n"
        "- id: text, 3 different values"
    )
    assert rows.text.endswith("Closest to your question:\n\n- “south | 2 | 2000000 | b”")
