"""Gunicorn's side of Basket: a worker that serves an ASGI application.

It knows HTTP and ASGI, and no models. From Gunicorn it imports only
`gunicorn.workers.base`, which is documented. `gunicorn_arbiter` is the only module that
uses undocumented names of the arbiter.
"""
