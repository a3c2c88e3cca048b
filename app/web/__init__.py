"""What Flask answers: health, metrics, descriptions of models, changes, and the page."""
