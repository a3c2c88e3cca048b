"""What Flask answers: health, metrics, descriptions, changes, and the page."""
