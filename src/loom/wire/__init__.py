"""One module per protocol, each with the same names. They only translate, without IO.

path(model), HEADERS                              the path after the model's base URL, and fixed headers
encode(prompt) -> JSON with `Embedded` media      the model accepts every block of the prompt
Decoder(model).feed(bytes) -> model events        for any chunking; raises a `ProviderError` that the provider sends
Decoder(model).finish() -> model events           the events pending when the stream ended without an error
fault(status, body, model, sent) -> ProviderError the error for a response with a status other than 200

`Stopped` is emitted only if the provider reported the end: a stream without it is incomplete. Other modules: framing
(bytes → messages), faults (error bodies → errors), and shared helpers: shapes, deltas, grounding.
"""
