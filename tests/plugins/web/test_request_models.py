"""Models of request bodies and queries, as FastAPI compiles them."""

from collections.abc import Iterator, Sequence

import pytest
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute

from waystation.kernel.value import EagerValue
from waystation.plugins.web.api import NewTask, SpendingQuery, v1
from waystation.plugins.web.pages import pages


def iter_request_models(routes: Sequence[BaseRoute]) -> Iterator[type[BaseModel]]:
    for route in routes:
        if isinstance(route, APIRoute):
            parameters = get_flat_dependant(route.dependant)
            for field in (*parameters.body_params, *parameters.query_params):
                kind = field.field_info.annotation
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield kind


def test_models_of_bodies_and_queries_are_compiled_at_import() -> None:
    models = {*iter_request_models(v1.routes), *iter_request_models(pages.routes)}
    assert models >= {NewTask, SpendingQuery}
    assert {model.__name__ for model in models if not issubclass(model, EagerValue)} == set()


@pytest.mark.filterwarnings("error")
def test_the_description_of_the_api_is_made_without_a_warning() -> None:
    assert "/v1/tasks" in get_openapi(title="Waystation", version="1", routes=v1.routes)["paths"]
