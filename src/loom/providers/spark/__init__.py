"""loom/spark: the built-in demo model. It describes pixels and quotes documents; it is not a language model.

It has no weights and no network access, and gives the same answer to the same prompt. It has the same interface as
every other model, so that new users without an API key can try every kind of block, and tests can trigger any behavior
with directives.

    conversation  the last message of a prompt: text, media, tool results
    directives    lines such as `!fail 529`, for tests and demonstrations
    documents     which sentences of a document, or rows of a table, answer a question
    answer        the parts of an answer, in order
    provider      parts → events
"""

from loom.providers.spark.provider import SparkProvider

__all__ = ["SparkProvider"]
