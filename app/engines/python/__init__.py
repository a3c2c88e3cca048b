"""The user's own code: service.py in a version's folder.

It runs beside a model file, before and after it, or in place of one.
"""
