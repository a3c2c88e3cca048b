"""Rims turn what comes in into calls, and write their replies: HTTP, ASGI, WSGI, gRPC.

A rim knows no model, and nothing behind it knows how a request came.
"""
