"""Models of request bodies and queries, as FastAPI compiles them."""

from collections.abc import Iterator

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from waystation.kernel.value import EagerValue
from waystation.plugins.web.api import SpendingQuery, v1
from waystation.plugins.web.pages import pages
from waystation.plugins.web.request_bodies import NewTask


def iter_request_models(parameters: Dependant) -> Iterator[type[BaseModel]]:
    for field in (*parameters.body_params, *parameters.query_params):
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield kind
    for needed in parameters.dependencies:
        yield from iter_request_models(needed)


def test_models_of_bodies_and_queries_are_compiled_at_import() -> None:
    routes = [route for route in (*v1.routes, *pages.routes) if isinstance(route, APIRoute)]
    models = {model for route in routes for model in iter_request_models(route.dependant)}
    assert models >= {NewTask, SpendingQuery}
    assert {model.__name__ for model in models if not issubclass(model, EagerValue)} == set()


@pytest.mark.filterwarnings("error")
def test_the_description_of_the_api_is_made_without_a_warning() -> None:
    assert "/v1/tasks" in get_openapi(title="Waystation", version="1", routes=v1.routes)["paths"]
