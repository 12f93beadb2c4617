"""The gateway: the protocols of Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, for any model.

    routes             the HTTP routes; errors in the format of the caller's protocol
    protocol           the three protocols: how a body is read, which writer encodes the answer
    body               a request body as it arrives: long base64 goes to disk
    files              uploaded files
    exchange           one request: conversation → session → compiled request → answer
    restored_thinking  thinking handles in a client's history, replaced by the stored blocks
    handles            thinking of a foreign model, as a signature that a client can send back
    targets            aliases, routes and fallbacks: the models to try
    clients            keys of clients, with their models, budgets and rates
    models             the list of models

A conversation is read into blocks (`loom.importers.request_body`), stored as a session
(`loom.runtime.conversations`), and compiled for the requested model, with a receipt.
"""
