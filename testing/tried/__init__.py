"""Models of users: built and saved as users do, served, and compared with Keras.

`testing.tried.models.TRIED` lists them. The table in docs/models_tried.md is made
from it by `python -m bench.models_tried`.
"""
