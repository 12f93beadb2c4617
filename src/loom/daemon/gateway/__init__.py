"""The gateway: the protocols of Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, for any model.

    routes        the HTTP routes; errors in the caller's own shape
    protocol      the three protocols: how a body is read, which writer answers
    body          a request body as it arrives: long base64 goes to disk
    files         uploaded files
    exchange      one request: conversation → session → compiled request → answer
    conversation  which messages of a client are already stored, and what they are there
    handles       thinking of a model, as a signature that a client can send back
    targets       aliases, routes and fallbacks: which model is asked
    clients       keys of clients, with their models, budgets and rates

A conversation is read into blocks, stored as a session, and compiled for the model that is asked now, with a receipt.
"""
