"""Bad requests by the hundred thousand, over all routes of a real server."""
