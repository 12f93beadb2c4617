"""The gateway: compared with LiteLLM's proxy, and tested with hostile conversations."""
