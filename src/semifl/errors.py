"""Errors a user can cause: one clear sentence, no traceback."""


class UserError(Exception):
    """Something the user can put right; the message is one sentence that names the file, key or site."""
