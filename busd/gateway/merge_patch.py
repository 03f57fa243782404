"""Merge JSON objects as RFC 7396 describes."""

from __future__ import annotations

import msgspec
from msgspec import Raw

_members = msgspec.json.Decoder(dict[str, Raw])


def merge(old: Raw, patch: Raw) -> Raw:
    """Return JSON with the members of an object set as a patch says.

    Objects are merged member by member, `null` removes a member, anything else replaces it. Values
    that only one of the two has are not decoded. Raise msgspec.DecodeError for invalid JSON, and
    RecursionError if it is nested too deeply.
    """
    if not _begins_object(patch):
        return patch
    members = _members.decode(old) if _begins_object(old) else {}
    for name, value in _members.decode(patch).items():
        if bytes(value) == b"null":
            members.pop(name, None)
        else:
            members[name] = merge(members.get(name, Raw(b"null")), value)
    return Raw(msgspec.json.encode(members))


def _begins_object(value: Raw) -> bool:
    return bytes(value).lstrip()[:1] == b"{"
