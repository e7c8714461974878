"""The server's ASGI application: routes of all dialects, and what guards them."""
