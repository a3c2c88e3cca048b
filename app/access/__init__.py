"""Access control: API keys and admin keys, and requests of web pages."""
