"""REST of the controller: FastAPI routers over `controller.admin`, in the shapes of Confluent's v3.

Routers hold no rules: they read a request, call a function of the administration, and give the
answer its links. Problems are ``{error_code, message, field, remedy}`` with their HTTP status.
"""
