"""The parameters of a model by the names that they have in published files and in ``transformers``: views.

They serve where the modules of a family are arranged in another way there: ``transformer.layer`` of DistilBERT, the
towers of BART and T5, ``layers`` of ModernBERT. BERT's own layers have views of modules, see
:mod:`bertkit.model.published_parts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, overload

from torch import Tensor, nn

from bertkit.errors import InputError
from bertkit.model.published_parts import MatrixRows


class _Part(NamedTuple):
    """A part of one of our tensors, which is made of ``parts`` published ones."""

    ours: str
    number: int
    parts: int


class PublishedTensors:
    """All parameters whose published names begin with one name; they can be read, written into, frozen and counted.

    ``model.distilbert.transformer.layer[0].attention.q_lin.weight``: attributes and numbers lead from name to name.
    It is no module: it has no call and no hooks, and nothing can be put in the place of a part.
    """

    def __init__(self, root: nn.Module, names: dict[str, _Part], place: str) -> None:
        vars(self).update(_root=root, _names=names, _place=place)

    @classmethod
    def below(cls, root: nn.Module, name: str, names: Iterable[tuple[str, tuple[str, ...]]]) -> PublishedTensors | None:
        """The parameters of ``root`` whose published names begin with ``name``; None without any.

        ``names``: our name in ``root`` and the published ones of each tensor.
        """
        found = {
            each: _Part(ours, number, len(published))
            for ours, published in names
            for number, each in enumerate(published)
            if each.startswith(f"{name}.")
        }
        return cls(root, found, name) if found else None

    @property
    def _children(self) -> list[str]:
        begin = f"{self._place}."
        return list(dict.fromkeys(name.removeprefix(begin).partition(".")[0] for name in self._names))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        place = f"{self._place}.{name}"
        if place in self._names:
            return self._tensor(self._names[place])
        inner = {each: part for each, part in self._names.items() if each.startswith(f"{place}.")}
        if not inner:
            raise AttributeError(f"{self._place} has no {name!r}; it has {', '.join(self._children)}", name=name)
        return PublishedTensors(self._root, inner, place)

    def _tensor(self, part: _Part) -> Tensor | None:
        whole = self._root.get_parameter(part.ours)
        rows = len(whole) // part.parts
        return whole if part.parts == 1 else MatrixRows.of(whole, slice(part.number * rows, (part.number + 1) * rows))

    @overload
    def __getitem__(self, number: int) -> PublishedTensors: ...
    @overload
    def __getitem__(self, number: slice) -> list[PublishedTensors]: ...
    def __getitem__(self, number: int | slice) -> PublishedTensors | list[PublishedTensors]:
        numbers = range(len(self))
        if isinstance(number, slice):
            return [self[each] for each in numbers[number]]
        found: PublishedTensors = getattr(self, str(numbers[number]))
        return found

    def __len__(self) -> int:
        """Of a list of layers."""
        if not all(name.isdecimal() for name in self._children):
            raise TypeError(f"{self._place} is no list; it has {', '.join(self._children)}")
        return len(self._children)

    def __iter__(self) -> Iterator[PublishedTensors]:
        return (self[number] for number in range(len(self)))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters by their names from here on."""
        for name, part in self._names.items():
            if (tensor := self._tensor(part)) is not None:
                yield name.removeprefix(f"{self._place}."), tensor

    def parameters(self) -> Iterator[Tensor]:
        """Every parameter once; a matrix that is made of several published ones is whole if they are all here."""
        found = list(self._names.values())
        for part in dict.fromkeys(found):
            whole = sum(each.ours == part.ours for each in found) == part.parts
            if whole and part.number == 0:
                yield self._root.get_parameter(part.ours)
            elif not whole and (rows := self._tensor(part)) is not None:
                yield rows

    def requires_grad_(self, requires_grad: bool = True) -> PublishedTensors:
        """Train these parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise InputError(f"{self._place}.{name} cannot be assigned; {self._ours}")

    def __call__(self, *inputs: object, **options: object) -> NoReturn:
        raise InputError(f"{self._place} cannot be called; {self._ours}")

    def register_forward_hook(self, *options: object) -> NoReturn:
        """Refused."""
        raise InputError(f"{self._place} takes no hooks; {self._ours}")

    @property
    def _ours(self) -> str:
        first = next(iter(self._names.values())).ours
        return f"here it is in {type(self._root).__name__}, whose first parameter of it is {first}"

    def __dir__(self) -> list[str]:
        return [*self._children, "named_parameters", "parameters", "requires_grad_"]

    def __repr__(self) -> str:
        return f"<{self._place}: {', '.join(self._children)}>"
