"""One module per protocol, the same names in each. Transcription only, no IO.

path(model), HEADERS                              where a request goes, behind the model's base URL
encode(prompt) -> JSON with `Embedded` media      every block is already one that the model accepts
Decoder(model).feed(bytes) -> model events        for any chunking; raises a ProviderError that the provider sends
Decoder(model).finish() -> model events           what was pending when the stream ended without an error
fault(status, body, model, sent) -> ProviderError what an answer other than 200 means

`Stopped` comes only where the provider said that it is done: a stream that ends without it is incomplete.
Beside them: framing (bytes → messages), faults (words → errors), and what several share: shapes, deltas, grounding.
"""
