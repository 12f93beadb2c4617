"""The gateway beside LiteLLM's proxy, and with every hostile conversation."""
