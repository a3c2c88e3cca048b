"""The functions of a service.py, called for the requests of one version."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from app.batching.model_log import ModelLog
from app.codec import json_objects, json_text, strings
from app.codec.bounds import Check, unchecked
from app.codec.uneven import Uneven
from app.engines.base import DEFAULT_SIGNATURE, Engine, Signature, Tensors
from app.engines.python import objects
from app.engines.python.engine import ANSWER, INSTANCE, OBJECTS, PythonEngine
from app.engines.python.service import Service
from app.engines.python.threads import ServiceThreads
from app.errors import BadInput, ModelFailed
from app.settings import Settings
from app.user_code import rows


class UserCode:
    """Makes rows of instances, and predictions of outputs.

    `takes_objects`: there is no model file, and rows are any objects. With `is_packed`
    they cross between processes.
    """

    def __init__(
        self,
        service: Service,
        signatures: Mapping[str, Signature],
        log: ModelLog,
        *,
        is_packed: bool,
    ) -> None:
        """Store the parts; `log` gets the tracebacks."""
        self.service = service
        self._signature = signatures.get(DEFAULT_SIGNATURE)
        self._log = log
        self._is_packed = is_packed
        self.takes_objects = self._signature == OBJECTS
        self.reads_instances = self.takes_objects or service.preprocess is not None
        self.writes_predictions = self.takes_objects or service.postprocess is not None

    @property
    def threads(self) -> ServiceThreads:
        """Threads in which its methods are to be called."""
        return self.service.threads

    def inputs_of(
        self, instances: Sequence[Any], place: str, check: Check = unchecked
    ) -> Tensors | Uneven:
        """Return the rows that preprocess makes of instances.

        Raises:
            BadInput: it refuses one; the text begins with `place` and its number.
            ModelFailed: it fails, or gives what the model does not take.
            BasketError: `check`, which is called before each, raised it.
        """
        places = [f"{place}[{number}]" for number in range(len(instances))]
        values = []
        for instance, at in zip(instances, places, strict=True):
            check()
            values.append(self._preprocessed(instance, at))
        if not self.takes_objects:
            assert self._signature is not None  # or the version has no default
            return rows.inputs_of(values, places, self._signature)
        if self._is_packed:
            values = [objects.pack(value, "preprocess") for value in values]
        return {INSTANCE.name: objects.array_of(values)}

    def example_inputs(self) -> Tensors:
        """Return the row that preprocess makes of EXAMPLE.

        Raises:
            BasketError: as `inputs_of`.
        """
        inputs = self.inputs_of([self.service.example], "EXAMPLE")
        assert not isinstance(inputs, Uneven)  # of one row
        return inputs

    def example_json(self, max_bytes: int) -> Any:
        """Return EXAMPLE as in a request's JSON.

        None: JSON can't hold it, or not in so many bytes.
        """
        text = self._example_text
        return None if len(text) > max_bytes else json_text.loads(text)

    @cached_property
    def _example_text(self) -> bytes:
        """The JSON of EXAMPLE; null if JSON can't hold it."""
        example = self.service.example
        if isinstance(example, bytes):
            # Bytes are b64 there, also where they are text.
            example = strings.b64(example)
        try:
            return json_objects.dumps(example)
        except TypeError:
            return b"null"

    def body_of(self, outputs: Tensors) -> bytes:
        """Return the JSON of what postprocess makes of each row of the outputs.

        Raises:
            ModelFailed: it fails, or gives what JSON can't hold.
        """
        postprocess = self.service.postprocess
        predictions = list(self._rows_of(outputs))
        if postprocess is not None:
            predictions = [
                self._called("postprocess", postprocess, row, f"row {number}")
                for number, row in enumerate(predictions)
            ]
        try:
            values = json_objects.dumps(predictions, "predictions")
        except TypeError as error:
            name = "predict" if postprocess is None else "postprocess"
            text = f"service.py: {name} gave what JSON can't hold: {error}"
            self._log.error("%s", text)
            raise ModelFailed(text) from error
        return b'{"predictions":%b}' % values

    def _preprocessed(self, instance: Any, place: str) -> Any:
        preprocess = self.service.preprocess
        if preprocess is None:
            return instance
        return self._called("preprocess", preprocess, instance, place)

    def _called(
        self, name: str, function: Callable[[Any], Any], value: Any, place: str
    ) -> Any:
        try:
            return function(value)
        except BaseException as error:  # sys.exit, too
            if isinstance(error, BadInput) and name == "preprocess":
                raise BadInput(f"{place}: {error}") from error
            text = self.service.failed(name, error, f" on {place}")
            # The traceback may be left out.
            reason = self.service.described(error)
            self._log.error("%s: %s", text, reason, exc_info=error)
            raise ModelFailed(text) from error

    def _rows_of(self, outputs: Tensors) -> Iterator[Any]:
        """Yield each row: an object, or copies: its array, or arrays by output name."""
        if self.takes_objects:
            answers = outputs[ANSWER.name].tolist()
            for answer in answers:
                if self._is_packed:
                    yield objects.unpack(answer)
                else:
                    # predict may have given a row of an array that it keeps.
                    yield answer.copy() if isinstance(answer, np.ndarray) else answer
            return
        (count, *_) = map(len, outputs.values())
        for row in range(count):
            values = {name: array[row].copy() for name, array in outputs.items()}
            yield next(iter(values.values())) if len(values) == 1 else values


def user_code_of(engine: Engine, settings: Settings, log: ModelLog) -> UserCode | None:
    """Return the functions of an open version's service.py, None without one."""
    if not isinstance(engine, PythonEngine):
        return None
    is_packed = settings.model_process == "shared"
    return UserCode(engine.service, engine.signatures, log, is_packed=is_packed)
