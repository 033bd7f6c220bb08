"""Endpoints of each method, for the lists of protocols."""

from __future__ import annotations

from pumice.plugin.unstable import Endpoint, Handler, Scope


def get(handler: Handler, *paths: str, scope: Scope = "infer") -> Endpoint:
    return Endpoint("GET", handler, paths, scope)


def post(handler: Handler, *paths: str, scope: Scope = "infer", uploads: bool = False) -> Endpoint:
    return Endpoint("POST", handler, paths, scope, uploads)


def delete(handler: Handler, *paths: str, scope: Scope = "infer") -> Endpoint:
    return Endpoint("DELETE", handler, paths, scope)
