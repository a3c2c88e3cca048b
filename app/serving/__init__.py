"""From a call to its reply: what it asks for, its lease, its job, and its outcome."""
