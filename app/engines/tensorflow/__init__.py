"""Engines that run on TensorFlow: Keras files and SavedModels."""
