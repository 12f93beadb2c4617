"""What is said: values only. Read `blocks`, then `messages`; `codec` is their JSON."""
