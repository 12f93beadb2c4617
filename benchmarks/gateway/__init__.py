"""The gateway compared with LiteLLM's proxy, and with every hostile conversation."""
