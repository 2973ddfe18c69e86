"""The pages of messages that are ready, held, delayed or unhandled."""
