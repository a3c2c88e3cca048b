"""How predictions are asked for and answered: two plain functions for each protocol.

What describes models, and changes what is served, is plain data here too.
"""
