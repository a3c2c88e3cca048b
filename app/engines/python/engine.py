"""Runs batches with the predict of a service.py, or with the model file beside it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.engines.base import (
    DEFAULT_SIGNATURE,
    Array,
    Engine,
    Signature,
    Tensors,
    TensorSpec,
)
from app.engines.python import objects
from app.engines.python.service import Service
from app.errors import (
    BadInput,
    BasketError,
    ModelFailed,
    ModelLoadError,
    RefusedInput,
    WrongOutputs,
)
from app.settings.model_files import SERVICE_FILE

_OBJECT = np.dtype(object)
# Without a model file, rows and their answers are objects of the user's own code.
INSTANCE = TensorSpec("instance", _OBJECT, ())
ANSWER = TensorSpec("answer", _OBJECT, ())
OBJECTS = Signature((INSTANCE,), (ANSWER,))


class PythonEngine:
    """A service.py, with a model file or without one.

    predict gets what load returned, or else a function that runs the model file.
    """

    def __init__(
        self, service: Service, engine: Engine | None, *, packed: bool
    ) -> None:
        """Store the parts; `close` closes the engine.

        `packed`: objects cross from another process, and are bytes here.

        Raises:
            ModelLoadError: without a model file there is no predict, or the model has
                no default signature for the functions.
        """
        if engine is None and service.predict is None:
            raise ModelLoadError(
                f"{SERVICE_FILE} has no predict, and no model.keras or other model "
                "file is beside it"
            )
        if engine is not None and DEFAULT_SIGNATURE not in engine.signatures:
            _refuse_functions(service)
        self.service = service
        self._engine = engine
        self._packed = packed
        self._model: Any = None if engine is None else self._run_model
        self.platform = "python" if engine is None else engine.platform
        self.signatures: Mapping[str, Signature] = (
            {DEFAULT_SIGNATURE: OBJECTS} if engine is None else engine.signatures
        )

    def load(self) -> None:
        """Call load of service.py.

        Raises:
            ModelLoadError: it fails.
        """
        if self.service.has_load:
            self._model = self.service.load()

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch; predict computes those of the default signature.

        Raises:
            RefusedInput: predict raises BadInput.
            ModelFailed: predict fails, or does not return an output for each row.
            WrongOutputs: it returns another kind of object.
            Exception: whatever the model raises.
        """
        if self._engine is None:
            return {ANSWER.name: self._answers(batch[INSTANCE.name])}
        if self.service.predict is None or signature_name != DEFAULT_SIGNATURE:
            return self._engine.run(batch, signature_name)
        # It may change them; after a failure the same rows run again in parts.
        own = {name: array.copy() for name, array in batch.items()}
        outputs = self._by_name(self._predict(own))
        (rows, *_) = map(len, batch.values())
        for array in outputs.values():
            _check_count(len(array) if array.ndim else 0, rows)
        return outputs

    def close(self) -> None:
        """Close the engine and service.py, and let go what load returned."""
        self._model = None
        self.service.close()
        if self._engine is not None:
            self._engine.close()

    def _run_model(self, batch: Tensors) -> dict[str, Array]:
        assert self._engine is not None
        return dict(self._engine.run(batch))

    def _predict(self, batch: Any) -> Any:
        assert self.service.predict is not None
        try:
            return self.service.predict(self._model, batch)
        except BadInput as error:
            raise RefusedInput(str(error)) from error
        except BasketError:  # of the model file beside it
            raise
        except BaseException as error:  # sys.exit, too
            raise ModelFailed(self.service.failed("predict", error)) from error

    def _answers(self, rows: Array) -> Array:
        given: list[Any] = rows.tolist()
        if self._packed:
            given = [objects.unpack(each) for each in given]
        found = self._predict(given)
        try:
            answers = list(found)
        except TypeError:
            kind = type(found).__name__
            raise WrongOutputs(
                f"{SERVICE_FILE}: predict gave no list, but {kind}"
            ) from None
        _check_count(len(answers), len(given))
        if self._packed:
            answers = [objects.pack(each, "predict") for each in answers]
        return objects.array_of(answers)

    def _by_name(self, outputs: Any) -> Tensors:
        """Return predict's outputs as arrays, by the signature's names."""
        specs = self.signatures[DEFAULT_SIGNATURE].outputs
        if not isinstance(outputs, Mapping):
            if len(specs) > 1:
                names = ", ".join(spec.name for spec in specs)
                raise WrongOutputs(
                    f"{SERVICE_FILE}: predict gave {type(outputs).__name__}, expected "
                    f"a dict with {names}"
                )
            outputs = {specs[0].name: outputs}
        return {
            spec.name: _array_of(outputs[spec.name], spec)
            for spec in specs
            if spec.name in outputs
        }


def _array_of(output: Any, spec: TensorSpec) -> Array:
    """Return an output of predict in its dtype.

    Raises:
        WrongOutputs: it holds another kind of value than the strings of the signature.
        ModelFailed: it is no array of the signature's dtype.
    """
    if spec.dtype != _OBJECT:
        try:
            return np.asarray(output, spec.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelFailed(
                f"{SERVICE_FILE}: predict gave {spec.name} as a "
                f"{type(output).__name__}, of which {spec.dtype} can't be made: "
                f"{str(error)[:200]}"
            ) from error
    try:
        return objects.bytes_of(output)
    except TypeError as error:
        raise WrongOutputs(
            f"{SERVICE_FILE}: predict gave {spec.name}: {error}"
        ) from None


def _refuse_functions(service: Service) -> None:
    """Refuse functions of service.py beside a model without their signature.

    Raises:
        ModelLoadError: there are some.
    """
    for name in ("preprocess", "predict", "postprocess"):
        if getattr(service, name) is not None:
            raise ModelLoadError(
                f"{SERVICE_FILE} has {name}, which is called for the signature "
                f"{DEFAULT_SIGNATURE}, and the model has none of that name"
            )


def _check_count(answers: int, rows: int) -> None:
    """Check that there is an answer for each row.

    Raises:
        ModelFailed: there is not. Unlike WrongOutputs, it makes the batch run again in
            parts: the user's own code may leave out one row only.
    """
    if answers != rows:
        raise ModelFailed(
            f"{SERVICE_FILE}: predict gave {answers} answers for {rows} rows"
        )
