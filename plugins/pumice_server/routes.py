"""Endpoints of each method, for the lists of protocols."""

from __future__ import annotations

from functools import partial
from typing import Literal, Protocol

from pumice.plugin.unstable import Endpoint, Handler

Method = Literal["GET", "POST", "PUT", "DELETE"]


class MakeEndpoint(Protocol):
    def __call__(
        self, handler: Handler, *paths: str, scope: Literal["infer", "admin", ""] = "infer", uploads: bool = False
    ) -> Endpoint: ...


def _endpoint(
    method: Method,
    handler: Handler,
    *paths: str,
    scope: Literal["infer", "admin", ""] = "infer",
    uploads: bool = False,
) -> Endpoint:
    return Endpoint(method, handler, paths, scope, uploads)


get: MakeEndpoint = partial(_endpoint, "GET")
post: MakeEndpoint = partial(_endpoint, "POST")
delete: MakeEndpoint = partial(_endpoint, "DELETE")
