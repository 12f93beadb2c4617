"""loom/spark: the built-in model. It looks at pixels and reads pages; it does not reason, and says so.

No weights, no network, the same answer to the same prompt. It stands behind the same interface as every other model,
so a newcomer without a key sees every kind of block flow, and tests and demonstrations can ask for any of them by name.

    turn        what the prompt asks: words, pictures, documents, results
    directives  lines such as `!fail 529`, for tests and demonstrations
    intents     plain wishes that a tool can fulfil: "read a.png"
    desk        reads bytes, pixels and pages, away from the event loop
    pictures    sentences about what can be seen
    sentences   a document as pages, headings and sentences
    quotes      which sentences answer a question, word for word, with their pages
    script      directives → parts
    answer      the parts of an answer, in order
    provider    parts → events
"""

from loom.providers.spark.provider import SparkProvider

__all__ = ["SparkProvider"]
