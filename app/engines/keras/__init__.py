"""Shared by all engines for Keras files, whatever Keras's backend.

The environment is set here, before anything imports Keras, also a user's own code.
"""

from app.engines.keras.home import hide_config

hide_config()
