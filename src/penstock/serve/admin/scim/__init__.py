"""SCIM 2.0 (RFC 7643, RFC 7644): an identity provider provisions people and groups; as Okta and Entra ID use it.

Reads with `filter` (`eq`, joined by `and`), `startIndex` and `count`; PATCH in the forms of both providers. Attributes
that are not in the table (`attributes.py`) are ignored, because providers send many, and give up on errors. There are
no bulk requests, sorting, passwords or versions; `ServiceProviderConfig` says so.
"""
