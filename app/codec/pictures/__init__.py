"""Images to arrays: reading files, what that costs, and the pixels."""
